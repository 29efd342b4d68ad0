"""Float rows -> blocks. The float16 rounding of scale and minimum is part of the error that is minimised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import CheckpointError, UnsupportedModelError
from foredraft_exporter.weights.blocks import Blocks
from foredraft_plugins.block_linear.packing import BLOCK

_GROUP = 2048
"""Blocks worked on at once: 256 KiB of floats, so that every pass stays in the cache."""

_WIDTHS = np.linspace(-1.0, 3.5, 10, dtype=np.float32)
"""Candidate scales are range / (15 - width). More of them gain less than half a percent of the error."""


def quantize(rows: NDArray[np.float32], bits: int, name: str) -> Blocks:
    """``rows`` float32 [N, K] as blocks: 8 bits symmetric (no minimum), 4 bits with a minimum of least
    squared error.

    ``name`` is the tensor's, for errors. Raises ``CheckpointError`` for values that are not finite and
    ``UnsupportedModelError`` for a K that is no multiple of 32 or values that a float16 scale cannot hold.
    """
    n, k = rows.shape
    if k % BLOCK:
        raise UnsupportedModelError(
            f"{name}: rows of {k} are no multiple of {BLOCK}, which quantized weights need; export with "
            "--precision fp32"
        )
    if not np.isfinite(rows).all():
        raise CheckpointError(f"{name}: has values that are not finite (NaN or infinity); the checkpoint is damaged")
    if rows.size and np.abs(rows).max() > (8e6 if bits == 8 else 65504):
        raise UnsupportedModelError(f"{name}: has values beyond what a float16 scale can hold; use --precision fp32")
    blocks = rows.reshape(-1, BLOCK)
    codes = np.empty(blocks.shape, np.uint8)
    scale = np.empty(len(blocks), np.float16)
    low = np.empty(len(blocks), np.float16) if bits == 4 else None
    for at in range(0, len(blocks), _GROUP):
        part = slice(at, at + _GROUP)
        if low is None:
            codes[part], scale[part] = _symmetric8(blocks[part])
        else:
            codes[part], scale[part], low[part] = _least_squares4(blocks[part])
    return Blocks(bits, codes.reshape(n, k), scale.reshape(n, -1), None if low is None else low.reshape(n, -1))


def squared_error(rows: NDArray[np.float32], blocks: Blocks) -> tuple[float, float]:
    """``(sum of squared differences, sum of squares)``, to be added up over a matrix."""
    difference = rows - blocks.values()
    return float(np.vdot(difference, difference)), float(np.vdot(rows, rows))


def round_rows(rows: NDArray[np.float32], name: str) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """``rows`` float32 [N, K] -> codes int8 [N, K], scale float16 [N]: each row symmetric around zero.

    Raises ``UnsupportedModelError`` naming the tensor for a row that a float16 scale cannot hold.
    """
    top = np.abs(rows).max(axis=1)
    if top.size and top.max() / 127 > 65504:
        raise UnsupportedModelError(f"{name}: has values beyond what a float16 scale can hold; use --precision bf16")
    scale = (top / np.float32(127)).astype(np.float16)
    return np.clip(np.rint(rows * _inverse(scale)[:, None]), -127, 127).astype(np.int8), scale


def _symmetric8(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    scale = (np.abs(x).max(axis=1) / np.float32(127)).astype(np.float16)
    codes = np.clip(np.rint(x * _inverse(scale)[:, None]), -128, 127) + 128
    return codes.astype(np.uint8), scale


def _least_squares4(
    x: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float16], NDArray[np.float16]]:
    """For some scales: codes, then the best scale and minimum for them, then codes again. The best stays."""
    bottom, span = x.min(axis=1), np.ptp(x, axis=1)
    scale, low = (span / np.float32(15)).astype(np.float16), bottom.astype(np.float16)
    best = [_codes4(x, scale, low), scale, low]
    error = _error(x, *best)
    for width in _WIDTHS:
        candidate = (span / (np.float32(15) - width)).astype(np.float32)
        slack = (span - 15 * candidate) / 2
        codes = np.clip(np.rint((x - (bottom + slack)[:, None]) * _inverse(candidate)[:, None]), 0, 15)
        scale, low = _fit(x, codes)
        codes = _codes4(x, scale, low)
        trial = _error(x, codes, scale, low)
        better = trial < error
        error = np.where(better, trial, error)
        best = [
            np.where(better[:, None], codes, best[0]),
            np.where(better, scale, best[1]),
            np.where(better, low, best[2]),
        ]
    return best[0].astype(np.uint8), best[1], best[2]


def _fit(x: NDArray[np.float32], codes: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Regression of each block's values on its codes, rounded to float16; no scale is negative."""
    mean_x, mean_c = x.mean(axis=1), codes.mean(axis=1)
    variance = np.einsum("ij,ij->i", codes, codes) / BLOCK - mean_c * mean_c
    covariance = np.einsum("ij,ij->i", codes, x) / BLOCK - mean_c * mean_x
    scale = np.divide(covariance, variance, out=np.zeros_like(mean_x), where=variance > 1e-6)
    scale = np.clip(scale, 0, 65504).astype(np.float16)
    low = np.clip(mean_x - scale.astype(np.float32) * mean_c, -65504, 65504).astype(np.float16)
    return scale, low


def _codes4(x: NDArray[np.float32], scale: NDArray[np.float16], low: NDArray[np.float16]) -> NDArray[np.float32]:
    codes = np.rint((x - low.astype(np.float32)[:, None]) * _inverse(scale)[:, None])
    return np.asarray(np.clip(codes, 0, 15))


def _error(
    x: NDArray[np.float32], codes: NDArray[np.float32], scale: NDArray[np.float16], low: NDArray[np.float16]
) -> NDArray[np.float32]:
    difference = codes * scale.astype(np.float32)[:, None] + low.astype(np.float32)[:, None] - x
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


def _inverse(scale: NDArray[np.floating]) -> NDArray[np.float32]:
    wide = scale.astype(np.float32)
    return np.asarray(np.divide(1, wide, out=np.zeros_like(wide), where=wide > 0))
