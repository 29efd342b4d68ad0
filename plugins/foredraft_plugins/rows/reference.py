"""What ``foredraft::RMSNorm``, ``AddRMSNorm`` and ``SwiGLU`` compute, in plain numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["add_rms_norm", "rms_norm", "swiglu"]

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


def rms_norm(x: Float32, weight: Float32, epsilon: float) -> Float64:
    """x f32 [..., D], weight f32 [D] -> x / sqrt(mean(x^2) + epsilon) * weight, f64 [..., D]."""
    wide = x.astype(np.float64)
    normed: Float64 = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * weight
    return normed


def add_rms_norm(x: Float32, residual: Float32, weight: Float32, epsilon: float) -> tuple[Float64, Float32]:
    """x, residual f32 [..., D], weight f32 [D] -> (rms_norm(x + residual), x + residual), the latter rounded to f32."""
    total = x + residual
    return rms_norm(total, weight, epsilon), total


def swiglu(gate_up: Float32) -> Float64:
    """gate_up f32 [..., 2 F] -> silu(first half) * second half, f64 [..., F]."""
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=-1)
    gated: Float64 = gate / (1 + np.exp(-gate)) * up
    return gated
