"""What was found out about files, remembered on this machine, so that a big file is read once and not at every opening.

What is remembered is bound to path, device, inode, size, modification and change time. The change time is the
system's own: whoever rewrites a file and sets its modification time back is still found out.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from foredraft.cache_folder import cache_folder, write_atomically

REMEMBER_FROM = 1 << 20
"""Smaller files are hashed each time: that costs less than looking them up."""
_BLOCK = 4 << 20


def sha256_of(descriptor: int) -> str:
    """The hash of a whole open file, in lower-case hexadecimal."""
    digest = hashlib.sha256()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while block := os.read(descriptor, _BLOCK):
        digest.update(block)
    return digest.hexdigest()


def matches(path: Path, descriptor: int, sha256: str, again: bool = False) -> bool:
    """Whether the open file at ``path`` has this hash; reads it if that is not remembered, or ``again``."""
    before = os.fstat(descriptor)
    if not again and _is_remembered(path, before, sha256):
        return True
    if sha256_of(descriptor) != sha256:
        return False
    remember(path, before, sha256)
    return True


def matches_bytes(path: Path, status: os.stat_result, data: bytes, sha256: str) -> bool:
    """The same for a file whose bytes have been read."""
    if _is_remembered(path, status, sha256):
        return len(data) == status.st_size
    if hashlib.sha256(data).hexdigest() != sha256:
        return False
    remember(path, status, sha256)
    return True


def remember(path: Path, status: os.stat_result, sha256: str) -> None:
    """Note that the file at ``path`` with this status was found to have this hash."""
    if status.st_size >= REMEMBER_FROM:
        learn(_fact(path, status, sha256))


def remember_file(path: Path, sha256: str) -> None:
    """``remember`` for a file that this process has just written and hashed."""
    remember(path, path.lstat(), sha256)


def known(fact: str) -> bool:
    """Whether ``learn`` was told this before, on this machine."""
    return _memory(fact).exists()


def learn(fact: str) -> None:
    """Remember a fact; a cache that cannot be written only costs time."""
    try:
        write_atomically(_memory(fact), fact.encode(errors="surrogateescape"))
    except OSError:
        return


def _is_remembered(path: Path, status: os.stat_result, sha256: str) -> bool:
    return status.st_size >= REMEMBER_FROM and known(_fact(path, status, sha256))


def _fact(path: Path, status: os.stat_result, sha256: str) -> str:
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, sha256)
    return f"{path.parent.resolve() / path.name}|{facts}"


def _memory(fact: str) -> Path:
    return cache_folder() / "hashes" / hashlib.sha256(fact.encode(errors="surrogateescape")).hexdigest()
