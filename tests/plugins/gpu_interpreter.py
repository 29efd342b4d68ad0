"""The GPU kernels under Triton's interpreter, launched as `launches` says, in memory with guards around every array.

The interpreter is chosen when Triton is imported, so all of this runs in a process of its own: see `Interpreter`.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from foredraft_plugins.tree_attention.gpu.images import AttentionShape
from foredraft_plugins.tree_attention.gpu.interface import SIGNATURES
from foredraft_plugins.tree_attention.gpu.launches import Buffers, Launch, attention, row_copy, workspace_size

NUMPY = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
GUARD = 256


@dataclass(frozen=True)
class Call:
    """Inputs of one node, as the reference takes them; dtype fp32 is for the tests alone."""

    shape: AttentionShape
    dtype: str
    qkv: np.ndarray
    key: np.ndarray
    value: np.ndarray
    slots: np.ndarray
    positions: np.ndarray
    n_past: int
    mask: np.ndarray
    cos: np.ndarray
    sin: np.ndarray
    scale: float


@dataclass(frozen=True)
class Result:
    """f32 out [T, HQ HD], key and value [S, HK, HD] after the call."""

    out: np.ndarray
    key: np.ndarray
    value: np.ndarray


class Interpreter:
    """A process in which Triton interprets. One after the other; a context manager."""

    def __enter__(self) -> Interpreter:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_choose_interpreter)
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    def attention(self, *calls: Call) -> list[Result]:
        """What each of the calls gives."""
        return list(self._pool.map(_attention, calls))

    def copy_rows(self, memory: np.ndarray, **arguments: int | np.ndarray) -> np.ndarray:
        """`memory` i32 after `row_copy` in it: arrays of rows in place of their addresses, word offsets for others."""
        return self._pool.submit(_copy_rows, memory, arguments).result()


def _choose_interpreter() -> None:
    os.environ["TRITON_INTERPRET"] = "1"


class _Memory:
    """Arrays with guards of NaN between them; what reads beyond an array gives NaN, what writes there is found out."""

    def __init__(self, size: int) -> None:
        self._bytes = np.full(size, 0xFF, np.uint8)
        self._start = int(self._bytes.ctypes.data)
        self._used = GUARD
        self._arrays: list[tuple[int, int]] = []

    def put(self, array: np.ndarray) -> int:
        """Its address."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start, self._used = self._used, self._used + -(-len(data) // GUARD) * GUARD + GUARD
        assert self._used <= len(self._bytes)
        self._bytes[start : start + len(data)] = data
        self._arrays.append((start, start + len(data)))
        return self._start + start

    def get(self, address: int, like: np.ndarray) -> np.ndarray:
        start = address - self._start
        return self._bytes[start : start + like.nbytes].view(like.dtype).reshape(like.shape).copy()

    def run(self, launch: Launch, recipe: Any, dtype: str) -> None:
        import torch

        names = {"i32": "int32", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
        room = torch.from_numpy(self._bytes)

        def argument(kind: str, value: float) -> Any:
            if not kind.startswith("*"):
                return value
            element = getattr(torch, names[kind[1:].replace("T", dtype)])
            # An empty tensor is a null pointer.
            return room[int(value) - self._start :].view(element) if value else torch.empty(0, dtype=element)

        kinds = SIGNATURES[launch.kernel].values()
        arguments = [argument(kind, value) for kind, value in zip(kinds, launch.args, strict=True)]
        recipe.function[launch.grid](*arguments, **recipe.constants)

    def check(self) -> None:
        """No guard was written to."""
        guards = np.ones(len(self._bytes), bool)
        for start, end in self._arrays:
            guards[start:end] = False
        assert (self._bytes[guards] == 0xFF).all(), "a kernel wrote outside its arrays"


def _attention(call: Call) -> Result:
    from foredraft_plugins.tree_attention.gpu.compile import recipes

    dtype = NUMPY[call.dtype]
    tokens, cache_rows = len(call.qkv), len(call.key)
    changed = {
        "out": np.full((tokens, call.shape.width), np.nan, dtype),
        "key": call.key.astype(dtype),
        "value": call.value.astype(dtype),
    }
    arrays = {
        **changed,
        "qkv": call.qkv.astype(dtype),
        "slots": call.slots.astype(np.int32),
        "positions": call.positions.astype(np.int32),
        "n_past": np.array([call.n_past], np.int32),
        "mask": call.mask,
        "cos": call.cos,
        "sin": call.sin,
        # Queries of 4 bytes, where an engine has 2.
        "workspace": np.full(workspace_size(call.shape, tokens, cache_rows) + 2 * changed["out"].size, 0xFF, np.uint8),
    }
    memory = _Memory(sum(array.nbytes + 3 * GUARD for array in arrays.values()))
    at = {name: memory.put(array) for name, array in arrays.items()}
    size = {"tokens": tokens, "cache_rows": cache_rows, "words": call.mask.shape[1], "angles": len(call.cos)}
    for launch in attention(call.shape, Buffers(**at), scale=call.scale, **size):
        recipe = recipes(call.shape, 89)[launch.kernel]
        if "UPCAST" in recipe.constants:
            recipe.constants["UPCAST"] = call.dtype == "bf16"
        memory.run(launch, recipe, call.dtype)
    memory.check()
    return Result(**{name: memory.get(at[name], array).astype(np.float32) for name, array in changed.items()})


def _copy_rows(memory: np.ndarray, arguments: dict[str, int | np.ndarray]) -> np.ndarray:
    from foredraft_plugins.tree_attention.gpu.compile import recipes

    tables = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    room = _Memory(memory.nbytes + sum(table.nbytes for table in tables.values()) + 9 * GUARD)
    start = room.put(memory)
    known = {name: room.put(table.astype(np.int32)) for name, table in tables.items()}
    places = {name: start + 4 * int(arguments[name]) for name in ("source", "target")}
    launch = row_copy(**{**arguments, **known, **places})
    room.run(launch, recipes(AttentionShape(1, 1, 32, 0), 89)["copy-rows"], "fp16")
    room.check()
    return room.get(start, memory)
