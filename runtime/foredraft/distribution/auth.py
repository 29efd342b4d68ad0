"""Who asks: credentials for a registry, found and exchanged by oras as the docker and oras tools do it.

Knows nothing of bundles. Credentials come from docker's config.json, with its credential helpers.
"""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import oras.auth
import oras.container
import requests

from foredraft.distribution import retry
from foredraft.distribution.patient_session import PatientSession
from foredraft.distribution.registry_reference import RegistryReference
from foredraft.errors import RegistryError

logging.getLogger("oras.logger").addFilter(lambda record: record.levelno < logging.ERROR)  # ours says it, once
_SCHEME = re.compile(r"\s*(basic|bearer)\b", re.IGNORECASE)


class Credentials:
    """One registry's credentials. ``answer`` is called with a response that asks for them."""

    def __init__(self, session: PatientSession, reference: RegistryReference, insecure: bool) -> None:
        self._session = session
        self._registry, self._repository, self._names = reference.registry, reference.repository, reference.logins
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
            self._load()
        if scheme[1].lower() == "basic":
            header = getattr(self._basic, "_basic_auth", None) and self._basic.get_auth_header()["Authorization"]
        else:
            header = self._bearer(response)
        if not header:
            raise RegistryError(
                f"{self._registry}: needs a login for {self._repository}; run: "
                f"docker login {self._registry} (or oras login), then try again"
            )
        return str(header)

    def _load(self) -> None:
        """Let oras look for the login, under the one of its names that the config knows."""
        config = _docker_config()
        kept = [name for name in self._names if name in config["auths"] or name in config["credHelpers"]]
        container = oras.container.Container(f"{self._registry}/{self._repository}")
        container.registry = [*kept, *self._names][0]
        for backend in (self._token, self._basic):
            backend._auth_config = config  # oras would read that of the home folder too, in no order
            backend.load_configs(container)
        self._loaded = True

    def _bearer(self, response: requests.Response) -> str | None:
        """A fresh token for what this response's challenge names; each scope has its own."""
        headers, changed = self._token.authenticate_request(response, {}, refresh=True)
        status = self._session.last_status
        if not changed and retry.passes(status):
            raise RegistryError(
                f"{self._registry}: the service that lets in answers with status {status}, over several tries; "
                "try again later"
            )
        return headers.get("Authorization") if changed else None


def _docker_config() -> dict[str, Any]:
    """What docker's config.json says of logins; nothing if there is none. Raises RegistryError for a broken one."""
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        found = json.loads(path.read_bytes())
        kept = {key: found.get(key) or {} for key in ("auths", "credHelpers")}
        if not all(isinstance(entry, dict) for entry in (*kept.values(), *kept["auths"].values())):
            raise TypeError("an entry that is no object")
    except FileNotFoundError:
        return {"auths": {}, "credHelpers": {}, "credsStore": None}
    except (OSError, AttributeError, TypeError, ValueError) as error:
        raise RegistryError(
            f"{path}: cannot be read as docker's settings, which hold the logins to registries ({error}); "
            "mend or remove it, then log in again"
        ) from error
    return {**kept, "credsStore": found.get("credsStore")}
