"""CUDA as far as an engine needs it: a device's memory, streams and graphs, each call's return code checked.

Everything goes through the driver's Python bindings (``cuda.bindings.driver``), which are passed in.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from foredraft.errors import EngineError

_log = logging.getLogger("foredraft")


def load_driver() -> Any:
    """The module ``cuda.bindings.driver``. Raises EngineError if it is not installed."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise EngineError(
            f"CUDA: the Python module cuda.bindings cannot be loaded ({error}); pip install 'foredraft[tensorrt-rtx]'"
        ) from error


class Device:
    """A CUDA device and its primary context, which the TensorRT libraries use too. Threads may share it.

    ``sm`` is its compute capability as a number (89), ``target`` the same as manifests name it ("sm89"), ``memory`` in
    bytes. Raises EngineError if there is no driver or no such device.
    """

    def __init__(self, driver: Any, ordinal: int = 0) -> None:
        self.driver = driver
        try:
            self.call("cuInit", 0)
        except RuntimeError as error:  # the bindings' own, where the system has no driver at all
            raise EngineError(
                "CUDA: this machine has no NVIDIA driver; install one, or ask for --device cpu"
            ) from error
        count = self.call("cuDeviceGetCount")
        if ordinal >= count:
            raise EngineError(f"CUDA: asked for device {ordinal}, but {count} are visible; see CUDA_VISIBLE_DEVICES")
        self._device = self.call("cuDeviceGet", ordinal)
        kinds = driver.CUdevice_attribute
        major = self.call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device)
        minor = self.call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device)
        self.sm = int(major) * 10 + int(minor)
        self.target = f"sm{self.sm}"
        self.name = bytes(self.call("cuDeviceGetName", 128, self._device)).split(b"\0")[0].decode(errors="replace")
        self.memory = int(self.call("cuDeviceTotalMem", self._device))
        self.driver_version = int(self.call("cuDriverGetVersion"))
        self._context: Any = None

    def __str__(self) -> str:
        return f"{self.name} ({self.target})"

    def activate(self) -> None:
        """Make the calling thread's CUDA calls go to this device; needed once in every thread, and cheap."""
        if self._context is None:
            self._context = self.call("cuDevicePrimaryCtxRetain", self._device)
        self.call("cuCtxSetCurrent", self._context)

    def free_memory(self) -> int:
        """Bytes that are not taken, by anyone."""
        return int(self.call("cuMemGetInfo")[0])

    def call(self, name: str, *arguments: Any) -> Any:
        """A function of the driver: its result, or a tuple of several. Raises EngineError naming function and error."""
        code, *results = getattr(self.driver, name)(*arguments)
        if code != self.driver.CUresult.CUDA_SUCCESS:
            raise EngineError(f"CUDA: {name} failed: {self._described(code)}")
        return results[0] if len(results) == 1 else tuple(results)

    def _described(self, code: Any) -> str:
        texts = [getattr(self.driver, name)(code)[1] for name in ("cuGetErrorName", "cuGetErrorString")]
        name, text = (part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in texts)
        return f"{name} ({text})"

    def owned(self, owner: object, function: str, handle: Any) -> None:
        """Give ``handle`` back with ``function`` when ``owner`` is gone, from whatever thread that happens in."""
        weakref.finalize(owner, _give_back, self, function, handle)


def _give_back(device: Device, function: str, handle: Any) -> None:
    try:
        device.activate()
        device.call(function, handle)
    except EngineError as error:  # after a failed kernel every call fails: what counts was raised where it happened
        _log.debug("%s", error)


class DeviceBuffer:
    """``size`` bytes of device memory at ``address``, which never changes. Freed with the object."""

    def __init__(self, device: Device, size: int, what: str) -> None:
        """Raises EngineError naming ``what`` it was for if the memory does not suffice."""
        self.size = size
        code, handle = device.driver.cuMemAlloc(max(size, 1))
        if code == device.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            free = device.free_memory()
            raise EngineError(
                f"{device}: {size / 2**20:,.0f} MiB for {what} do not fit, {free / 2**20:,.0f} MiB are free; "
                "use a smaller --context or fewer sequences"
            )
        if code != device.driver.CUresult.CUDA_SUCCESS:
            raise EngineError(f"CUDA: cuMemAlloc of {size} bytes for {what} failed: {device._described(code)}")
        self.address = int(handle)
        device.owned(self, "cuMemFree", handle)


class PinnedBuffer:
    """``size`` bytes of host memory that the device copies from and to by itself. Freed with the last view of it."""

    def __init__(self, device: Device, size: int) -> None:
        handle = device.call("cuMemHostAlloc", size, 0)
        self.address = int(handle)
        memory = (ctypes.c_uint8 * size).from_address(self.address)
        self.array: npt.NDArray[np.uint8] = np.ctypeslib.as_array(memory)
        self.array[:] = 0
        device.owned(memory, "cuMemFreeHost", handle)  # every array over it keeps it

    def view(self, dtype: type[np.generic], shape: tuple[int, ...], offset: int = 0) -> npt.NDArray[Any]:
        """The bytes from ``offset`` on as an array, not copied."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.array[offset : offset + size].view(dtype).reshape(shape)


class Stream:
    """Work for the device, done in the order in which it was put in. Not thread-safe."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._handle = device.call("cuStreamCreate", device.driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.handle = int(self._handle)
        self.waits = 0
        """How often it has been waited for: what was put in before the last time is done."""
        device.owned(self, "cuStreamDestroy", self._handle)

    def to_device(self, target: int, source: int, size: int) -> None:
        """From pinned memory, which must stay as it is until the stream has come to this."""
        self._device.call("cuMemcpyHtoDAsync", target, source, size, self._handle)

    def to_host(self, target: int, source: int, size: int) -> None:
        """Into pinned memory, which is right once the stream has been waited for."""
        self._device.call("cuMemcpyDtoHAsync", target, source, size, self._handle)

    def copy(self, target: int, source: int, size: int) -> None:
        """From device memory to device memory that does not overlap it."""
        self._device.call("cuMemcpyDtoDAsync", target, source, size, self._handle)

    def zero(self, buffer: DeviceBuffer) -> None:
        """Overwrite all of it with zeroes."""
        self._device.call("cuMemsetD8Async", buffer.address, 0, buffer.size, self._handle)

    def wait(self) -> None:
        """Until all work is done. Raises EngineError for what failed in it since the last time."""
        self._device.call("cuStreamSynchronize", self._handle)
        self.waits += 1

    def capture(self, work: Callable[[], None]) -> Graph:
        """What ``work`` puts into the stream as a graph, without doing it."""
        call, driver = self._device.call, self._device.driver
        # Memory may be taken and given back meanwhile, by other threads and by the garbage collector in this one.
        call("cuStreamBeginCapture", self._handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            work()
        except BaseException:
            driver.cuStreamEndCapture(self._handle)  # unchecked: a capture that failed says so again here
            raise
        return Graph(self._device, self, call("cuStreamEndCapture", self._handle))


class Graph:
    """Captured work, launched as one. Fixed but for the contents of the memory that it reads."""

    def __init__(self, device: Device, stream: Stream, captured: Any) -> None:
        self._device, self._stream = device, stream
        self._graph = device.call("cuGraphInstantiate", captured, 0)
        device.call("cuGraphDestroy", captured)
        device.owned(self, "cuGraphExecDestroy", self._graph)

    def launch(self) -> None:
        """Put it into the stream that it was captured from."""
        self._device.call("cuGraphLaunch", self._graph, self._stream._handle)
