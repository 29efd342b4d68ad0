"""The native loops over a vocabulary, called through ctypes; not ``available`` where the library was not built."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import numpy.typing as npt

from foredraft_plugins import library

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

MOST_WINNERS = 16
"""As many as the kernel has lanes."""
MOST_OF_TOP = 64
"""Above that, sorting is faster."""
_CAPACITY = 64


@cache
def available() -> bool:
    """Whether the loops can be called in this process."""
    return library.unavailable_reason() is None


def contenders(
    logits: Float32, ids: Ids | None, best: int, temperature: float, stream: int, winners: int
) -> tuple[Ids, Float64] | None:
    """Places in ``logits`` [n] of all that can be among the first ``winners`` tokens, ascending, and of few others; and
    their scores, ``logit / temperature + gumbel`` but for what all have in common.

    ``ids`` [n] are the tokens (None: 0..n-1), ``best`` is the place of the largest logit. None if there are too many.
    """
    places, scores = np.empty(_CAPACITY, np.int64), np.empty(_CAPACITY)
    found = _library().foredraft_contenders(
        _address(logits),
        None if ids is None else _address(ids),
        len(logits),
        logits[best],
        temperature,
        stream,
        winners,
        _address(places),
        _address(scores),
        _CAPACITY,
    )
    return (places[:found], scores[:found]) if found <= _CAPACITY else None


def least_outside(stream: int, vocab_size: int, ids: Ids) -> float:
    """The least 1 - u, rounded down, of the tokens below ``vocab_size`` that are not among ``ids`` (ascending)."""
    return float(_library().foredraft_least_outside(stream, vocab_size, _address(ids), len(ids)))


def top(logits: Float32, k: int) -> Ids:
    """Places of the ``k`` largest of ``logits`` [n], largest first, of equal ones the lowest; fewer if n is less."""
    places = np.empty(k, np.int64)
    return places[: _library().foredraft_top(_address(logits), len(logits), k, _address(places))]


def total(logits: Float32, best: float) -> float:
    """Sum of exp(logit - best), ``best`` being at least the largest; terms below 1e-27 count for 1e-28."""
    return float(_library().foredraft_total(_address(logits), len(logits), best))


def _address(array: npt.NDArray[np.generic]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@cache
def _library() -> ctypes.CDLL:
    loaded = library.loaded()
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    loaded.foredraft_contenders.restype = integer
    loaded.foredraft_contenders.argtypes = [
        pointer,
        pointer,
        integer,
        ctypes.c_float,
        ctypes.c_double,
        ctypes.c_uint64,
        integer,
        pointer,
        pointer,
        integer,
    ]
    loaded.foredraft_least_outside.restype = ctypes.c_float
    loaded.foredraft_least_outside.argtypes = [ctypes.c_uint64, integer, pointer, integer]
    loaded.foredraft_top.restype = integer
    loaded.foredraft_top.argtypes = [pointer, integer, integer, pointer]
    loaded.foredraft_total.restype = ctypes.c_double
    loaded.foredraft_total.argtypes = [pointer, integer, ctypes.c_float]
    return loaded
