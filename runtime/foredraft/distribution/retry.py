"""Which refusals of a registry pass by themselves, and how long to wait before the next try. Knows no protocol."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further try, where the registry does not say how long it wants."""
LONGEST = 120.0
"""Seconds of the longest wait that is sat out; who is asked to wait longer is told so at once."""
sleep = time.sleep


def passes(status: int) -> bool:
    """Whether the same request may be granted later: a timeout, too many requests, a server in trouble."""
    return status in (408, 429) or (status >= 500 and status not in (501, 505))


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """The seconds that ``Retry-After`` asks for, as a number or as a date; None if it asks for none."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max((until.astimezone(UTC) - datetime.now(UTC)).total_seconds(), 0.0)


def pause(tries: int, asked: float | None) -> float | None:
    """Seconds to wait after so many tries, or None when it is enough."""
    if tries > len(PAUSES) or (asked is not None and asked > LONGEST):
        return None
    return PAUSES[tries - 1] if asked is None else asked
