"""Random calls of TreeAttention, on the contract's cache [S, HK, HD]."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from foredraft_plugins.tree_attention import reference

from .session import Operator

INPUTS = {
    "qkv": "FLOAT T A",
    "key": "FLOAT HK B HD L",
    "value": "FLOAT HK S HD",
    "slots": "INT32 T",
    "positions": "INT32 T",
    "n_past": "INT32 1",
    "mask": "INT32 T W",
    "cos": "FLOAT C R",
    "sin": "FLOAT C R",
}
POSITIONS = 512


@dataclass(frozen=True)
class Shape:
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    rotary_dim: int = 64

    @property
    def scale(self) -> float:
        return float(np.float32(self.head_dim**-0.5))

    @property
    def qkv_width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    def tables(self) -> dict[str, np.ndarray]:
        inverse = 10000.0 ** (-np.arange(self.rotary_dim // 2) / max(self.rotary_dim // 2, 1))
        angles = np.arange(POSITIONS)[:, None] * inverse
        return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}

    def cache(self, rng: np.random.Generator, slots: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values [S, HK, HD] full of stale finite rows."""
        key, value = rng.normal(0, 3, (2, slots, self.kv_heads, self.head_dim)).astype(np.float32)
        return key, value


@functools.cache
def attention(shape: Shape, threads: int = 1) -> Operator:
    return Operator(
        "TreeAttention",
        INPUTS,
        threads=threads,
        num_heads=shape.heads,
        kv_num_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rotary_dim=shape.rotary_dim,
        scale=shape.scale,
    )


def attend(
    shape: Shape,
    qkv: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    slots: np.ndarray,
    positions: np.ndarray,
    n_past: int,
    mask: np.ndarray,
    threads: int = 1,
) -> np.ndarray:
    """Runs the operator; key and value [S, HK, HD] are updated in place, as by `reference.tree_attention`."""
    kernel_key, kernel_value = reference.interleave_keys(key), reference.interleave_values(value)
    out = attention(shape, threads)(
        qkv=qkv,
        key=kernel_key,
        value=kernel_value,
        slots=np.asarray(slots, np.int32),
        positions=np.asarray(positions, np.int32),
        n_past=np.array([n_past], np.int32),
        mask=mask,
        **shape.tables(),
    )
    key[:], value[:] = reference.separate_keys(kernel_key), reference.separate_values(kernel_value)
    return out


def mask_of(visible: list[set[int]], n_past: int, words: int = 8) -> np.ndarray:
    """For each token the slots from n_past on that it sees -> mask i32 [T, words]."""
    mask = np.zeros((len(visible), words), np.uint32)
    for token, slots in enumerate(visible):
        for slot in slots:
            mask[token, (slot - n_past) // 32] |= np.uint32(1 << (slot - n_past) % 32)
    return mask.view(np.int32)


@dataclass(frozen=True)
class Tree:
    """Nodes at ascending slots from n_past on, parents before children; parent -1 is the committed text."""

    n_past: int
    slots: list[int]
    parents: list[int]

    def path(self, node: int) -> list[int]:
        """The nodes from the root to `node`, itself included."""
        return [*self.path(self.parents[node]), node] if node >= 0 else []

    def visible(self) -> list[set[int]]:
        return [{self.slots[n] for n in self.path(node)} for node in range(len(self.slots))]

    def positions(self) -> list[int]:
        return [self.n_past + len(self.path(node)) - 1 for node in range(len(self.slots))]


def random_tree(rng: np.random.Generator, n_past: int, nodes: int, window: int) -> Tree:
    slots = sorted(rng.choice(window, nodes, replace=False) + n_past)
    return Tree(n_past, [int(s) for s in slots], [int(rng.integers(max(-1, i - 4), i)) for i in range(nodes)])
