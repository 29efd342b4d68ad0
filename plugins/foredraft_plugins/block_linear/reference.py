"""What ``foredraft::BlockLinear`` and ``foredraft::BlockEmbedding`` compute, in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from foredraft_plugins.block_linear.packing import BLOCK, dequantize, unpack

__all__ = ["block_embedding", "block_linear", "round_activations"]

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

SMALLEST_ACTIVATION = np.float32(1e-30)
"""Blocks of activations whose magnitude stays below this count as zeros."""


def round_activations(x: Float32) -> Float32:
    """x [T, K] -> the activations that the integer dot products see: multiples of absmax / 127 of each row and block of
    32, rounded to the nearest, ties to even."""
    blocks = x.reshape(len(x), -1, BLOCK)
    magnitude = np.abs(blocks).max(-1, keepdims=True)
    seen = magnitude >= SMALLEST_ACTIVATION
    codes = np.rint(blocks * np.divide(np.float32(127), magnitude, where=seen, out=np.zeros_like(magnitude)))
    rounded: Float32 = codes * np.where(seen, magnitude / np.float32(127), np.float32(0))
    return rounded.reshape(x.shape)


def block_linear(x: Float32, packed: dict[str, npt.NDArray[Any]], n: int, bits: int) -> Float64:
    """x f32 [T, K] times the transpose of a packed weight [n, K] -> f64 [T, n], without the rounding of the sums."""
    weight = dequantize(*unpack(packed, n, bits), bits)
    return round_activations(x).astype(np.float64) @ weight.astype(np.float64).T


def block_embedding(tokens: npt.NDArray[np.int32], packed: dict[str, npt.NDArray[Any]], n: int, bits: int) -> Float32:
    """Rows [T, K] of a packed weight [n, K] for tokens [T] in [0, n); exact."""
    return dequantize(*unpack(packed, n, bits), bits)[tokens]
