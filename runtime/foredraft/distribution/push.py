"""A bundle into a registry. What the registry has already is not sent again."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, cast

from foredraft.bundle import Bundle, Progress
from foredraft.bundle.manifest import FILE_NAME, SIGNATURE
from foredraft.distribution.artifact import check_size, entries, entry, image, index, own_entry
from foredraft.distribution.registry import IMAGE, INDEX, Registry, digest_of
from foredraft.distribution.registry_reference import RegistryReference
from foredraft.errors import BundleError, RegistryError


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did: names of files sent, and of those the registry had; ``digest`` pins this version."""

    digest: str
    sent: tuple[str, ...]
    present: tuple[str, ...]


def push(
    bundle: Bundle,
    reference: RegistryReference,
    *,
    add: bool = False,
    plain_http: bool = False,
    progress: Progress | None = None,
) -> Pushed:
    """Upload what the registry lacks, then move the tag. With ``add`` the tag keeps its other precisions.

    Files are sent one by one, each whole: a push that was interrupted goes on with the file it was at. Raises
    BundleError for a damaged or partly pulled bundle, RegistryError for what the registry refuses.
    """
    if not bundle.complete:
        raise BundleError(f"{bundle.path}: only a part of the bundle was pulled; pull all of it before pushing")
    if reference.digest:
        raise RegistryError(f"{reference}: a push goes to a tag, not to a digest; give HOST/NAME:TAG")
    registry = Registry(reference, plain_http)
    manifest_bytes = (bundle.path / FILE_NAME).read_bytes()
    signed = (bundle.path / SIGNATURE).exists()
    signature = (bundle.path / SIGNATURE).read_bytes() if signed else None
    document = check_size(image(manifest_bytes, bundle.manifest, signature), str(bundle.path))
    sent, present = _push_files(registry, bundle, progress)
    for name, small in ((FILE_NAME, manifest_bytes), (SIGNATURE, signature)):
        if small is not None and not registry.has_blob(digest_of(small), name):
            registry.upload(digest_of(small), len(small), io.BytesIO(small), name)
    if add:
        _put_beside_others(registry, reference, document, bundle.manifest.precision)
    else:
        registry.put_manifest(reference.tag, IMAGE, document)
    return Pushed(digest_of(document), sent, present)


def _push_files(
    registry: Registry, bundle: Bundle, progress: Progress | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Upload the files that the registry lacks; returns the names of these, and of the others."""
    files = bundle.manifest.files
    total, done = sum(info.size for info in files.values()), 0
    sent, present = [], []
    for name, info in files.items():
        digest = f"sha256:{info.sha256}"
        if registry.has_blob(digest, name):
            present.append(name)
        else:
            read_to = partial(_tell, progress, done, total, name)
            registry.upload(digest, info.size, cast(BinaryIO, _Stream(bundle.map(name), read_to)), name)
            sent.append(name)
        done += info.size
        if progress:
            progress(done, total, name)
    return tuple(sent), tuple(present)


def _tell(progress: Progress | None, done: int, total: int, name: str, at: int) -> None:
    if progress:
        progress(done + at, total, name)


def _put_beside_others(registry: Registry, reference: RegistryReference, document: bytes, precision: str) -> None:
    """Point the tag to an index that holds this artifact and those of other precisions that the tag had."""
    registry.put_manifest(digest_of(document), IMAGE, document)
    others: dict[str, dict[str, Any]] = {}
    if (old := registry.find_manifest(reference.tag)) is not None:
        kind, data = old
        others = entries(data, str(reference)) if kind == INDEX else own_entry(data, str(reference))
    registry.put_manifest(reference.tag, INDEX, index(others | {precision: entry(document, precision)}))


class _Stream(io.RawIOBase):
    """A mapped file as a stream that tells how far it was read."""

    def __init__(self, data: memoryview, read_to: Callable[[int], None]) -> None:
        self._data, self._read_to, self._at = data, read_to, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = min(max(start + offset, 0), len(self._data))
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), len(self._data) - self._at)
        buffer[:count] = self._data[self._at : self._at + count]
        self._at += count
        self._read_to(self._at)
        return count
