"""A stand-in for ``cuda.bindings.driver`` that records what is loaded and launched."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from foredraft_plugins.tree_attention.gpu.interface import HIDDEN_PARAMETERS, SIGNATURES

_CTYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


@dataclass(frozen=True)
class Launched:
    image: bytes
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    arguments: dict[str, int | float]
    hidden: list[int]


@dataclass
class Driver:
    """A device of compute capability `sm`, current context `context`. `failing`: function name -> its error code."""

    sm: int = 89
    context: int = 1
    failing: dict[str, int] = field(default_factory=dict)
    launched: list[Launched] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)
    loaded: list[bytes] = field(default_factory=list)
    unloaded: list[bytes] = field(default_factory=list)

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor"
    )

    def __getattribute__(self, name: str) -> Any:
        failing = object.__getattribute__(self, "failing")
        if name in failing:
            return lambda *args: (failing[name], None)
        return object.__getattribute__(self, name)

    def cuGetErrorString(self, code: int) -> tuple[int, bytes]:  # noqa: N802
        return 0, b"something went wrong"

    def cuCtxGetCurrent(self) -> tuple[int, str]:  # noqa: N802
        return 0, f"context {self.context}"

    def cuCtxGetId(self, context: str) -> tuple[int, int]:  # noqa: N802
        return 0, int(context.removeprefix("context "))

    def cuCtxGetDevice(self) -> tuple[int, str]:  # noqa: N802
        return 0, "device"

    def cuDeviceGetAttribute(self, attribute: str, device: str) -> tuple[int, int]:  # noqa: N802
        return 0, {"major": self.sm // 10, "minor": self.sm % 10}[attribute]

    def cuModuleLoadData(self, image: bytes) -> tuple[int, bytes]:  # noqa: N802
        self.loaded.append(image)
        return 0, image

    def cuModuleUnload(self, module: bytes) -> tuple[int]:  # noqa: N802
        self.unloaded.append(module)
        return (0,)

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[int, tuple[bytes, str]]:  # noqa: N802
        return 0, (module, name.decode())

    def cuFuncSetAttribute(self, function: tuple[bytes, str], attribute: str, value: int) -> tuple[int]:  # noqa: N802
        assert attribute == "shared"
        self.shared[function[0].decode()] = value
        return (0,)

    def cuLaunchKernel(self, function: Any, *rest: Any) -> tuple[int]:  # noqa: N802
        """Reads the arguments as the driver does: an array of addresses, one for each parameter."""
        gx, gy, gz, bx, by, bz, shared, stream, parameters, extra = rest
        assert extra == 0
        image, entry = function
        kinds = SIGNATURES[image.decode().split(" ")[1]]
        count = len(kinds) + HIDDEN_PARAMETERS
        addresses = (ctypes.c_void_p * count).from_address(parameters)
        arguments = {
            name: _CTYPES.get(kind, ctypes.c_uint64).from_address(address).value
            for (name, kind), address in zip(kinds.items(), addresses, strict=False)
        }
        hidden = [ctypes.c_uint64.from_address(address).value for address in addresses[len(kinds) :]]
        self.launched.append(Launched(image, entry, (gx, gy, gz), (bx, by, bz), shared, stream, arguments, hidden))
        return (0,)
