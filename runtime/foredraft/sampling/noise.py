"""Random numbers that are a function of (seed, position, token id). Knows nothing of logits.

A counter-based generator: the value of token i is the (i+1)-th output of SplitMix64 (Steele, Lea and Flood,
"Fast splittable pseudorandom number generators", 2014) started from a hash of seed and position. Output i of
SplitMix64 is a mixing function of ``start + (i+1) * gamma``, so every value can be had on its own, in any
order and on any machine.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_CHUNK = 8192
"""Values per pass, so that the two scratch arrays stay in the nearest cache."""

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def stream(seed: int, position: int) -> int:
    """Where the values for one position start."""
    return _mix(_mix(seed + _GAMMA) ^ _mix(position * _GAMMA + _FIRST))


def lower_bounds(start: int, ids: Ids | None, count: int) -> npt.NDArray[np.float32]:
    """float32 [count]: 1 - u of each token, rounded down to 32 bits; never above ``exponentials`` (but for
    the rounding to float32). ``ids`` None stands for 0..count-1.
    """
    bounds = np.empty(count, np.float32)
    words, scratch = np.empty((2, min(count, _CHUNK)), np.uint64)
    steps = _steps(_rounded(count if ids is None else int(ids[-1]) + 1))
    for low in range(0, count, _CHUNK):
        high = min(low + _CHUNK, count)
        part = steps[low:high] if ids is None else steps[ids[low:high]]
        some = words[: high - low]
        _outputs(start, part, some, scratch[: high - low])
        np.right_shift(some, 32, out=some)
        bounds[low:high] = some
    bounds *= np.float32(2.0**-32)
    return bounds


def exponentials(start: int, ids: Ids) -> npt.NDArray[np.float64]:
    """float64 [len(ids)]: -log(u), with 1 - u = (52 random bits + 1/2) / 2^52, so that it is never 0 nor
    infinite.
    """
    words = np.empty(len(ids), np.uint64)
    _outputs(start, (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA), words, np.empty_like(words))
    complement = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return -np.log1p(-complement)


def exponential(start: int, token: int) -> float:
    """``exponentials`` of one token, but for the rounding of the logarithm; without arrays, which take longer."""
    complement = ((_mix(start + (token + 1) * _GAMMA) >> 12) + 0.5) * 2.0**-52
    return -math.log1p(-complement)


def _outputs(start: int, steps: Words, out: Words, scratch: Words) -> None:
    """SplitMix64's outputs at ``start + steps``, into ``out``."""
    np.add(steps, np.uint64(start), out=out)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        np.right_shift(out, shift, out=scratch)
        np.bitwise_xor(out, scratch, out=out)
        np.multiply(out, np.uint64(factor), out=out)
    np.right_shift(out, 31, out=scratch)
    np.bitwise_xor(out, scratch, out=out)


@lru_cache(maxsize=4)
def _steps(count: int) -> Words:
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GAMMA)
    steps.flags.writeable = False
    return steps


def _rounded(count: int) -> int:
    """The next power of two, so that few tables are made."""
    return 1 << max(0, count - 1).bit_length()


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ (value >> 30)) * _FIRST & _MASK
    value = (value ^ (value >> 27)) * _SECOND & _MASK
    return value ^ (value >> 31)
