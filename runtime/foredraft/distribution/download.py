"""One blob into the cache: resumed where an earlier try stopped, its hash checked as it streams.

``downloads/SHA256.partial`` grows until it is complete and right, and is then renamed to
``downloads/SHA256``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import requests

from foredraft.bundle import hashes
from foredraft.bundle.manifest import FileInfo
from foredraft.cache_folder import cache_folder
from foredraft.disk_space import naming_full_disk
from foredraft.distribution import retry
from foredraft.distribution.registry import Registry, TransferError
from foredraft.errors import RegistryError

_BLOCK = 1 << 20
_RANGE = re.compile(r"bytes ([0-9]+)-")


def download(registry: Registry, info: FileInfo, name: str, advance: Callable[[int], None]) -> Path:
    """The path of the blob in the cache, complete and checked; ``advance`` is told of bytes as they are
    there.

    Raises RegistryError if the transfer keeps breaking off (what came stays for the next try), or if the
    registry sends other bytes than the manifest lists (nothing of them stays).
    """
    with naming_full_disk(cache_folder()):
        return _download(registry, info, name, advance)


def still_to_fetch(info: FileInfo) -> int:
    """Bytes of a blob that earlier downloads have not left in the cache."""
    complete = _complete_path(info)
    held = [path.stat().st_size for path in (complete, complete.with_suffix(".partial")) if path.exists()]
    return max(info.size - max(held, default=0), 0)


def _download(registry: Registry, info: FileInfo, name: str, advance: Callable[[int], None]) -> Path:
    complete = _complete_path(info)
    if _is_complete(complete, info):
        advance(info.size)
        return complete
    complete.parent.mkdir(parents=True, exist_ok=True)
    path = complete.with_suffix(".partial")
    with _locked(path) as file:
        partial = _Partial(file, info.size, advance)
        resumed = partial.size > 0
        _transfer(registry, info, partial, name)
        if partial.sha256 != info.sha256 and resumed:
            partial.restart()  # what an earlier run had left may have been the damaged part
            _transfer(registry, info, partial, name)
        if partial.sha256 != info.sha256:
            path.unlink()
            raise RegistryError(
                f"{name}: the registry sent bytes with sha256 {partial.sha256[:16]}..., the manifest says "
                f"{info.sha256[:16]}...; the blob was tampered with or damaged there, nothing of it was kept"
            )
        os.fsync(file.fileno())
        path.replace(complete)
    hashes.remember_file(complete, info.sha256)
    return complete


def put_back(file: Path, info: FileInfo) -> None:
    """Move a checked file to where ``download`` looks first, if it is on the same disk."""
    complete = _complete_path(info)
    with contextlib.suppress(OSError):
        complete.parent.mkdir(parents=True, exist_ok=True)
        file.replace(complete)
        hashes.remember_file(complete, info.sha256)


def _complete_path(info: FileInfo) -> Path:
    return cache_folder() / "downloads" / info.sha256


class _Partial:
    """The file that grows, the hash of what is in it, and who is told of it."""

    def __init__(self, file: BinaryIO, limit: int, advance: Callable[[int], None]) -> None:
        self._file, self._limit, self._advance = file, limit, advance
        self._digest, self.size = hashlib.sha256(), 0
        if os.fstat(file.fileno()).st_size > limit:
            file.truncate(0)
        file.seek(0)
        while block := file.read(_BLOCK):
            self._digest.update(block)
            self.size += len(block)
        advance(self.size)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def is_full(self) -> bool:
        return self.size == self._limit

    def append(self, piece: bytes) -> bool:
        """Add bytes; False if they are more than the file may have."""
        if self.size + len(piece) > self._limit:
            return False
        self._file.write(piece)
        self._file.flush()
        self._digest.update(piece)
        self.size += len(piece)
        self._advance(len(piece))
        return True

    def restart(self) -> None:
        self._advance(-self.size)
        self._file.truncate(0)
        self._digest, self.size = hashlib.sha256(), 0


def _is_complete(path: Path, info: FileInfo) -> bool:
    """Whether an earlier run finished this blob but was stopped before it put it in its place."""
    try:
        with path.open("rb") as file:
            same_size = os.fstat(file.fileno()).st_size == info.size
            return same_size and hashes.matches(path, file.fileno(), info.sha256)
    except FileNotFoundError:
        return False


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The partial file, for one process at a time; another waits, and then finds the one that is there by
    then.
    """
    while True:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                yield file
                return


def _transfer(registry: Registry, info: FileInfo, partial: _Partial, name: str) -> None:
    """Fetch what is missing, trying again as long as it gets on."""
    failures = 0
    while not partial.is_full:
        before = partial.size
        try:
            _fetch(registry, info, partial, name)
        except TransferError as error:
            failures = 0 if partial.size > before else failures + 1
            if (seconds := retry.pause(max(failures, 1), None)) is None:
                stopped = f"{name}: broke off at byte {partial.size} of {info.size}; pull again to go on from there"
                raise RegistryError(f"{stopped} ({error})") from error
            retry.sleep(seconds)


def _fetch(registry: Registry, info: FileInfo, partial: _Partial, name: str) -> None:
    """One request's worth; a registry that cannot resume sends the whole, and the file starts over."""
    with registry.open_blob(f"sha256:{info.sha256}", partial.size, name) as response:
        if partial.size and not _continues(response, partial.size):
            partial.restart()
        before = partial.size
        for piece in response.iter_content(_BLOCK):
            if not partial.append(piece):
                partial.restart()
                raise RegistryError(
                    f"{name}: the registry sends more than the {info.size} bytes that the manifest lists"
                )
        if partial.size == before and not partial.is_full:
            raise TransferError(f"{name}: the registry sent nothing")


def _continues(response: requests.Response, start: int) -> bool:
    found = _RANGE.match(response.headers.get("Content-Range", ""))
    return response.status_code == 206 and found is not None and int(found[1]) == start
