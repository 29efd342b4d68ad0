"""Loads compiled kernels into the current CUDA context and launches them. Knows nothing of attention.

`driver` is everywhere a module like ``cuda.bindings.driver``: functions return a tuple whose first item is the error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from foredraft_plugins.tree_attention.gpu.images import Image, PluginError
from foredraft_plugins.tree_attention.gpu.interface import HIDDEN_PARAMETERS, SIGNATURES
from foredraft_plugins.tree_attention.gpu.launches import Launch

__all__ = ["Kernels", "call", "context_id", "device_sm"]

_CTYPES: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
_DEFAULT_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel may have without asking."""


class Kernels:
    """The kernels of one device, loaded when it is made; good for the CUDA context that was current then.

    Raises PluginError naming the kernel and the driver's error if one cannot be loaded or launched.
    """

    def __init__(self, driver: Any, images: Mapping[str, Image]) -> None:
        self._driver = driver
        self._images = dict(images)
        self._modules: list[Any] = []
        try:
            self._functions = {kernel: self._load(image) for kernel, image in self._images.items()}
        except PluginError:
            self.unload()
            raise

    def launch(self, launch: Launch, stream: Any) -> None:
        """Puts `launch` on `stream` and returns at once."""
        image = self._images[launch.kernel]
        values = _pack(launch)
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        call(
            self._driver,
            "cuLaunchKernel",
            self._functions[launch.kernel],
            *launch.grid,
            *(32 * image.warps, 1, 1),
            image.shared,
            stream,
            ctypes.addressof(addresses),
            0,
            about=f"TreeAttention's {launch.kernel}, grid {launch.grid}",
        )

    def unload(self) -> None:
        """Frees the kernels; nothing may be launched afterwards. Only to be called while their context lives."""
        while self._modules:
            self._driver.cuModuleUnload(self._modules.pop())

    def _load(self, image: Image) -> Any:
        d, about = self._driver, f"TreeAttention's {image.file}"
        module = call(d, "cuModuleLoadData", image.data, about=about)
        self._modules.append(module)
        function = call(d, "cuModuleGetFunction", module, image.entry.encode(), about=about)
        if image.shared > _DEFAULT_SHARED:
            attribute = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(d, "cuFuncSetAttribute", function, attribute, image.shared, about=about)
        return function


def call(driver: Any, name: str, *args: Any, about: str) -> Any:
    """``driver.name(*args)`` without its error code. Raises PluginError that names the function, code and `about`."""
    code, *results = getattr(driver, name)(*args)
    if int(code):
        described = driver.cuGetErrorString(code)[1]
        text = described.decode() if isinstance(described, bytes) else str(described)
        raise PluginError(f"{about}: {name} failed with CUDA error {int(code)}, {text}")
    return results[0] if results else None


def device_sm(driver: Any) -> int:
    """The compute capability of the current context's device, 89 for 8.9. Raises PluginError if there is no context."""
    about = "TreeAttention needs a current CUDA context"
    device = call(driver, "cuCtxGetDevice", about=about)
    names = driver.CUdevice_attribute
    major, minor = (
        call(driver, "cuDeviceGetAttribute", attribute, device, about=about)
        for attribute in (
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return 10 * int(major) + int(minor)


def context_id(driver: Any) -> int:
    """A number of the current CUDA context that no other context of this process gets, also after its end."""
    about = "TreeAttention needs a current CUDA context"
    context = call(driver, "cuCtxGetCurrent", about=about)
    return int(call(driver, "cuCtxGetId", context, about=about))


def _pack(launch: Launch) -> list[Any]:
    kinds = list(SIGNATURES[launch.kernel].values())
    if len(kinds) != len(launch.args):
        raise PluginError(f"{launch.kernel} takes {len(kinds)} arguments, and got {len(launch.args)}")
    values: list[Any] = [
        _CTYPES.get(kind, ctypes.c_uint64)(value) for kind, value in zip(kinds, launch.args, strict=True)
    ]
    return values + [ctypes.c_uint64(0)] * HIDDEN_PARAMETERS
