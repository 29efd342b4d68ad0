"""Random packed weights, and inputs that are hard to round."""

from __future__ import annotations

from typing import Any

import numpy as np

from foredraft_plugins.block_linear.packing import pack


def random_packed(rng: np.random.Generator, n: int, k: int, bits: int, has_min: bool) -> dict[str, Any]:
    codes = rng.integers(0, 2**bits, (n, k), dtype=np.uint8)
    scale = rng.normal(0, 0.05, (n, k // 32)).astype(np.float16)
    minima = rng.normal(0, 0.3, (n, k // 32)).astype(np.float16) if has_min else None
    return pack(codes, scale, minima, bits)


def activations(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers over several orders of magnitude, with an outlier and a block of zeros in every row."""
    x = rng.normal(0, 1, shape) * np.exp(rng.normal(0, 1, shape))
    x[..., 3] = 90
    if shape[-1] >= 64:
        x[..., 32:64] = 0
    return x.astype(np.float32)
