"""What cannot run says so in one line, with what it got and what to do; nothing is opened that was not checked."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from foredraft import cli
from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, FileInfo
from foredraft.engines import select
from foredraft.engines.cuda.device import Device
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.engines.select import open_engine
from foredraft.engines.tensorrt.engine import TensorRTEngine
from foredraft.engines.tensorrt.match import Place, problem, problems, read_images
from foredraft.errors import BundleError, EngineError
from tests.runtime.engines.cuda_standin import CudaStandIn, CUresult
from tests.runtime.engines.made import opened
from tests.runtime.engines.tensorrt_standin import VERSION, TensorRTStandIn
from tests.runtime.engines.test_sequence import batch

NAME = "tensorrt-rtx-sm89-sm120"
HEAD = f"engines/{NAME}/head.engine"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[CudaStandIn, TensorRTStandIn]]:
    """``here(sm, version)``: this machine has such a device, and the library in such a version (None: in none)."""

    found = importlib.import_module

    def install(sm: int = 89, version: str | None = VERSION, devices: int = 1) -> tuple[CudaStandIn, TensorRTStandIn]:
        cuda = CudaStandIn(sm, devices)
        trt = TensorRTStandIn(cuda, version or "")

        def imported(name: str, *package: str) -> object:
            if name == "cuda.bindings.driver":
                return cuda
            if name != "tensorrt_rtx":
                return found(name, *package)
            if version is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return trt

        monkeypatch.setattr(importlib, "import_module", imported)
        return cuda, trt

    return install


def changed(bundle: Bundle, folder: Path, path: str, data: bytes) -> Bundle:
    """A copy of the bundle with another file at ``path``, which its manifest lists."""
    shutil.copytree(bundle.path, folder)
    (folder / path).write_bytes(data)
    info = FileInfo(len(data), hashlib.sha256(data).hexdigest())
    manifest = dataclasses.replace(bundle.manifest, files={**bundle.manifest.files, path: info})
    (folder / FILE_NAME).write_bytes(manifest.to_bytes())
    return Bundle.open(folder)


@pytest.mark.parametrize(
    ("target", "version", "reason"),
    [
        ("sm89", VERSION, None),
        ("sm120", VERSION, None),
        ("sm75", VERSION, "built for sm89, sm120, this device is Some GPU (sm75); foredraft build B"),
        ("sm89", "1.8.0", f"built with tensorrt-rtx {VERSION}, installed here is 1.8.0; foredraft build B"),
        ("sm89", None, f"need tensorrt-rtx {VERSION}, which is not installed; pip install 'foredraft[tensorrt-rtx]'"),
    ],
)
def test_engines_against_a_place(tiny: Bundle, target: str, version: str | None, reason: str | None) -> None:
    engines = tiny.manifest.engines[NAME]
    place = Place(f"Some GPU ({target})", target, {"tensorrt-rtx": version})
    assert problem(engines, place, lambda _: read_images(tiny, engines), "foredraft build B") == reason


@pytest.mark.parametrize(
    ("sm", "command"),
    [
        (86, "--backend tensorrt-rtx --targets sm86"),
        (90, "--backend tensorrt --targets sm90"),  # the other library does not compile for it
        (50, "no library builds for sm50"),
    ],
)
def test_another_device_names_the_command_that_rebuilds(
    tiny: Bundle, here: Callable[..., object], sm: int, command: str
) -> None:
    here(sm)
    with pytest.raises(EngineError) as caught:
        open_engine(tiny, "cuda")
    text = str(caught.value)
    assert f"this device is Stand-in GPU (sm{sm})" in text and command in text and "\n" not in text


def test_kernels_for_the_device_are_missing(tiny: Bundle, here: Callable[..., object], tmp_path: Path) -> None:
    path = f"engines/{NAME}/tree-attention/images.json"
    index = json.loads(tiny.read(path))
    index["images"] = [image for image in index["images"] if image["sm"] == 120]
    bundle = changed(tiny, tmp_path / "b", path, json.dumps(index).encode())
    here(89)
    with pytest.raises(EngineError, match=r"tree-attention: no TreeAttention kernel for this device, sm89"):
        open_engine(bundle, "cuda")


def test_a_file_that_was_changed_is_never_opened(tiny: Bundle, here: Callable[..., object], tmp_path: Path) -> None:
    _, trt = here()  # type: ignore[misc]
    folder = tmp_path / "b"
    shutil.copytree(tiny.path, folder)
    data = bytearray((folder / HEAD).read_bytes())
    data[100] ^= 1
    (folder / HEAD).write_bytes(bytes(data))
    with pytest.raises(BundleError, match=r"head.engine: its sha256 is not the one"):
        open_engine(Bundle.open(folder), "cuda")
    assert len(trt.engines) == 3, "the segments, which are as they were"


def test_an_engine_that_does_not_load(tiny: Bundle) -> None:
    cuda = CudaStandIn()
    trt = TensorRTStandIn(cuda)
    trt.refuse = "Serialization assertion failed.\n  Version tag does not match"
    with pytest.raises(EngineError) as caught:
        opened(tiny, cuda, trt)
    expected = "tensorrt-rtx cannot load it: Serialization assertion failed. Version tag does not match"
    assert str(caught.value) == f"{tiny.path}/engines/{NAME}/segment-0.engine: {expected}"


def test_a_foreign_plugin_of_our_name(tiny: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = CudaStandIn()
    trt = TensorRTStandIn(cuda)
    monkeypatch.setattr(trt, "register_creator", lambda creator, namespace: False)
    with pytest.raises(EngineError, match=r"tree-attention: tensorrt_standin_\d+ already has a plugin"):
        opened(tiny, cuda, trt)


def test_memory_that_does_not_suffice(tiny: Bundle) -> None:
    cuda = CudaStandIn(memory=40 << 20)
    engine, _, _ = opened(tiny, cuda)
    engine.open_sequence(100)
    with pytest.raises(EngineError, match=r"Stand-in GPU \(sm89\): 32 MiB for scratch memory do not fit, \d+ MiB are"):
        [engine.open_sequence(100) for _ in range(2)]


def test_a_context_that_the_engines_do_not_take(tiny: Bundle) -> None:
    engine, _, _ = opened(tiny)
    slots = tiny.manifest.engines[NAME].slots
    engine.open_sequence(slots - 1)
    with pytest.raises(EngineError, match=f"need {slots + 10} cache rows, but these engines take {slots}; use a"):
        engine.open_sequence(slots + 9)


def test_a_forward_that_fails(tiny: Bundle) -> None:
    engine, cuda, trt = opened(tiny)
    sequence = engine.open_sequence(100)
    trt.enqueue_fails = "Error Code 1: Cuda Runtime (invalid resource handle)"
    with pytest.raises(EngineError, match=r"segment-0.engine: a forward failed on Stand-in GPU .*invalid resource"):
        sequence.run(0, batch(1))
    trt.enqueue_fails = None
    cuda.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(EngineError, match=r"TreeAttention: TreeAttention's append, .* failed with CUDA error 1"):
        sequence.run(0, batch(1))
    del cuda.fail["cuLaunchKernel"]
    cuda.fail["cuStreamSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(EngineError, match=r"cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS \(illegal"):
        sequence.run(0, batch(1))


def test_a_graph_that_cannot_be_captured(tiny: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    results = []
    for capturable, fails in ((True, False), (True, True), (False, False)):
        engine, cuda, trt = opened(tiny)
        trt.capturable, trt.capture_fails = capturable, fails
        sequence = engine.open_sequence(100)
        for _ in range(2):
            sequence.run(0, batch(3))
        results.append(sequence.readout(np.arange(3)))
        assert cuda.calls["cuGraphLaunch"] == (capturable and not fails)
    assert all(np.array_equal(results[0], each) for each in results[1:])
    assert caplog.text.count("segment-0.engine, 4 rows: runs without a CUDA graph, which is slower") == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: setattr(graph.output[0].type.tensor_type, "elem_type", onnx.TensorProto.FLOAT16), "is half"),
        (lambda graph: setattr(graph.output[0], "name", "other"), "has an output 'other' that nothing is known of"),
        (lambda graph: setattr(graph.input[1], "name", "other"), "has no tensor 'other', which an engine reads"),
        (
            lambda graph: setattr(graph.input[1].type.tensor_type.shape.dim[0], "dim_value", 9),
            r"'head' has \d+ bytes, but .*head.engine reads \d+",
        ),
    ],
)
def test_an_engine_that_is_not_what_it_should_be(
    tiny: Bundle, tmp_path: Path, change: Callable[[onnx.GraphProto], None], message: str
) -> None:
    model = onnx.load_from_string(tiny.read(HEAD))
    change(model.graph)
    bundle = changed(tiny, tmp_path / "b", HEAD, model.SerializeToString())
    with pytest.raises(EngineError, match=message):
        opened(bundle)


def test_auto_takes_the_engines_that_fit(tiny: Bundle, here: Callable[..., object]) -> None:
    here()
    assert isinstance(open_engine(tiny), TensorRTEngine)
    assert isinstance(open_engine(tiny, "cuda"), TensorRTEngine)
    assert isinstance(open_engine(tiny, "cpu"), OnnxRuntimeEngine)
    assert isinstance(open_engine(tiny, lowering="portable"), OnnxRuntimeEngine)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"sm": 75}, "this device is Stand-in GPU (sm75)"),
        ({"version": None}, "which is not installed"),
        ({"devices": 0}, "asked for device 0, but 0 are visible"),
    ],
)
def test_auto_says_why_it_runs_on_the_cpu(
    tiny: Bundle, here: Callable[..., object], caplog: pytest.LogCaptureFixture, place: dict[str, int], reason: str
) -> None:
    here(**place)
    with caplog.at_level(logging.WARNING):
        assert isinstance(open_engine(tiny), OnnxRuntimeEngine)
    (line,) = [record.getMessage() for record in caplog.records]
    assert reason in line and line.startswith("running on the CPU: ")
    with pytest.raises(EngineError, match=re.escape(reason)):
        open_engine(tiny, "cuda")


def test_a_bundle_without_engines_is_not_worth_a_line(
    tiny_bundle: Callable[..., Path], caplog: pytest.LogCaptureFixture, here: Callable[..., object]
) -> None:
    here()
    bundle = Bundle.open(tiny_bundle())
    with caplog.at_level(logging.WARNING):
        assert isinstance(open_engine(bundle), OnnxRuntimeEngine)
    assert not caplog.records
    with pytest.raises(
        EngineError, match=r"has no engines for Stand-in GPU \(sm89\); build them with: foredraft build"
    ):
        open_engine(bundle, "cuda")


def test_a_machine_without_a_driver() -> None:
    class Bindings(CudaStandIn):
        def cuInit(self, flags: int) -> tuple[CUresult]:  # noqa: N802
            raise RuntimeError('"cuda" is an NVIDIA driver library and can only be found via system search')

    with pytest.raises(EngineError, match="this machine has no NVIDIA driver; install one, or ask for --device cpu"):
        Device(Bindings())
    cuda = CudaStandIn()
    cuda.fail["cuInit"] = CUresult.CUDA_ERROR_NO_DEVICE
    with pytest.raises(EngineError, match=r"cuInit failed: CUDA_ERROR_NO_DEVICE \(no device\)"):
        Device(cuda)


@pytest.mark.parametrize(
    ("device", "lowering", "message"), [("gpu", "auto", "expected auto, cpu, cuda"), ("cuda", "portable", "contradict")]
)
def test_what_makes_no_sense(tiny: Bundle, device: str, lowering: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        open_engine(tiny, device, lowering=lowering)


def test_inspect_says_what_runs_here(
    tiny: Bundle, here: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    here(120)
    assert cli.main(["inspect", str(tiny.path), "--json"]) == 0
    machine = json.loads(capsys.readouterr().out)["machine"]
    assert (machine["device"], machine["engines"]) == ("Stand-in GPU (sm120)", {NAME: None})
    here(75)
    assert problems(tiny, select.open_device())[NAME] is not None
    assert cli.main(["inspect", str(tiny.path)]) == 0
    assert "built for sm89, sm120, this device is Stand-in GPU (sm75)" in " ".join(capsys.readouterr().out.split())
