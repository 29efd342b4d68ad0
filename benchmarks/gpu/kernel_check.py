"""The attention kernels on a GPU against their meaning in numpy, and how long they take there.

    python benchmarks/gpu/kernel_check.py

compiles the kernels for the first GPU and launches them as the TensorRT plugin does, through `driver.Kernels`; TensorRT
takes no part, so any GPU will do that the kernels compile for. Forwards are captured in a CUDA graph, which is what an
engine replays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from foredraft_plugins.tree_attention import reference
from foredraft_plugins.tree_attention.gpu.compile import compile_images
from foredraft_plugins.tree_attention.gpu.driver import Kernels, call, device_sm
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, PluginError
from foredraft_plugins.tree_attention.gpu.launches import Buffers, attention, row_copy, workspace_size

NUMPY = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
TOLERANCE = {"fp16": 2e-3, "bf16": 1.6e-2}
"""Of values around 1: rotated queries and keys, weights and results are each rounded, to 2^-11 or 2^-8."""
WORDS, ANGLES, REPEATS = 8, 4096, 50
_ORDERED = 0
"""A stream that waits for the copies, which may still be under way when they return."""

SHAPES = (
    AttentionShape(9, 3, 64, 64),
    AttentionShape(32, 32, 128, 128),
    AttentionShape(32, 8, 128, 64),
    AttentionShape(8, 2, 80, 32),
    AttentionShape(6, 2, 96, 0),
    AttentionShape(4, 1, 32, 32),
)
FORWARDS = (
    (1, 0, 256),
    (1, 1500, 2048),
    (8, 1500, 2048),
    (33, 700, 1000),
    (64, 0, 512),
    (128, 60, 512),
    (256, 700, 1024),
)
"""T, n_past, S. The nodes of the first four are spread over holes."""


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs in float32, already rounded to `dtype`: see `launches.Buffers`."""

    shape: AttentionShape
    dtype: str
    n_past: int
    arrays: dict[str, np.ndarray]

    @property
    def scale(self) -> float:
        return float(np.float32(self.shape.head_dim**-0.5))

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it, without holes."""
        chain = self.n_past + np.arange(len(self.arrays["qkv"]))
        return np.array_equal(self.arrays["positions"], chain) and np.array_equal(self.arrays["slots"], chain)

    def expected(self) -> np.ndarray:
        a, shape = self.arrays, self.shape
        key, value = a["key"].copy(), a["value"].copy()
        return reference.tree_attention(
            *(a["qkv"], key, value, a["slots"], a["positions"], self.n_past, a["mask"], a["cos"], a["sin"]),
            num_heads=shape.num_heads,
            kv_num_heads=shape.kv_num_heads,
            head_dim=shape.head_dim,
            scale=self.scale,
        )


def check(report: Callable[[str], None], driver: Any = None) -> bool:
    """Reports a line for each shape, dtype and forward; whether all of them agree.

    Raises PluginError (a ValueError) if there is no GPU, or kernels cannot be compiled, loaded or launched.
    """
    if driver is None:
        from cuda.bindings import driver
    good = True
    with _context(driver):
        sm = device_sm(driver)
        for shape in SHAPES:
            for dtype in ("fp16", "bf16") if sm >= 80 else ("fp16",):
                kernels = Kernels(driver, compile_images(shape, dtype, [sm]).of_device(sm))
                for tokens, n_past, cache_rows in FORWARDS:
                    case = make_case(shape, dtype, tokens, n_past, cache_rows)
                    good &= _check_case(driver, kernels, case, f"sm{sm} {dtype}, {shape}", report)
                good &= _check_copy(driver, kernels, report)
                kernels.unload()
    return good


def make_case(shape: AttentionShape, dtype: str, tokens: int, n_past: int, cache_rows: int) -> Case:
    """A random tree, parents before children, in the window from n_past on; a chain if it is long."""
    rng = np.random.default_rng(tokens)
    window = min(cache_rows - n_past, 32 * WORDS)
    ahead = np.sort(rng.permutation(window)[:tokens]) if tokens < 64 else np.arange(tokens)
    parents = [int(rng.integers(max(-1, i - 4), i)) if tokens < 64 else i - 1 for i in range(tokens)]
    seen = np.zeros((tokens, 32 * WORDS), bool)
    for node, parent in enumerate(parents):
        seen[node] = seen[parent] if parent >= 0 else False
        seen[node, ahead[node]] = True
    half = shape.rotary_dim // 2
    angles = np.arange(ANGLES)[:, None] * 10000.0 ** (-np.arange(half) / max(half, 1))

    def normal(*size: int) -> np.ndarray:
        return rng.normal(0, 1, size).astype(NUMPY[dtype]).astype(np.float32)

    key, value = normal(2, cache_rows, shape.kv_num_heads, shape.head_dim)
    arrays = {
        "qkv": normal(tokens, shape.qkv_width),
        "key": key,
        "value": value,
        "slots": (n_past + ahead).astype(np.int32),
        "positions": (n_past + seen.sum(1) - 1).astype(np.int32),
        "n_past": np.array([n_past], np.int32),
        "mask": np.packbits(seen, axis=1, bitorder="little").view(np.int32),
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
    }
    return Case(shape, dtype, n_past, arrays)


def _check_case(driver: Any, kernels: Kernels, case: Case, title: str, report: Callable[[str], None]) -> bool:
    out, microseconds = _run(driver, kernels, case)
    worst = float(np.abs(out - case.expected()).max())
    last = {name: case.arrays[name][-1:] for name in ("qkv", "slots", "positions", "mask")}
    if case.is_chain:
        # The others are text then.
        last |= {"n_past": last["slots"], "mask": np.eye(1, WORDS, dtype=np.int32)}
    same = True
    if len(out) <= 64:
        # The others' rows must be in the cache, so the whole forward runs first, in the same memory.
        alone, _ = _run(driver, kernels, replace(case, arrays=case.arrays | last), before=case)
        same = np.array_equal(alone[0], out[-1])
    tokens, cache_rows = len(out), len(case.arrays["key"])
    good = worst <= TOLERANCE[case.dtype] and same
    bits = "same bits alone" if same else "OTHER BITS ALONE"
    report(
        f"{'ok  ' if good else 'FAIL'} {title}: T {tokens}, n_past {case.n_past}, S {cache_rows}: "
        f"largest difference {worst:.1e}, {microseconds:.1f} us{f', {bits}' if tokens <= 64 else ''}"
    )
    return good


def _run(driver: Any, kernels: Kernels, case: Case, before: Case | None = None) -> tuple[np.ndarray, float]:
    """The output f32 [T, HQ HD], and microseconds of one forward in a graph of `REPEATS`."""
    dtype, shape = NUMPY[case.dtype], case.shape
    cache_rows = len(case.arrays["key"])
    with _Memory(driver) as memory:
        caches = {name: memory.put(case.arrays[name].astype(dtype)) for name in ("key", "value")}

        def launches(given: Case) -> tuple[list[Any], np.ndarray, int]:
            tokens = len(given.arrays["qkv"])
            others = {name: array for name, array in given.arrays.items() if name not in caches}
            at = {n: memory.put(array.astype(dtype) if n == "qkv" else array) for n, array in others.items()}
            out = np.zeros((tokens, shape.width), dtype)
            at |= caches | {"out": memory.put(out), "workspace": memory.take(workspace_size(shape, tokens, cache_rows))}
            size = {"tokens": tokens, "cache_rows": cache_rows, "words": WORDS, "angles": ANGLES}
            return attention(shape, Buffers(**at), **size, scale=case.scale), out, at["out"]

        stream = call(driver, "cuStreamCreate", _ORDERED, about="stream")
        for launch in launches(before)[0] if before else ():
            kernels.launch(launch, stream)
        forward, out, address = launches(case)
        for launch in forward:
            kernels.launch(launch, stream)
        microseconds = _time(driver, stream, lambda: [kernels.launch(launch, stream) for launch in forward])
        memory.get(out, address)
        call(driver, "cuStreamDestroy", stream, about="stream")
    return out.astype(np.float32), microseconds


def _time(driver: Any, stream: Any, forward: Callable[[], object]) -> float:
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    call(driver, "cuStreamBeginCapture", stream, mode, about="capture")
    for _ in range(REPEATS):
        forward()
    captured = call(driver, "cuStreamEndCapture", stream, about="capture")
    graph = call(driver, "cuGraphInstantiate", captured, 0, about="graph")
    start, end = (call(driver, "cuEventCreate", 0, about="event") for _ in range(2))
    call(driver, "cuGraphLaunch", graph, stream, about="warming up")
    call(driver, "cuEventRecord", start, stream, about="event")
    call(driver, "cuGraphLaunch", graph, stream, about="timing")
    call(driver, "cuEventRecord", end, stream, about="event")
    call(driver, "cuStreamSynchronize", stream, about="the kernels")
    milliseconds = call(driver, "cuEventElapsedTime", start, end, about="event")
    for event in (start, end):
        call(driver, "cuEventDestroy", event, about="event")
    call(driver, "cuGraphExecDestroy", graph, about="graph")
    call(driver, "cuGraphDestroy", captured, about="graph")
    return 1000 * float(milliseconds) / REPEATS


def _check_copy(driver: Any, kernels: Kernels, report: Callable[[str], None]) -> bool:
    """Rows of three planes trade places within a buffer."""
    rng = np.random.default_rng(0)
    cache = rng.integers(0, 2**31, (3, 100, 192)).astype(np.int32)
    source, target = (rng.permutation(100)[:64].astype(np.int32) for _ in range(2))
    wanted = cache.copy()
    wanted[:, target] = cache[:, source]
    with _Memory(driver) as memory:
        at = memory.put(cache)
        tables = {"source_rows": memory.put(source), "target_rows": memory.put(target)}
        stride = cache[0].size
        strides = {"source_stride": stride, "target_stride": stride}
        stream = call(driver, "cuStreamCreate", _ORDERED, about="stream")
        kernels.launch(row_copy(at, at, rows=64, width=192, planes=3, **tables, **strides), stream)
        call(driver, "cuStreamSynchronize", stream, about="copy-rows")
        memory.get(cache, at)
        call(driver, "cuStreamDestroy", stream, about="stream")
    good = np.array_equal(cache, wanted)
    report(f"{'ok  ' if good else 'FAIL'} copy-rows")
    return good


class _Memory:
    """Device memory that goes when this is left."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._taken: list[int] = []

    def __enter__(self) -> _Memory:
        return self

    def __exit__(self, *error: object) -> None:
        for address in self._taken:
            self._driver.cuMemFree(address)

    def take(self, size: int) -> int:
        self._taken.append(int(call(self._driver, "cuMemAlloc", max(size, 16), about=f"{size} bytes of GPU memory")))
        return self._taken[-1]

    def put(self, array: np.ndarray) -> int:
        data = np.ascontiguousarray(array)
        address = self.take(data.nbytes)
        if data.nbytes:
            call(self._driver, "cuMemcpyHtoD", address, data.ctypes.data, data.nbytes, about="copy to the GPU")
        return address

    def get(self, array: np.ndarray, address: int) -> None:
        """Fills `array`."""
        call(self._driver, "cuMemcpyDtoH", array.ctypes.data, address, array.nbytes, about="copy from the GPU")


@contextmanager
def _context(driver: Any) -> Iterator[None]:
    """The first GPU's primary context, which other libraries share."""
    try:
        call(driver, "cuInit", 0, about="no GPU that CUDA can use")
    except RuntimeError as error:
        raise PluginError(f"no CUDA driver: {error}") from error
    device = call(driver, "cuDeviceGet", 0, about="the first GPU")
    context = call(driver, "cuDevicePrimaryCtxRetain", device, about="the first GPU")
    call(driver, "cuCtxSetCurrent", context, about="the first GPU")
    try:
        yield
    finally:
        driver.cuDevicePrimaryCtxRelease(device)


if __name__ == "__main__":
    try:
        sys.exit(0 if check(print) else 1)
    except PluginError as failed:
        print(f"not run: {failed}")
