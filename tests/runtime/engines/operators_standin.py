"""The operators of our TensorRT graphs in numpy: computed in double precision, results in the graph's own type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx

_CASTS = {
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    onnx.TensorProto.INT32: np.int32,
    onnx.TensorProto.INT64: np.int64,
    onnx.TensorProto.BOOL: np.bool_,
}
Attributes = dict[str, Any]
Array = np.ndarray


def _gemm(a: Attributes, x: Array, y: Array) -> Array:
    wide = y.astype(np.float64, copy=False)
    return (x.astype(np.float64) @ (wide.T if a.get("transB") else wide)).astype(x.dtype)


def _norm(a: Attributes, x: Array, weight: Array) -> Array:
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide * wide).mean(-1, keepdims=True) + a["epsilon"])
    return (wide * scale * weight.astype(np.float64)).astype(x.dtype)


def _split(a: Attributes, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    axis = a.get("axis", 0)
    cuts = a["num_outputs"] if sizes is None else np.cumsum(sizes)[:-1]
    return tuple(np.split(x, cuts, axis))


def _top_k(a: Attributes, x: Array, k: Array) -> tuple[Array, Array]:
    order = np.argsort(-x, axis=-1, kind="stable")[..., : int(k[0])]
    return np.take_along_axis(x, order, -1), order.astype(np.int64)


def _dequantize(a: Attributes, codes: Array, scale: Array) -> Array:
    wide = codes.astype(np.float32)
    if block := a.get("block_size"):
        scale = np.repeat(scale, block, a["axis"])
    elif scale.ndim == 1:
        scale = scale[:, None]
    return (wide * scale.astype(np.float32)).astype(scale.dtype)


def _reshape(a: Attributes, x: Array, shape: Array) -> Array:
    return x.reshape([x.shape[place] if size == 0 else int(size) for place, size in enumerate(shape)])


OPERATORS: dict[str, Any] = {
    "Add": lambda a, x, y: x + y,
    "Cast": lambda a, x: x.astype(_CASTS[a["to"]]),
    "Concat": lambda a, *x: np.concatenate(x, a["axis"]),
    "DequantizeLinear": _dequantize,
    "Gather": lambda a, x, index: np.take(x, index, a.get("axis", 0)),
    "Gemm": _gemm,
    "Mul": lambda a, x, y: x * y,
    "RMSNormalization": _norm,
    "Reshape": _reshape,
    "Sigmoid": lambda a, x: (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype),
    "Split": _split,
    "TopK": _top_k,
    "Transpose": lambda a, x: x.transpose(a["perm"]),
}
"""By type: ``operator(attributes, *inputs)``. What is not here is left to ONNX's reference implementation."""
