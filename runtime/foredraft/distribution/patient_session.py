"""Requests with a time limit, made again while the server is busy. oras makes its own through it."""

from __future__ import annotations

import itertools
from typing import Any

import requests

from foredraft.distribution import retry

TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""


class PatientSession(requests.Session):
    """``last_status`` is that of the latest answer."""

    last_status = 0

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """As ``requests.Session.request``, in as many tries as ``retry`` allows."""
        for tries in itertools.count(1):
            response = self.request_once(*args, **kwargs)
            seconds = retry.pause(tries, retry.asked_wait(response.headers))
            if not retry.passes(response.status_code) or seconds is None:
                break
            response.close()
            retry.sleep(seconds)
        return response

    def request_once(self, *args: Any, **kwargs: Any) -> requests.Response:
        """One try."""
        kwargs.setdefault("timeout", TIMEOUT)
        response = super().request(*args, **kwargs)
        self.last_status = response.status_code
        return response
