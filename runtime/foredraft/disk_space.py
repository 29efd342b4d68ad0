"""Is there room on the disk? Asked before work starts where that can be known, and said once where it runs out."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foredraft.cache_folder import cache_folder
from foredraft.errors import ForedraftError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, no file so big."""


def check_space(what: str, *needed: tuple[Path, int]) -> None:
    """Raises ForedraftError unless all these bytes fit beside each other on the disks of their paths.

    ``what`` needs them. A path need not exist yet.
    """
    disks: dict[int, tuple[Path, int]] = {}
    for path, count in needed:
        first, before = disks.get(_disk(path), (path, 0))
        disks[_disk(path)] = (first, before + count)
    for path, count in disks.values():
        free = _free(path)
        if count > free:
            raise ForedraftError(
                f"{path}: {what} needs {size_text(count)} on this disk, {size_text(free)} are free; {_advice(path)}"
            )


def same_disk(one: Path, other: Path) -> bool:
    """Whether files can be moved between the two, which need not exist yet, without a copy."""
    return _disk(one) == _disk(other)


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write more into a ForedraftError that names ``path``, which is being written."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        reason = os.strerror(error.errno).lower()
        free = size_text(_free(path))
        raise ForedraftError(
            f"{path}: could not be written: {reason} ({free} are free on this disk); {_advice(path)}"
        ) from error


def size_text(count: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


def _advice(path: Path) -> str:
    cached = path.absolute().is_relative_to(cache_folder())
    return f"make room, or {'set FOREDRAFT_CACHE to' if cached else 'choose'} another folder"


def _disk(path: Path) -> int:
    return _existing(path).stat().st_dev


def _free(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
