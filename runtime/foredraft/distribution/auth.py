"""Who asks: credentials for a registry, found and exchanged by oras as the docker and oras tools do it.

Knows nothing of bundles. Credentials come from docker's config.json, with its credential helpers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import oras.auth
import oras.container
import requests

from foredraft.errors import RegistryError

_SCHEME = re.compile(r"\s*(basic|bearer)\b", re.IGNORECASE)


class Credentials:
    """One registry's credentials. ``answer`` is called with a response that asks for them."""

    def __init__(self, session: requests.Session, registry: str, repository: str, insecure: bool) -> None:
        self._registry = registry
        self._container = oras.container.Container(f"{registry}/{repository}")
        self._token = oras.auth.get_auth_backend("token", session, insecure)
        self._basic = oras.auth.get_auth_backend("basic", session, insecure)
        self._loaded = False

    def answer(self, response: requests.Response) -> str:
        """The Authorization header that the registry asks for.

        Raises RegistryError if there are no credentials, or they are refused.
        """
        asked = response.headers.get("Www-Authenticate", "")
        scheme = _SCHEME.match(asked)
        if scheme is None:
            raise RegistryError(
                f"{self._registry}: refuses without saying how to log in (status {response.status_code})"
            )
        if not self._loaded:
            own = os.environ.get("DOCKER_CONFIG")  # oras looks in the home folder only
            for backend in (self._token, self._basic):
                backend.load_configs(self._container, [str(Path(own) / "config.json")] if own else None)
            self._loaded = True
        if scheme[1].lower() == "basic":
            header = getattr(self._basic, "_basic_auth", None) and self._basic.get_auth_header()["Authorization"]
        else:
            header = self._bearer(response)
        if not header:
            raise RegistryError(
                f"{self._registry}: needs a login for {self._container.api_prefix}; run: "
                f"docker login {self._registry} (or oras login), then try again"
            )
        return str(header)

    def _bearer(self, response: requests.Response) -> str | None:
        """A fresh token for what this response's challenge names; each scope has its own."""
        headers, changed = self._token.authenticate_request(response, {}, refresh=True)
        return headers.get("Authorization") if changed else None
