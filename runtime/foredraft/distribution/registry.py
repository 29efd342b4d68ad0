"""The OCI distribution protocol, as much of it as bundles need: blobs that stream and resume, and manifests.

oras (the community's Python client) is used for logging in. Its transfers are not: they hold a whole blob in
memory, do not resume, check no hash, and wait minutes before they report an unreachable registry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import urljoin

from foredraft.distribution.registry_reference import Reference
from foredraft.errors import RegistryError

try:
    import requests

    from foredraft.distribution.auth import Credentials
except ImportError as error:
    raise RegistryError(f"registries: {error}; install it with: pip install 'foredraft[ship]'") from error

IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
MAX_DOCUMENT = 8 << 20
"""Largest OCI manifest, in bytes; registries themselves allow 4 MiB."""
_TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""


class TransferError(RegistryError):
    """The connection failed; the same request may succeed later."""


class Registry:
    """One repository of one registry. Plain HTTP only for this machine, or if ``plain_http`` says so."""

    def __init__(self, reference: Reference, plain_http: bool = False) -> None:
        self._name = f"{reference.registry}/{reference.repository}"
        insecure = plain_http or reference.loopback
        self._base = f"{'http' if insecure else 'https'}://{reference.registry}/v2/{reference.repository}/"
        self._session = _Session()
        if reference.loopback:
            self._session.trust_env = False  # no proxy stands between this machine and itself
        self._credentials = Credentials(self._session, reference.registry, reference.repository, insecure)
        self._authorization: str | None = None

    def has_blob(self, digest: str) -> bool:
        """Whether the registry has a blob already."""
        with self._send("HEAD", f"blobs/{digest}") as response:
            if response.status_code not in (200, 404):
                self._refuse(response, f"asking for {digest}")
            return response.status_code == 200

    def upload(self, digest: str, size: int, data: BinaryIO) -> None:
        """Upload a blob, streaming from ``data``, which is read from its start."""
        with self._send("POST", "blobs/uploads/") as response:
            self._expect(response, (202,), "starting an upload")
            location = urljoin(response.url, response.headers.get("Location", ""))
        url = f"{location}{'&' if '?' in location else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        # requests would send an empty stream in chunks, which not every registry takes
        with self._send("PUT", url, headers=headers, data=data if size else b"") as response:
            self._expect(response, (201,), f"uploading {digest}")

    @contextmanager
    def open_blob(self, digest: str, start: int) -> Iterator[requests.Response]:
        """A streaming answer with the blob from byte ``start`` (status 206), or with all of it (200)."""
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with self._send("GET", f"blobs/{digest}", headers=headers) as response:
            self._expect(response, (200, 206), f"fetching {digest}")
            yield response

    def read_blob(self, digest: str, limit: int) -> bytes:
        """A small blob, its hash checked. Raises RegistryError if it is longer than ``limit`` bytes or
        another one.
        """
        with self.open_blob(digest, 0) as response:
            data = self._read(response, limit)
        return self._checked(data, digest)

    def get_manifest(self, target: str) -> tuple[str, bytes]:
        """(media type, bytes) of the manifest with this tag or digest; of a digest the hash is checked."""
        found = self.find_manifest(target)
        if found is None:
            raise RegistryError(f"{self._name}: has no {target!r}; check the name and the tag")
        return found

    def find_manifest(self, target: str) -> tuple[str, bytes] | None:
        """The same, or None if there is none."""
        with self._send("GET", f"manifests/{target}", headers={"Accept": f"{IMAGE}, {INDEX}"}) as response:
            if response.status_code == 404:
                return None
            self._expect(response, (200,), f"fetching manifest {target}")
            data = self._read(response, MAX_DOCUMENT)
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
        return kind, self._checked(data, target) if target.startswith("sha256:") else data

    def put_manifest(self, target: str, kind: str, data: bytes) -> str:
        """Store a manifest under a tag or its digest, and return the digest."""
        with self._send("PUT", f"manifests/{target}", headers={"Content-Type": kind}, data=data) as response:
            self._expect(response, (201,), f"storing manifest {target}")
        return digest_of(data)

    @contextmanager
    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        data: BinaryIO | bytes | None = None,
    ) -> Iterator[requests.Response]:
        """One request, answered with credentials if the registry asks for them."""
        url = urljoin(self._base, path)
        try:
            response = self._request(method, url, headers, data)
            if response.status_code == 401:
                self._authorization = self._credentials.answer(response)
                response.close()
                response = self._request(method, url, headers, data)
                if response.status_code == 401:
                    raise RegistryError(f"{self._name}: the login was refused; log in again, or ask for access")
            with response:
                yield response
        except requests.RequestException as error:
            raise TransferError(f"{self._name}: {_reason(error)}; check the network and try again") from error

    def _request(
        self, method: str, url: str, headers: Mapping[str, str] | None, data: BinaryIO | bytes | None
    ) -> requests.Response:
        if data is not None and not isinstance(data, bytes):
            data.seek(0)
        sent = dict(headers or {})
        if self._authorization and url.startswith(self._base.partition("/v2/")[0] + "/"):
            sent["Authorization"] = self._authorization
        return self._session.request(method, url, headers=sent, data=data, stream=True)

    def _read(self, response: requests.Response, limit: int) -> bytes:
        pieces, size = [], 0
        for piece in response.iter_content(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise RegistryError(f"{self._name}: sent more than {limit} bytes where a small document was expected")
        return b"".join(pieces)

    def _checked(self, data: bytes, digest: str) -> bytes:
        if digest_of(data) != digest:
            raise RegistryError(
                f"{self._name}: sent {digest_of(data)}, asked for {digest}; it was changed or damaged there"
            )
        return data

    def _expect(self, response: requests.Response, statuses: tuple[int, ...], what: str) -> None:
        if response.status_code not in statuses:
            self._refuse(response, what)

    def _refuse(self, response: requests.Response, what: str) -> None:
        raise RegistryError(f"{self._name}: {what}: status {response.status_code}{_explanation(response)}")


class _Session(requests.Session):
    """Requests with a time limit, oras's own included."""

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("timeout", _TIMEOUT)
        return super().request(*args, **kwargs)


def digest_of(data: bytes) -> str:
    """A document's digest as OCI writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _explanation(response: requests.Response) -> str:
    """The registry's own words, if it gave any."""
    try:
        errors = json.loads(next(response.iter_content(1 << 14), b""))["errors"]
        words = "; ".join(str(error.get("message") or error.get("code")) for error in errors)
    except (AttributeError, KeyError, TypeError, ValueError, requests.RequestException):
        return ""
    return f" ({words[:300]})"


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.ConnectTimeout | requests.ReadTimeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return f"no trusted connection ({error}); for a registry without TLS pass --plain-http"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached, or broke off"
    return str(error)
