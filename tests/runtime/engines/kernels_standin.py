"""What our compiled kernels do, in numpy on the stand-in's memory. An image's content is JSON that says which it is."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np

from foredraft_plugins.tree_attention.gpu.images import AttentionShape, Image, Images
from foredraft_plugins.tree_attention.gpu.interface import HIDDEN_PARAMETERS, SIGNATURES
from foredraft_plugins.tree_attention.reference import rotate, visible_slots

View = Callable[[int, int], np.ndarray]
"""``view(address, nbytes)``: device memory as uint8."""
NUMPY = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
_CTYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


def images(shape: AttentionShape, dtype: str, sms: Sequence[int]) -> Images:
    """All kernels for all ``sms``, as the stand-in takes them."""
    return Images(
        shape,
        dtype,
        tuple(
            Image(name, sm, name, 0, 4, 32, 0, json.dumps({"name": name, "dtype": dtype, **asdict(shape)}).encode())
            for sm in sms
            for name in SIGNATURES
        ),
    )


@dataclass(frozen=True, slots=True)
class StandInKernel:
    name: str
    dtype: str
    shape: AttentionShape

    @classmethod
    def parse(cls, data: bytes) -> StandInKernel | None:
        """None for what is no image of this stand-in."""
        try:
            values = json.loads(data)
        except ValueError:
            return None
        return cls(values.pop("name"), values.pop("dtype"), AttentionShape(**values))

    @property
    def parameters(self) -> int:
        return len(SIGNATURES[self.name]) + HIDDEN_PARAMETERS

    def read(self, addresses: Any) -> dict[str, int | float]:
        """The arguments' values, as the driver reads them when a kernel is launched."""
        kinds = SIGNATURES[self.name].items()
        return {
            name: _CTYPES.get(kind, ctypes.c_uint64).from_address(address).value
            for (name, kind), address in zip(kinds, addresses, strict=False)
        }

    def run(self, view: View, grid: tuple[int, ...], values: dict[str, Any]) -> None:
        """Do it."""
        work = {"append": _append, "combine": _combine, "copy-rows": _copy_rows}.get(self.name, _attend)
        work(self, _Arrays(view), grid, values)


class _Arrays:
    def __init__(self, view: View) -> None:
        self._view = view

    def __call__(self, address: int, dtype: Any, *shape: int) -> np.ndarray:
        dtype = np.dtype(dtype)
        return self._view(address, int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


def _append(kernel: StandInKernel, at: _Arrays, grid: tuple[int, ...], v: dict[str, Any]) -> None:
    """Rotated keys and values to the caches' rows, rotated queries to the scratch memory."""
    shape, dtype, tokens = kernel.shape, NUMPY[kernel.dtype], grid[0]
    heads = grid[1]
    qkv = at(v["qkv"], dtype, tokens, heads, shape.head_dim).astype(np.float64)
    positions, slots = at(v["positions"], np.int32, tokens), at(v["slots"], np.int32, tokens)
    half = shape.rotary_dim // 2
    if half:
        angles = [at(v[table], np.float32, v["angles"], half)[positions] for table in ("cos", "sin")]
        turned = shape.num_heads + shape.kv_num_heads
        qkv[:, :turned] = rotate(qkv[:, :turned], *angles)
    query, key, value = np.split(qkv, [shape.num_heads, shape.num_heads + shape.kv_num_heads], axis=1)
    at(v["query"], dtype, *query.shape)[:] = query
    rows = (v["cache_rows"], shape.kv_num_heads, shape.head_dim)
    at(v["key"], dtype, *rows)[slots] = key
    at(v["value"], dtype, *rows)[slots] = value


def _attend(kernel: StandInKernel, at: _Arrays, grid: tuple[int, ...], v: dict[str, Any]) -> None:
    """Split or not: the whole result goes to ``partial`` (for ``combine`` to pass on), or to ``out``."""
    shape, dtype = kernel.shape, NUMPY[kernel.dtype]
    tokens, slots = v["tokens"], v["cache_rows"]
    n_past = int(at(v["n_past"], np.int32, 1)[0])
    mask = np.ascontiguousarray(at(v["mask"], np.int32, tokens, v["words"]))
    end = min(slots, n_past + _bits_used(mask))
    query = at(v["query"], dtype, tokens, shape.num_heads, shape.head_dim).astype(np.float64)
    rows = (end, shape.kv_num_heads, shape.head_dim)
    key, value = (np.repeat(at(v[name], dtype, *rows).astype(np.float64), shape.group, 1) for name in ("key", "value"))
    visible = visible_slots(n_past, mask, end)[:, None]
    scores = np.where(visible, np.einsum("thd,shd->ths", query, key) * v["scale"], -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    mixed = np.einsum("ths,shd->thd", weights / np.where(total > 0, total, 1), value)
    if kernel.name == "attend-decode":
        at(v["partial"], np.float32, *mixed.shape)[:] = mixed
    else:
        at(v["out"], dtype, *mixed.shape)[:] = mixed


def _bits_used(mask: np.ndarray) -> int:
    """The place of the highest bit that is set in any row, and one more."""
    used = np.flatnonzero(np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little").any(0))
    return int(used[-1]) + 1 if len(used) else 0


def _combine(kernel: StandInKernel, at: _Arrays, grid: tuple[int, ...], v: dict[str, Any]) -> None:
    shape = (v["tokens"], kernel.shape.num_heads, kernel.shape.head_dim)
    at(v["out"], NUMPY[kernel.dtype], *shape)[:] = at(v["partial"], np.float32, *shape)


def _copy_rows(kernel: StandInKernel, at: _Arrays, grid: tuple[int, ...], v: dict[str, Any]) -> None:
    """64 rows at a time, all read before any is written."""
    rows, width = v["rows"], v["width"]
    source_rows, target_rows = (
        at(v[name], np.int32, rows) if v[name] else np.arange(rows) for name in ("source_rows", "target_rows")
    )
    for plane in range(grid[1]):
        source = v["source"] + 4 * plane * v["source_stride"]
        target = v["target"] + 4 * plane * v["target_stride"]
        for start in range(0, rows, 64):
            part = slice(start, start + 64)
            held = at(source, np.uint32, int(source_rows[part].max()) + 1, width)[source_rows[part]]
            at(target, np.uint32, int(target_rows[part].max()) + 1, width)[target_rows[part]] = held
