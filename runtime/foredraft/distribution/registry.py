"""The OCI distribution protocol, as much of it as bundles need: blobs that stream and resume, and manifests.

oras (the community's Python client) is used for logging in. Its transfers are not: they hold a whole blob in
memory, do not resume, check no hash, and wait minutes before they report an unreachable registry.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import urljoin

from foredraft.distribution import retry
from foredraft.distribution.registry_reference import RegistryReference
from foredraft.errors import RegistryError

try:
    import requests

    from foredraft.distribution.auth import Credentials
    from foredraft.distribution.patient_session import TIMEOUT, PatientSession
except ImportError as error:
    raise RegistryError(f"registries: {error}; install it with: pip install 'foredraft[ship]'") from error

IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
MAX_DOCUMENT = 8 << 20
"""Largest OCI manifest, in bytes; registries themselves allow 4 MiB."""
_COMMIT_RATE = 4 << 20
"""Bytes a second at which the slowest registries put a blob in its place once they have it all."""


class TransferError(RegistryError):
    """The connection failed; the same request may succeed later."""

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class BusyError(RegistryError):
    """The registry cannot now; ``asked`` is how many seconds it wants to be left alone, if it says so."""

    def __init__(self, message: str, asked: float | None, timed_out: bool = False) -> None:
        super().__init__(message)
        self.asked, self.timed_out = asked, timed_out


class Registry:
    """One repository of one registry. Plain HTTP only for this machine, or if ``plain_http`` says so."""

    def __init__(self, reference: RegistryReference, plain_http: bool = False) -> None:
        self._name = f"{reference.registry}/{reference.repository}"
        insecure = plain_http or reference.loopback
        self._base = f"{'http' if insecure else 'https'}://{reference.host}/v2/{reference.repository}/"
        self._session = PatientSession()
        if reference.loopback:
            self._session.trust_env = False  # no proxy stands between this machine and itself
        self._credentials = Credentials(self._session, reference, insecure)
        self._authorization: str | None = None

    def has_blob(self, digest: str, name: str) -> bool:
        """Whether the registry has a blob already; ``name`` is what errors call it."""
        with self._send("HEAD", f"blobs/{digest}", f"asking for {name}") as response:
            if response.status_code not in (200, 404):
                self._refuse(response, f"asking for {name}")
            return response.status_code == 200

    def upload(self, digest: str, size: int, data: BinaryIO, name: str) -> None:
        """Upload a blob, streaming from ``data``, which is read from its start, again if it has to be.

        A registry may need long to put a big blob in its place, and a proxy before it may lose patience: the blob
        counts as there when the registry has it, whatever was answered.
        """
        for tries in itertools.count(1):
            try:
                return self._upload_once(digest, size, data, name)
            except (TransferError, BusyError) as error:
                if self._arrived(digest, name, size if error.timed_out else 0):
                    return None
                asked = error.asked if isinstance(error, BusyError) else None
                if (seconds := retry.pause(tries, asked)) is None:
                    raise
                retry.sleep(seconds)

    def _upload_once(self, digest: str, size: int, data: BinaryIO, name: str) -> None:
        what = f"uploading {name}"
        with self._send("POST", "blobs/uploads/", what, once=True) as response:
            self._expect(response, (202,), what)
            location = urljoin(response.url, response.headers.get("Location", ""))
        url = f"{location}{'&' if '?' in location else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        seconds = TIMEOUT[1] + size / _COMMIT_RATE
        # requests would send an empty stream in chunks, which not every registry takes
        with self._send("PUT", url, what, headers, data if size else b"", once=True, seconds=seconds) as response:
            self._expect(response, (201,), what)

    def _arrived(self, digest: str, name: str, size: int) -> bool:
        """Whether a blob is there after all, asked for as long as putting ``size`` bytes in their place may take."""
        left = size / _COMMIT_RATE
        for seconds in itertools.chain(retry.PAUSES, itertools.repeat(retry.PAUSES[-1])):
            try:
                if self.has_blob(digest, name):
                    return True
            except TransferError:
                pass  # gone for the moment
            if left < seconds:
                return False
            retry.sleep(seconds)
            left -= seconds
        return False

    @contextmanager
    def open_blob(self, digest: str, start: int, name: str) -> Iterator[requests.Response]:
        """A streaming answer with the blob from byte ``start`` (status 206), or with all of it (200).

        ``name`` is what errors call it.
        """
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with self._send("GET", f"blobs/{digest}", f"fetching {name}", headers) as response:
            self._expect(response, (200, 206), f"fetching {name}")
            yield response

    def read_blob(self, digest: str, limit: int, name: str) -> bytes:
        """A small blob, its hash checked. Raises RegistryError if it is longer than ``limit`` bytes or
        another one.
        """
        with self.open_blob(digest, 0, name) as response:
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
        what = f"fetching the OCI manifest {target}"
        with self._send("GET", f"manifests/{target}", what, {"Accept": f"{IMAGE}, {INDEX}"}) as response:
            if response.status_code == 404:
                return None
            self._expect(response, (200,), what)
            data = self._read(response, MAX_DOCUMENT)
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
        return kind, self._checked(data, target) if target.startswith("sha256:") else data

    def put_manifest(self, target: str, kind: str, data: bytes) -> str:
        """Store a manifest under a tag or its digest, and return the digest."""
        what = f"storing the OCI manifest {target}"
        with self._send("PUT", f"manifests/{target}", what, {"Content-Type": kind}, data) as response:
            self._expect(response, (201,), what)
        return digest_of(data)

    @contextmanager
    def _send(
        self,
        method: str,
        path: str,
        what: str,
        headers: Mapping[str, str] | None = None,
        data: BinaryIO | bytes | None = None,
        once: bool = False,
        seconds: float | None = None,
    ) -> Iterator[requests.Response]:
        """One request, answered with credentials if the registry asks for them, and made again if it is busy.

        It is made ``once`` if the caller knows better what to do then. ``seconds`` is how long it may take to answer,
        ``what`` is being done.
        """
        url = urljoin(self._base, path)
        try:
            response = self._request(method, url, headers, data, once, seconds)
            if response.status_code == 401:
                self._authorization = self._credentials.answer(response)
                response.close()
                response = self._request(method, url, headers, data, once, seconds)
                if response.status_code == 401:
                    raise RegistryError(f"{self._name}: {what}: the login was refused; log in again, or ask for access")
            with response:
                yield response
        except requests.RequestException as error:
            late = isinstance(error, requests.ReadTimeout)
            message = f"{self._name}: {what}: {_reason(error)}; check the network and try again"
            raise TransferError(message, late) from error

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        data: BinaryIO | bytes | None,
        once: bool,
        seconds: float | None,
    ) -> requests.Response:
        if data is not None and not isinstance(data, bytes):
            data.seek(0)
        sent = dict(headers or {})
        if self._authorization and url.startswith(self._base.partition("/v2/")[0] + "/"):
            sent["Authorization"] = self._authorization
        ask = self._session.request_once if once else self._session.request
        timeout = (TIMEOUT[0], seconds or TIMEOUT[1])
        return ask(method, url, headers=sent, data=data, stream=True, timeout=timeout)

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
        status, asked = response.status_code, retry.asked_wait(response.headers)
        message = f"{self._name}: {what}: status {status}{_explanation(response)}; {_advice(status, asked)}"
        if retry.passes(status):
            raise BusyError(message, asked, timed_out=status == 504)
        raise RegistryError(message)


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


def _advice(status: int, asked: float | None) -> str:
    """What to do about a refusal."""
    if asked is not None and asked > retry.LONGEST:
        return f"it asks to be left alone for {asked:.0f} s; try again then"
    if retry.passes(status):
        return "it stayed so over several tries; try again later, what arrived is not sent again"
    if status in (401, 403):
        return "log in as somebody who may do this, or ask for access"
    if status == 404:
        return "check the name, and whether this repository must be created first"
    if status == 413:
        return "it takes nothing of this size; have its limit raised, or choose another registry"
    return "check the name, or ask who runs the registry"


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.ConnectTimeout | requests.ReadTimeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return f"no trusted connection ({error}); for a registry without TLS pass --plain-http"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached, or broke off"
    return str(error)
