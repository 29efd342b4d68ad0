"""Arrays whose memory is only taken from the system page by page, as it is first written."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


def lazy_zeros(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> npt.NDArray[Any]:
    """An array of zeros for a cache that is sized for the longest text and mostly stays empty.

    numpy asks the system for huge pages, of which a first write takes a whole one: with a row per layer and head that
    is the whole cache at once. So these pages are asked to stay small.
    """
    count = math.prod(shape)
    memory = mmap.mmap(-1, max(count * np.dtype(dtype).itemsize, 1))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype, count).reshape(shape)
