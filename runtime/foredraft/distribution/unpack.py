"""A packed bundle back into a folder. Nothing is written before it has been judged, and nothing opens
half-written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from foredraft.bundle import Bundle, Progress, hashes
from foredraft.bundle.manifest import FILE_NAME, MAX_MANIFEST, PARTIAL, SIGNATURE, Manifest
from foredraft.bundle.signature import MAX_SIGNATURE
from foredraft.disk_space import check_space
from foredraft.distribution import tar
from foredraft.errors import BundleError
from foredraft.staging import refuse_sources, staged_folder

_BLOCK = 4 << 20


def unpack(
    archive: Path,
    out: Path,
    *,
    replace: bool = False,
    key: Path | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Unpack ``archive`` as the bundle ``out``, which appears complete or not at all.

    A member is written only if it is a plain file that the manifest lists with this size; its hash is checked
    as it streams. With ``key`` the bundle must be signed by it. Raises BundleError or SignatureError for what
    is wrong in the archive, ForedraftError if ``out`` exists (unless ``replace``) or is being written by
    someone else.
    """
    try:
        file = archive.open("rb")
    except OSError as error:
        raise BundleError(f"{archive}: cannot be opened ({error.strerror})") from error
    refuse_sources(out, [archive])
    with file, staged_folder(out, replace, marker=FILE_NAME) as folder:
        members = tar.members(file, str(archive))
        manifest = _unpack_manifest(file, members, folder, archive)
        total = sum(info.size for info in manifest.files.values())
        _check_room(archive, out, total)
        _unpack_files(file, members, folder, manifest, str(archive), progress)
        Bundle.open(folder, key=key)
    bundle = Bundle.open(out)
    for name, info in bundle.manifest.files.items():
        hashes.remember_file(out / name, info.sha256)
    return bundle


def _unpack_manifest(file: BinaryIO, members: Iterator[tar.Member], folder: Path, archive: Path) -> Manifest:
    member = next(members, None)
    if member is None or member.name != FILE_NAME or member.size > MAX_MANIFEST:
        found = "nothing" if member is None else f"{member.name[:200]!r} ({member.size} bytes)"
        raise BundleError(
            f"{archive}: begins with {found}, expected {FILE_NAME} of at most {MAX_MANIFEST} bytes; "
            "make it with foredraft pack"
        )
    data = _read_exactly(file, member, str(archive))
    manifest = Manifest.from_bytes(data, f"{archive}: {FILE_NAME}")
    (folder / FILE_NAME).write_bytes(data)
    return manifest


def _check_room(archive: Path, out: Path, total: int) -> None:
    """What the manifest announces must be in the archive, and must fit on the disk."""
    size = archive.stat().st_size
    if total > size and not archive.is_fifo():
        raise BundleError(f"{archive}: {size} bytes, but its manifest lists {total}; truncated, fetch it again")
    check_space("unpacking", (out, total))


def _unpack_files(
    file: BinaryIO,
    members: Iterator[tar.Member],
    folder: Path,
    manifest: Manifest,
    where: str,
    progress: Progress | None,
) -> None:
    extras = {SIGNATURE: MAX_SIGNATURE, PARTIAL: MAX_MANIFEST}
    total, done = sum(info.size for info in manifest.files.values()), 0
    seen: set[str] = set()
    for member in members:
        name = member.name
        if name in seen or name == FILE_NAME:
            raise BundleError(f"{where}: {name!r} comes twice; fetch it again")
        seen.add(name)
        if name in extras and member.size <= extras[name]:
            (folder / name).write_bytes(_read_exactly(file, member, where))
            continue
        info = manifest.files.get(name)
        if info is None:
            raise BundleError(f"{where}: {name[:200]!r} is not listed in its manifest; nothing was unpacked")
        if info.size != member.size:
            raise BundleError(f"{where}: {name} has {member.size} bytes, its manifest says {info.size}")
        if progress:
            progress(done, total, name)
        if _write(file, folder / name, member, where) != info.sha256:
            raise BundleError(f"{where}: {name} does not have the sha256 of its manifest; damaged, fetch it again")
        done += member.size


def _write(file: BinaryIO, path: Path, member: tar.Member, where: str) -> str:
    """Stream a member to a new file; returns its sha256. ``path`` comes from a checked manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), member.size
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as out:
        while left and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            out.write(block)
            left -= len(block)
    if left:
        raise BundleError(f"{where}: truncated in {member.name}; fetch it again")
    return digest.hexdigest()


def _read_exactly(file: BinaryIO, member: tar.Member, where: str) -> bytes:
    data = file.read(member.size)
    if len(data) != member.size:
        raise BundleError(f"{where}: truncated in {member.name}; fetch it again")
    return data
