"""What ``foredraft::DenseLinear`` computes, in plain numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["dense_linear"]


def dense_linear(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """x f32 [T, K] times the transpose of w f32 [N, K] -> f64 [T, N], without the rounding of the sums."""
    return x.astype(np.float64) @ w.astype(np.float64).T
