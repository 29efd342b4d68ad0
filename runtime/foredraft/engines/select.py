"""Which engine runs a bundle here: engines on a CUDA device where there are any that fit, else ONNX Runtime."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypedDict

from foredraft.bundle import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.engines.protocol import Engine
from foredraft.engines.providers import choose_provider
from foredraft.errors import EngineError

if TYPE_CHECKING:
    from foredraft.engines.cuda.device import Device

DEVICES = ("auto", "cpu", "cuda")


class EngineFields(TypedDict, total=False):
    """How to open an engine, as keyword arguments."""

    threads: int | None
    lowering: str
    device: str
    provider: str


_log = logging.getLogger("foredraft")


def open_engine(
    bundle: Bundle,
    device: str = "auto",
    threads: int | None = None,
    lowering: str = "auto",
    provider: str = "cpu",
) -> Engine:
    """Device ``auto`` is ``cuda`` where the bundle has engines that this machine's device can run, else ``cpu``.

    ``threads`` and ``lowering`` are for the CPU; asking for a lowering asks for the CPU. Another ``provider`` than
    ``cpu`` runs the portable graphs on a CUDA device, with ONNX Runtime and without engines. Raises EngineError if what
    was asked for cannot run here; where ``auto`` passes over engines, the log says why in one line.
    """
    if device not in DEVICES:
        raise EngineError(f"device {device!r}: expected {', '.join(DEVICES)}")
    if provider != "cpu":
        return _with_provider(bundle, device, threads, lowering, provider)
    if device == "cuda" and lowering != "auto":
        raise EngineError(f"device 'cuda' and lowering {lowering!r} contradict each other: lowerings run on the CPU")
    if device == "cuda":
        return _on_device(bundle, *_matched(bundle))
    if device == "auto" and lowering == "auto" and bundle.manifest.engines:
        try:
            found = _matched(bundle)
        except EngineError as error:
            _log.warning("running on the CPU: %s", error)
        else:
            return _on_device(bundle, *found)
    return OnnxRuntimeEngine(bundle, threads, lowering)


def open_device() -> Device:
    """The CUDA device of this machine. Raises EngineError, with what is missing, if there is none."""
    from foredraft.engines.cuda.device import Device, load_driver

    return Device(load_driver())


def _with_provider(bundle: Bundle, device: str, threads: int | None, lowering: str, provider: str) -> Engine:
    chosen = choose_provider(provider)
    for what, value, fits in (("device", device, ("auto", "cuda")), ("lowering", lowering, ("auto", "portable"))):
        if value not in fits:
            raise EngineError(f"provider {provider!r} and {what} {value!r} contradict each other")
    chosen.require()
    from foredraft.engines.provider_engine import ProviderEngine

    return ProviderEngine(bundle, chosen, open_device(), threads)


def _matched(bundle: Bundle) -> tuple[str, Device]:
    """The engines that fit this machine's device; nothing of them is opened yet."""
    from foredraft.engines.tensorrt.match import find

    device = open_device()
    return find(bundle, device), device


def _on_device(bundle: Bundle, name: str, device: Device) -> Engine:
    from foredraft.engines.tensorrt.engine import TensorRTEngine
    from foredraft.engines.tensorrt.libraries import library, load

    trt: Any = load(library(bundle.manifest.engines[name].library))
    return TensorRTEngine(bundle, name, device, trt)
