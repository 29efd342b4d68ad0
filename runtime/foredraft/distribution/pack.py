"""A bundle as one tar. The same bundle gives the same bytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from foredraft.bundle import Bundle, Progress
from foredraft.bundle.folder import open_plain
from foredraft.bundle.manifest import FILE_NAME, OWN_FILES
from foredraft.disk_space import check_space
from foredraft.distribution import tar
from foredraft.errors import BundleError
from foredraft.staging import refuse_sources, staged_file

_BLOCK = 4 << 20


def _is_archive(path: Path) -> bool:
    """Whether the file begins as ours do: with the manifest's header."""
    with path.open("rb") as file:
        return file.read(len(FILE_NAME) + 1) == FILE_NAME.encode() + b"\0"


def pack(bundle: Bundle, out: Path, *, replace: bool = False, progress: Progress | None = None) -> int:
    """Write ``out``, which appears complete or not at all, and return its size in bytes.

    The manifest comes first, then signature and list of parts if there are any, then the files in the
    manifest's order. Every hash is checked on the way. Raises BundleError for a damaged file, ForedraftError
    if ``out`` exists (unless ``replace``) or is being written by someone else.
    """
    total = sum(info.size for info in bundle.manifest.files.values())
    done = 0
    refuse_sources(out, [bundle.path])
    check_space("packing", (out, total))
    with staged_file(out, replace, ours=_is_archive) as archive:
        for name in OWN_FILES:
            if (bundle.path / name).exists():
                _add(archive, bundle.path, name, None)
        for name, info in bundle.manifest.files.items():
            if progress:
                progress(done, total, name)
            digest = _add(archive, bundle.path, name, info.size)
            if digest != info.sha256:
                raise BundleError(
                    f"{bundle.path / name}: its sha256 is not the manifest's; it was changed or damaged, "
                    "export or fetch the bundle again"
                )
            done += info.size
        archive.write(tar.end())
        if progress:
            progress(done, total, "packed")
        return archive.tell()


def _add(archive: BinaryIO, folder: Path, name: str, size: int | None) -> str:
    """Append a file, streaming; returns its sha256. ``size`` is what it must have, if that is known."""
    with os.fdopen(open_plain(folder, name), "rb") as file:
        found = os.fstat(file.fileno()).st_size
        if size is not None and found != size:
            raise BundleError(f"{folder / name}: {found} bytes, the manifest says {size}; export the bundle again")
        archive.write(tar.header(name, found))
        digest, left = hashlib.sha256(), found
        while left and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            archive.write(block)
            left -= len(block)
    if left:
        raise BundleError(f"{folder / name}: became shorter while it was read; stop writing to it and pack again")
    archive.write(tar.padding(found))
    return digest.hexdigest()
