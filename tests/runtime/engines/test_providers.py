"""ONNX Runtime's GPU providers: what can be tried without one. The CPU provider stands for them, bound the same way."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from foredraft import Session
from foredraft.bundle import Bundle
from foredraft.engines import providers
from foredraft.engines.cuda.device import Device
from foredraft.engines.provider_engine import ProviderEngine
from foredraft.engines.providers import PROVIDERS
from foredraft.engines.select import open_engine
from foredraft.errors import EngineError
from tests.runtime.engines.cuda_standin import OK, CudaStandIn, CUresult
from tests.runtime.engines.test_loop import PROMPT, plainly


class HostCuda(CudaStandIn):
    """Its device memory is the host's, so that ONNX Runtime's CPU provider can run on it."""

    def cuMemAlloc(self, size: int) -> tuple[CUresult, int | None]:  # noqa: N802
        memory = np.full(size + 256, 0xFF, np.uint8)
        address = -(-memory.ctypes.data // 256) * 256
        self._allocated[address] = memory
        self.taken += len(memory)
        return OK, address

    def view(self, address: int, nbytes: int) -> np.ndarray:
        for start, memory in self._allocated.items():
            if start <= address and address + nbytes <= start + len(memory):
                offset = address - memory.ctypes.data
                return memory[offset : offset + nbytes]
        raise AssertionError(f"{address:#x} is no device memory")


@pytest.mark.parametrize("policy", ["fixed:8", "hispec", "echo"])
def test_memory_on_a_device_gives_the_same_text(tiny: Bundle, policy: str) -> None:
    cuda = HostCuda()
    engine = ProviderEngine(tiny, providers.CPU, Device(cuda), threads=1)
    plain = plainly(tiny, PROMPT, 40, device="cpu", lowering="portable", threads=1)
    session = Session(tiny, engine=engine, policy=policy)
    result = session.generate(PROMPT, max_tokens=40)
    assert result.tokens == plain and result.stats.drafted > 0
    assert not cuda.launched and cuda.bytes["to device"] > 0


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cuda", "has no CUDAExecutionProvider here; pip install 'foredraft[gpu]'"),
        ("tensorrt", "has no TensorrtExecutionProvider here; pip install 'foredraft[gpu]'"),
        ("tensorrt-rtx", "has no NvTensorRTRTXExecutionProvider here; pip install onnxruntime-ep-nv-tensorrt-rtx"),
    ],
)
def test_a_provider_that_is_not_here(tiny: Bundle, monkeypatch: pytest.MonkeyPatch, name: str, hint: str) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(providers.importlib, "import_module", _missing)
    with pytest.raises(EngineError) as caught:
        open_engine(tiny, provider=name)
    assert hint in str(caught.value) and "\n" not in str(caught.value)


def _missing(name: str) -> Any:
    raise ModuleNotFoundError(f"No module named {name!r}")


def test_a_provider_with_a_package_of_its_own_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: dict[str, str] = {}
    device = types.SimpleNamespace(ep_name="NvTensorRTRTXExecutionProvider")
    monkeypatch.setattr(
        providers.importlib, "import_module", lambda name: types.SimpleNamespace(get_library_path=lambda: "ep.so")
    )
    monkeypatch.setattr(ort, "register_execution_provider_library", registered.__setitem__)
    monkeypatch.setattr(ort, "get_ep_devices", lambda: [device] if registered else [])
    added: list[Any] = []
    options = types.SimpleNamespace(add_provider_for_devices=lambda devices, settings: added.extend(devices))
    assert PROVIDERS["tensorrt-rtx"].add_to(options) == []
    assert added == [device] and registered == {"NvTensorRTRTXExecutionProvider": "ep.so"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"provider": "openvino"}, "provider 'openvino': expected cpu, cuda, tensorrt, tensorrt-rtx"),
        ({"provider": "cuda", "device": "cpu"}, "provider 'cuda' and device 'cpu' contradict each other"),
        ({"provider": "cuda", "lowering": "kernels"}, "provider 'cuda' and lowering 'kernels' contradict"),
    ],
)
def test_what_makes_no_sense(tiny: Bundle, asked: dict[str, str], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        open_engine(tiny, **asked)
