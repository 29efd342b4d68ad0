"""What ``foredraft::TreeAttention`` computes, in plain numpy, on the cache of the segment contract.

And the kernel's own cache layout, which interleaves the keys of 16 slots: one load holds one element of 16 keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = [
    "SLOTS_PER_BLOCK",
    "interleave_keys",
    "interleave_values",
    "rotate",
    "separate_keys",
    "separate_values",
    "tree_attention",
    "visible_slots",
]

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]

SLOTS_PER_BLOCK = 16
"""Slots whose keys are interleaved; the number of slots of a cache is a multiple of it."""


def interleave_keys(key: Float32) -> Float32:
    """Keys [S, HK, HD] -> the kernel's [HK, S / 16, HD, 16]."""
    slots, heads, dim = key.shape
    blocks = key.reshape(slots // SLOTS_PER_BLOCK, SLOTS_PER_BLOCK, heads, dim)
    return np.ascontiguousarray(blocks.transpose(2, 0, 3, 1))


def separate_keys(key: Float32) -> Float32:
    """The inverse of `interleave_keys`: [HK, S / 16, HD, 16] -> [S, HK, HD]."""
    heads, blocks, dim, lanes = key.shape
    return np.ascontiguousarray(key.transpose(1, 3, 0, 2).reshape(blocks * lanes, heads, dim))


def interleave_values(value: Float32) -> Float32:
    """Values [S, HK, HD] -> the kernel's [HK, S, HD]."""
    return np.ascontiguousarray(value.swapaxes(0, 1))


def separate_values(value: Float32) -> Float32:
    """The inverse of `interleave_values`: [HK, S, HD] -> [S, HK, HD]."""
    return np.ascontiguousarray(value.swapaxes(0, 1))


def rotate(x: Float32, cos: Float32, sin: Float32) -> Float64:
    """x [T, heads, HD] by the angles of cos, sin [T, R / 2]: pairs (j, j + R / 2) turn, elements from R on pass."""
    half = cos.shape[1]
    wide, c, s = x.astype(np.float64), cos[:, None], sin[:, None]
    first, second = wide[..., :half], wide[..., half : 2 * half]
    return np.concatenate([first * c - second * s, second * c + first * s, wide[..., 2 * half :]], -1)


def visible_slots(n_past: int, mask: Int32, slots: int) -> npt.NDArray[np.bool_]:
    """mask i32 [T, W] -> bool [T, slots]: slots below n_past, and n_past + 32 w + j where bit j of word w is set."""
    bits = np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little")[:, : slots - n_past].astype(bool)
    visible = np.zeros((len(mask), slots), bool)
    visible[:, :n_past] = True
    visible[:, n_past : n_past + bits.shape[1]] = bits
    return visible


def tree_attention(
    qkv: Float32,
    key: Float32,
    value: Float32,
    slots: Int32,
    positions: Int32,
    n_past: int,
    mask: Int32,
    cos: Float32,
    sin: Float32,
    *,
    num_heads: int,
    kv_num_heads: int,
    head_dim: int,
    scale: float,
) -> Float64:
    """Rotates queries and keys, writes keys and values to their slots IN PLACE, and attends over the visible slots.

    qkv f32 [T, (H + 2 HK) HD]; key, value f32 [S, HK, HD]; slots, positions i32 [T]; mask i32 [T, W] (see
    `visible_slots`); cos, sin f32 [C, R / 2]. Returns f64 [T, H HD]; 0 for a token that sees nothing.
    """
    heads = qkv.reshape(len(qkv), num_heads + 2 * kv_num_heads, head_dim)
    query, new_key, new_value = np.split(heads, [num_heads, num_heads + kv_num_heads], axis=1)
    angles = cos[positions], sin[positions]
    rotated = rotate(query, *angles)
    key[slots], value[slots] = rotate(new_key, *angles), new_value
    groups = np.repeat(np.arange(kv_num_heads), num_heads // kv_num_heads)
    scores = np.einsum("thd,shd->ths", rotated, key.astype(np.float64)[:, groups]) * scale
    visible = visible_slots(n_past, mask, len(key))[:, None]
    scores = np.where(visible, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    mixed: Float64 = np.einsum(
        "ths,shd->thd", weights / np.where(total > 0, total, 1), value[:, groups].astype(np.float64)
    )
    return mixed.reshape(len(qkv), num_heads * head_dim)
