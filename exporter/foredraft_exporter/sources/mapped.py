"""Read-only files mapped into memory, whose pages can be given back. Knows no format."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from foredraft.errors import CheckpointError

LFS_POINTER = b"version https://git-lfs"


class MappedFile:
    """A file seen as bytes. Pages enter memory when touched and leave it on ``release``."""

    def __init__(self, path: Path) -> None:
        """Raises ``CheckpointError`` if the file is missing, empty, unreadable or a Git LFS pointer."""
        self.path = path
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                if self.size == 0:
                    raise CheckpointError(f"{path}: the file is empty; download it again")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error
        refuse_lfs_pointer(path, self._map[: len(LFS_POINTER)])

    def bytes(self, offset: int, count: int) -> bytes:
        return self._map[offset : offset + count]

    def array(self, dtype: DTypeLike, count: int, offset: int) -> NDArray[Any]:
        """A view of ``count`` elements; the caller has checked that they lie inside the file."""
        return np.frombuffer(self._map, dtype, count, offset)

    def release(self) -> None:
        """Gives the touched pages back, so that reading a whole checkpoint never holds it in memory."""
        if hasattr(self._map, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def refuse_lfs_pointer(path: Path, start: bytes) -> None:
    """Raises ``CheckpointError`` if ``start``, the first bytes of ``path``, are a Git LFS pointer's."""
    if start.startswith(LFS_POINTER):
        raise CheckpointError(
            f"{path}: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder "
            "or download the file again"
        )


def read_small(path: Path, limit: int = 100 << 20) -> bytes:
    """A sidecar file. Raises ``CheckpointError`` if unreadable, over ``limit`` bytes or an LFS pointer."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise CheckpointError(f"{path}: {size} bytes, expected at most {limit}; it is not what its name says")
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error
    refuse_lfs_pointer(path, data[: len(LFS_POINTER)])
    return data
