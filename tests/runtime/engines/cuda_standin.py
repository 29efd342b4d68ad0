"""A stand-in for ``cuda.bindings.driver``: device memory is numpy, and work rests in its stream until waited for.

So whoever reads a result too early, or overwrites what a copy still needs, gets a wrong answer here every time, where a
GPU would now and then. Device addresses are no host addresses: touching one from the host fails.
"""

# ruff: noqa: N802 (names are the driver's own)

from __future__ import annotations

import ctypes
import enum
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.runtime.engines.kernels_standin import StandInKernel

_CONTEXT_IDS = itertools.count(1)
_FIRST = 0x7_0000_0000_0000
_PAGE = 1 << 21


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


class CUdevice_attribute(enum.IntEnum):  # noqa: N801 (the driver's own name)
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class CUstream_flags(enum.IntEnum):  # noqa: N801
    CU_STREAM_NON_BLOCKING = 1


class CUstreamCaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


class CUfunction_attribute(enum.IntEnum):  # noqa: N801
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


OK = CUresult.CUDA_SUCCESS
Work = Callable[[], None]


class Stream:
    """Work that was put in, and the part of it that is being captured."""

    def __init__(self) -> None:
        self.waiting: list[Work] = []
        self.captured: list[Work] | None = None


class CudaStandIn:
    """``calls`` counts calls by name, ``bytes`` what was copied; ``fail[name]`` is the code of its next calls."""

    CUresult = CUresult
    CUdevice_attribute = CUdevice_attribute
    CUstream_flags = CUstream_flags
    CUstreamCaptureMode = CUstreamCaptureMode
    CUfunction_attribute = CUfunction_attribute

    def __init__(self, sm: int = 89, devices: int = 1, memory: int = 1 << 32) -> None:
        self.sm, self.devices, self.memory = sm, devices, memory
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.launched: Counter[str] = Counter()
        self.fail: dict[str, CUresult] = {}
        self.taken = 0
        self.context = next(_CONTEXT_IDS)
        self._allocated: dict[int, np.ndarray] = {}
        self._starts: list[int] = []
        self._next = _FIRST
        self._pinned: dict[int, np.ndarray] = {}
        self._streams: dict[int, Stream] = {}
        self._graphs: dict[int, list[Work]] = {}
        self._functions: dict[int, StandInKernel] = {}
        self._handles = itertools.count(1000)

    def __getattribute__(self, name: str) -> Any:
        """Counts the driver's functions, and lets them fail on demand."""
        found = object.__getattribute__(self, name)
        if not name.startswith("cu"):
            return found
        self.calls[name] += 1
        if name in self.fail:
            code = self.fail[name]
            return lambda *arguments: (code, None)
        return found

    # What the numpy kernels and the TensorRT stand-in use.

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """Device memory as uint8; an address outside what was allocated is a bug of the caller."""
        place = bisect_right(self._starts, address) - 1
        start = self._starts[place] if place >= 0 else -1
        assert place >= 0 and start in self._allocated, f"{address:#x} is no device memory"
        buffer, offset = self._allocated[start], address - start
        assert offset + nbytes <= len(buffer), f"{nbytes} bytes at {address:#x} reach beyond their buffer"
        return buffer[offset : offset + nbytes]

    def put(self, stream: int, work: Work) -> None:
        """Work for a stream, or for the graph that is being captured from it."""
        chosen = self._streams[int(stream)]
        (chosen.waiting if chosen.captured is None else chosen.captured).append(work)

    # The driver's functions.

    def cuInit(self, flags: int) -> tuple[CUresult]:
        return (OK,)

    def cuDeviceGetCount(self) -> tuple[CUresult, int]:
        return OK, self.devices

    def cuDeviceGet(self, ordinal: int) -> tuple[CUresult, int]:
        return OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> tuple[CUresult, bytes]:
        return OK, b"Stand-in GPU" + bytes(8)

    def cuDeviceGetAttribute(self, attribute: CUdevice_attribute, device: int) -> tuple[CUresult, int]:
        return OK, self.sm // 10 if attribute.name.endswith("MAJOR") else self.sm % 10

    def cuDeviceTotalMem(self, device: int) -> tuple[CUresult, int]:
        return OK, self.memory

    def cuDriverGetVersion(self) -> tuple[CUresult, int]:
        return OK, 13000

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[CUresult, int]:
        return OK, self.context

    def cuCtxSetCurrent(self, context: int) -> tuple[CUresult]:
        return (OK,)

    def cuCtxGetCurrent(self) -> tuple[CUresult, int]:
        return OK, self.context

    def cuCtxGetId(self, context: int) -> tuple[CUresult, int]:
        return OK, self.context

    def cuCtxGetDevice(self) -> tuple[CUresult, int]:
        return OK, 0

    def cuMemGetInfo(self) -> tuple[CUresult, int, int]:
        return OK, self.memory - self.taken, self.memory

    def cuGetErrorName(self, code: CUresult) -> tuple[CUresult, bytes]:
        return OK, code.name.encode()

    def cuGetErrorString(self, code: CUresult) -> tuple[CUresult, bytes]:
        return OK, code.name.removeprefix("CUDA_ERROR_").replace("_", " ").lower().encode()

    def cuMemAlloc(self, size: int) -> tuple[CUresult, int | None]:
        if self.taken + size > self.memory:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        address, self._next = self._next, self._next + -(-size // _PAGE) * _PAGE + _PAGE
        # Not zeroes: whoever forgets to write something must see it.
        self._allocated[address] = np.full(size, 0xFF, np.uint8)
        self._starts.append(address)
        self.taken += size
        return OK, address

    def cuMemFree(self, address: int) -> tuple[CUresult]:
        for stream in self._streams.values():
            _do(stream)
        self.taken -= len(self._allocated.pop(address))
        return (OK,)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[CUresult, int]:
        memory = np.full(size, 0xFF, np.uint8)
        self._pinned[memory.ctypes.data] = memory
        return OK, memory.ctypes.data

    def cuMemFreeHost(self, address: int) -> tuple[CUresult]:
        del self._pinned[address]
        return (OK,)

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> tuple[CUresult]:
        self.put(stream, lambda: self.view(address, size).fill(value))
        return (OK,)

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[CUresult]:
        host = self._host(source, size)
        self.put(stream, lambda: self._copy("to device", self.view(target, size), host))
        return (OK,)

    def cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: int) -> tuple[CUresult]:
        host = self._host(target, size)
        self.put(stream, lambda: self._copy("to host", host, self.view(source, size)))
        return (OK,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[CUresult]:
        assert target + size <= source or source + size <= target, "the two overlap"
        self.put(stream, lambda: self._copy("on device", self.view(target, size), self.view(source, size)))
        return (OK,)

    def cuStreamCreate(self, flags: CUstream_flags) -> tuple[CUresult, int]:
        handle = next(self._handles)
        self._streams[handle] = Stream()
        return OK, handle

    def cuStreamDestroy(self, stream: int) -> tuple[CUresult]:
        _do(self._streams.pop(stream))
        return (OK,)

    def cuStreamSynchronize(self, stream: int) -> tuple[CUresult]:
        assert self._streams[stream].captured is None, "a stream that is captured cannot be waited for"
        _do(self._streams[stream])
        return (OK,)

    def cuStreamBeginCapture(self, stream: int, mode: CUstreamCaptureMode) -> tuple[CUresult]:
        self._streams[stream].captured = []
        return (OK,)

    def cuStreamEndCapture(self, stream: int) -> tuple[CUresult, int]:
        handle = next(self._handles)
        work = self._streams[stream].captured
        assert work is not None
        self._graphs[handle], self._streams[stream].captured = work, None
        return OK, handle

    def cuGraphInstantiate(self, graph: int, flags: int) -> tuple[CUresult, int]:
        handle = next(self._handles)
        self._graphs[handle] = self._graphs[graph]
        return OK, handle

    def cuGraphDestroy(self, graph: int) -> tuple[CUresult]:
        del self._graphs[graph]
        return (OK,)

    cuGraphExecDestroy = cuGraphDestroy  # noqa: N815

    def cuGraphLaunch(self, graph: int, stream: int) -> tuple[CUresult]:
        for work in self._graphs[graph]:
            self.put(stream, work)
        return (OK,)

    def cuModuleLoadData(self, data: bytes) -> tuple[CUresult, int | None]:
        kernel = StandInKernel.parse(data)
        if kernel is None:
            return CUresult.CUDA_ERROR_INVALID_IMAGE, None
        handle = next(self._handles)
        self._functions[handle] = kernel
        return OK, handle

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[CUresult, int]:
        assert self._functions[module].name.encode() == name
        return OK, module

    def cuModuleUnload(self, module: int) -> tuple[CUresult]:
        return (OK,)

    def cuLaunchKernel(self, function: int, *arguments: Any) -> tuple[CUresult]:
        """Grid, block, shared memory, stream, the address of the arguments' addresses, and nothing."""
        *grid_and_block, _shared, stream, addresses, _extra = arguments
        kernel, grid = self._functions[function], tuple(grid_and_block[:3])
        values = kernel.read((ctypes.c_void_p * kernel.parameters).from_address(addresses))
        self.launched[kernel.name] += 1
        self.put(stream, lambda: kernel.run(self.view, grid, values))
        return (OK,)

    def _host(self, address: int, size: int) -> np.ndarray:
        for start, memory in self._pinned.items():
            if start <= address and address + size <= start + len(memory):
                return memory[address - start : address - start + size]
        raise AssertionError(f"{address:#x} is no pinned memory")

    def _copy(self, kind: str, target: np.ndarray, source: np.ndarray) -> None:
        target[:] = source
        self.bytes[kind] += len(source)


def _do(stream: Stream) -> None:
    work, stream.waiting = stream.waiting, []
    for item in work:
        item()
