"""Matrices as integer codes with a scale (and minimum) per block of 32. Knows nothing of files or packing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import UnsupportedModelError
from foredraft_plugins.block_linear.packing import BLOCK


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """How a matrix is held: ``bits`` per code (4 or 8), and whether every block carries its own minimum."""

    bits: int
    has_min: bool


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of a matrix in blocks: ``value = scale * code + min``.

    ``codes`` uint8 [N, K]; ``scale`` float16 [N, K/32]; ``min`` float16 [N, K/32], or None, which means
    ``-2**(bits-1) * scale`` (symmetric around zero).
    """

    bits: int
    codes: NDArray[np.uint8]
    scale: NDArray[np.float16]
    min: NDArray[np.float16] | None

    @property
    def format(self) -> BlockFormat:
        return BlockFormat(self.bits, self.min is not None)

    def values(self) -> NDArray[np.float32]:
        """The numbers themselves, float32 [N, K], each rounded once from the exact sum."""
        n, k = self.codes.shape
        codes = self.codes.reshape(n, -1, BLOCK).astype(np.float64)
        scale = self.scale.astype(np.float64)[..., None]
        low = -(2 ** (self.bits - 1)) * scale if self.min is None else self.min.astype(np.float64)[..., None]
        return (codes * scale + low).astype(np.float32).reshape(n, k)


def fits(source: BlockFormat | None, target: BlockFormat) -> bool:
    """Whether numbers held as ``source`` can be held as ``target`` without changing any of them."""
    return source is not None and source.bits <= target.bits and (target.has_min or not source.has_min)


def widen(blocks: Blocks, target: BlockFormat, name: str) -> Blocks:
    """The same numbers in a wider format.

    ``fits(blocks.format, target)`` must hold. ``name`` is the tensor's, for the error. Raises
    ``UnsupportedModelError`` if a minimum made explicit is beyond float16.
    """
    if blocks.format == target:
        return blocks
    if not target.has_min:
        shift = 2 ** (target.bits - 1) - 2 ** (blocks.bits - 1)
        return Blocks(target.bits, blocks.codes + np.uint8(shift), blocks.scale, None)
    low = blocks.min
    if low is None:
        exact = -(2.0 ** (blocks.bits - 1)) * blocks.scale.astype(np.float32)
        with np.errstate(over="ignore"):
            low = exact.astype(np.float16)
        if not np.array_equal(low.astype(np.float32), exact):
            raise UnsupportedModelError(
                f"{name}: a block's minimum ({exact.min():g}) is beyond float16 (expected at least -65504); "
                "export with --precision fp32"
            )
    return Blocks(target.bits, blocks.codes, blocks.scale, low)
