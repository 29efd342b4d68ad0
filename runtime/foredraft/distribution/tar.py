"""The one form of tar that bundles travel in: plain files in their order, no times, no owners, nothing
clever.

Headers are written and parsed by ``tarfile``; its reader is not used, because it obeys extension headers
(sparse files, links, long names of any length) that a bundle has no use for.
"""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from foredraft.errors import BundleError

BLOCK = 512
_USTAR_LIMIT = 8 << 30
"""Larger sizes do not fit ustar's octal digits; GNU's binary form holds them."""
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.DIRTYPE: "a folder entry",
    tarfile.GNUTYPE_SPARSE: "a sparse file, which unpacks to more than it holds",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive; ``size`` in bytes."""

    name: str
    size: int


def header(name: str, size: int) -> bytes:
    """A member's header block, a function of name and size alone."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
    if size < _USTAR_LIMIT:
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """What fills a member's last block."""
    return bytes(-size % BLOCK)


def end() -> bytes:
    """The end of an archive."""
    return bytes(2 * BLOCK)


def members(file: BinaryIO, where: str) -> Iterator[Member]:
    """Each member as its header is read; the caller reads exactly its bytes before going on.

    Raises BundleError for an archive that is compressed, truncated, damaged, holds anything but plain files,
    or goes on after its end.
    """
    first = True
    while True:
        block = file.read(BLOCK)
        if first:
            _refuse_compressed(block, where)
            first = False
        if len(block) != BLOCK:
            raise BundleError(f"{where}: truncated; fetch it again")
        if block == bytes(BLOCK):
            _check_end(file, where)
            return
        member = _parse(block, where)
        yield member
        if file.read(-member.size % BLOCK).strip(b"\0"):
            raise BundleError(f"{where}: {member.name!r} is followed by stray bytes; fetch it again")


def _refuse_compressed(block: bytes, where: str) -> None:
    for magic, name in _COMPRESSED.items():
        if block.startswith(magic):
            raise BundleError(
                f"{where}: compressed ({name}), expected a plain tar as `foredraft pack` writes it; "
                "weights do not compress, and a small file could become an endless one"
            )


def _parse(block: bytes, where: str) -> Member:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise BundleError(f"{where}: not a tar that `foredraft pack` wrote ({error}); fetch it again") from error
    if info.type not in tarfile.REGULAR_TYPES or info.type == tarfile.GNUTYPE_SPARSE:
        kind = _KINDS.get(info.type, f"an entry of type {info.type!r}")
        raise BundleError(f"{where}: {info.name[:200]!r} is {kind}, expected plain files only; nothing was unpacked")
    if info.size < 0:
        raise BundleError(f"{where}: {info.name[:200]!r} has a negative size")
    return Member(info.name, info.size)


def _check_end(file: BinaryIO, where: str) -> None:
    """Zeros until the end: tar writers may fill up their last record, but nothing may hide behind it."""
    rest = 0
    while block := file.read(1 << 20):
        rest += len(block)
        if block.strip(b"\0") or rest > 1 << 20:
            raise BundleError(f"{where}: goes on after its end; fetch it again")
