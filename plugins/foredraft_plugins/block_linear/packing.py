"""The layout of packed weights, which only this folder knows (the kernels read it: kernel.h).

A weight [N, K] in blocks of 32 along K is ``weight[n, k] = scale[n, k // 32] * code[n, k] + min[n, k // 32]``, with
codes of 4 or 8 bits and fp16 scales and minima. Without minima, ``min = -2**(bits - 1) * scale``. So the numbers of a
GGUF file are taken over exactly: Q8_0 is code + 128 without min, Q4_1 is (d, m) as (scale, min), Q4_0 is without min.

Packed, 32 rows of the weight (columns of the output) stand side by side, and axis 0 counts these tiles:

    codes  u8  [ceil(N / 32), K / 32, 128 * bits]  for each run of 4 k: 32 columns x 4 codes; with 4 bits, an odd run is
                                                   the high nibbles of the even one before it
    scale  f16 [ceil(N / 32), K / 32, 32]
    min    f16 [ceil(N / 32), K / 32, 32]          only if there are minima

So rows [a:b) with a and b multiples of TILE pack on their own: concatenated along axis 0, the pieces are the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK", "TILE", "dequantize", "pack", "packed_shapes", "unpack"]

BLOCK = 32
"""Weights along K that share a scale and a minimum."""

TILE = 32
"""Rows that are packed side by side; what is missing in the last tile is filled with zeros."""

UInt8 = npt.NDArray[np.uint8]
Float16 = npt.NDArray[np.float16]
Float32 = npt.NDArray[np.float32]


def packed_shapes(n: int, k: int, bits: int, has_min: bool) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and dtypes of the packed arrays of a weight [n, k]: ``codes``, ``scale`` and, if has_min, ``min``.

    Raises:
        ValueError: bits is not 4 or 8, or k is not a multiple of BLOCK.
    """
    _check(k, bits)
    tiles, blocks = -(-n // TILE), k // BLOCK
    shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
        "codes": ((tiles, blocks, 4 * TILE * bits), np.dtype(np.uint8)),
        "scale": ((tiles, blocks, TILE), np.dtype(np.float16)),
    }
    if has_min:
        shapes["min"] = ((tiles, blocks, TILE), np.dtype(np.float16))
    return shapes


def pack(codes: UInt8, scale: Float16, min: Float16 | None, bits: int) -> dict[str, npt.NDArray[Any]]:
    """Codes u8 [N, K] (below 2**bits), scale and min f16 [N, K / 32] -> the arrays that `packed_shapes` describes.

    Raises:
        ValueError: bits is not 4 or 8, K is not a multiple of BLOCK, a shape does not fit, or a code has more bits.
    """
    n, k = codes.shape
    _check(k, bits)
    for name, array in (("scale", scale), ("min", min)):
        if array is not None and array.shape != (n, k // BLOCK):
            raise ValueError(f"{name} has shape {array.shape}, expected {(n, k // BLOCK)} for codes {codes.shape}")
    if bits == 4 and codes.size and codes.max() > 15:
        raise ValueError(f"a code is {codes.max()}, expected at most 15 with 4 bits")
    runs = _pad(codes).reshape(-1, TILE, k // BLOCK, BLOCK // 4, 4).transpose(0, 2, 3, 1, 4)
    if bits == 4:
        runs = runs[:, :, 0::2] | (runs[:, :, 1::2] << 4)
    packed: dict[str, npt.NDArray[Any]] = {
        "codes": np.ascontiguousarray(runs).reshape(runs.shape[0], k // BLOCK, 4 * TILE * bits),
        "scale": _pack_blocks(scale),
    }
    if min is not None:
        packed["min"] = _pack_blocks(min)
    return packed


def unpack(packed: dict[str, npt.NDArray[Any]], n: int, bits: int) -> tuple[UInt8, Float16, Float16 | None]:
    """The inverse of `pack` for a weight of n rows: codes u8 [n, K], scale f16 [n, K / 32], min (the same) or None."""
    tiles, blocks, _ = packed["codes"].shape
    runs = packed["codes"].reshape(tiles, blocks, -1, TILE, 4)
    if bits == 4:
        runs = np.stack([runs & 15, runs >> 4], axis=3).reshape(tiles, blocks, 2 * runs.shape[2], TILE, 4)
    codes = runs.transpose(0, 3, 1, 2, 4).reshape(tiles * TILE, blocks * BLOCK)[:n]
    min = packed.get("min")
    return codes, _unpack_blocks(packed["scale"], n), None if min is None else _unpack_blocks(min, n)


def dequantize(codes: UInt8, scale: Float16, min: Float16 | None, bits: int) -> Float32:
    """Codes u8 [N, K], scale and min f16 [N, K / 32] -> the weight f32 [N, K], bitwise what `BlockEmbedding` gives.

    Raises:
        ValueError: bits is not 4 or 8, or K is not a multiple of BLOCK.
    """
    n, k = codes.shape
    _check(k, bits)
    blocks = codes.reshape(n, k // BLOCK, BLOCK).astype(np.float32)
    wide = scale.astype(np.float32)[..., None]
    lowest = wide * np.float32(-(2 ** (bits - 1))) if min is None else min.astype(np.float32)[..., None]
    return (wide * blocks + lowest).reshape(n, k)


def _check(k: int, bits: int) -> None:
    if bits not in (4, 8):
        raise ValueError(f"bits is {bits}, expected 4 or 8")
    if k % BLOCK:
        raise ValueError(f"K is {k}, expected a multiple of {BLOCK}")


def _pad(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    missing = -len(rows) % TILE
    return np.pad(rows, ((0, missing), (0, 0))) if missing else rows


def _pack_blocks(array: Float16) -> Float16:
    """[N, K / 32] -> [tiles, K / 32, TILE]."""
    tiles = _pad(array.astype(np.float16, copy=False)).reshape(-1, TILE, array.shape[1])
    return np.ascontiguousarray(tiles.transpose(0, 2, 1))


def _unpack_blocks(array: Float16, n: int) -> Float16:
    """[tiles, K / 32, TILE] -> [n, K / 32]."""
    return array.transpose(0, 2, 1).reshape(-1, array.shape[1])[:n]
