"""ONNX Runtime's execution providers: which there are here, and how a session is told to use one."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import onnxruntime as ort

from foredraft.errors import EngineError


@dataclass(frozen=True, slots=True)
class Provider:
    """``name`` is ONNX Runtime's, ``device`` where the provider's tensors lie, as bindings call it.

    ``package`` is the Python module of a provider that is installed beside ONNX Runtime, ``hint`` how to install it.
    """

    name: str
    device: str = "cuda"
    package: str | None = None
    hint: str = "pip install 'foredraft[gpu]'"

    def require(self) -> None:
        """Raises EngineError, saying what to install, if the provider is not here."""
        if self.name not in ort.get_available_providers():
            self._registered()

    def add_to(self, options: ort.SessionOptions) -> list[str]:
        """The ``providers`` argument of a session with these options. Raises EngineError as ``require`` does."""
        if self.name in ort.get_available_providers():
            return [self.name] if self.device == "cpu" else [self.name, "CPUExecutionProvider"]
        options.add_provider_for_devices(self._registered(), {})
        return []

    def _registered(self) -> list[ort.OrtEpDevice]:
        """Devices of a provider that comes as a package of its own."""
        found = _devices(self.name)
        if not found and self.package:
            try:
                package = importlib.import_module(self.package)
                ort.register_execution_provider_library(self.name, package.get_library_path())
            except Exception as error:  # the library's own class is not public
                raise EngineError(f"{self._missing()} ({' '.join(str(error).split())})") from error
            found = _devices(self.name)
        if not found:
            raise EngineError(self._missing())
        return found

    def _missing(self) -> str:
        return f"ONNX Runtime {ort.__version__} has no {self.name} here; {self.hint}, or run without --provider"


CPU = Provider("CPUExecutionProvider", "cpu")
PROVIDERS = {
    "cpu": CPU,
    "cuda": Provider("CUDAExecutionProvider"),
    "tensorrt": Provider("TensorrtExecutionProvider"),
    "tensorrt-rtx": Provider(
        "NvTensorRTRTXExecutionProvider",
        package="onnxruntime_ep_nv_tensorrt_rtx",
        hint="pip install onnxruntime-ep-nv-tensorrt-rtx-cu12",
    ),
}


def choose_provider(name: str) -> Provider:
    """The provider that options call ``name``; raises EngineError for one that is not known."""
    if name not in PROVIDERS:
        raise EngineError(f"provider {name!r}: expected {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


def _devices(name: str) -> list[ort.OrtEpDevice]:
    return [device for device in ort.get_ep_devices() if device.ep_name == name]
