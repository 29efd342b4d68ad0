"""The script for a GPU, on the stand-ins: every step runs to its end, and finds what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu import check_gpu, engine_check
from benchmarks.gpu.engine_check import STEPS, Subject, check
from benchmarks.gpu.report import FAILED, NOT_RUN, Report
from foredraft.bundle import Bundle
from foredraft.engines.cuda.device import Device
from foredraft.errors import EngineError
from foredraft.scheduling.forward_costs import CostCurve
from foredraft.scheduling.parts import ForwardCosts
from tests.runtime.engines.cuda_standin import CudaStandIn
from tests.runtime.engines.tensorrt_standin import TensorRTStandIn

pytestmark = pytest.mark.slow


@pytest.fixture
def subject(tiny: Bundle) -> Subject:
    cuda = CudaStandIn()
    return Subject(tiny, next(iter(tiny.manifest.engines)), Device(cuda), TensorRTStandIn(cuda), tokens=6)


@pytest.mark.parametrize("step", ["load", "numerics", "caches", "replay", "reading"])
def test_a_step(subject: Subject, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(engine_check, "STEPS", {step: STEPS[step]})
    report = Report()
    check(subject, report)
    assert report.lines and {line.step for line in report.lines} == {step}
    assert not report.failed, report.text()


@pytest.mark.parametrize("step", ["drift", "speed"])
def test_a_step_that_writes(subject: Subject, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    curve = CostCurve({1: 0.01, 64: 0.02})
    costs = ForwardCosts(curve, (curve, curve), (curve, curve))
    monkeypatch.setattr("foredraft.session.measured_costs", lambda bundle, engine: costs)
    monkeypatch.setattr(engine_check, "STEPS", {step: STEPS[step]})
    monkeypatch.setattr(engine_check, "PROMPTS", engine_check.PROMPTS[2:])
    monkeypatch.setattr(engine_check, "_policies", lambda subject: ["echo"])
    report = Report()
    check(subject, report)
    assert report.lines and not report.failed, report.text()
    if step == "drift":
        same = [line.value for line in report.lines if "like plain ones" in line.what]
        assert same == ["1 of 1"] * 4, "nothing drifts on the stand-in"


def test_an_error_stays_in_its_step(subject: Subject) -> None:
    report = Report()
    trt = subject.trt
    trt.enqueue_fails = "out of order"
    check(subject, report)
    assert {line.step for line in report.lines if line.verdict == FAILED} == set(STEPS)
    assert all("out of order" in line.value for line in report.lines if line.verdict == FAILED)


def test_without_a_device_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def missing() -> Device:
        raise EngineError("CUDA: this machine has no NVIDIA driver")

    monkeypatch.setattr(check_gpu, "open_device", missing)
    path = tmp_path / "out.json"
    assert check_gpu.main(["--json", str(path)]) == 0
    lines = json.loads(path.read_text())
    assert {line["verdict"] for line in lines} == {NOT_RUN} and {line["step"] for line in lines} >= set(STEPS)
    assert capsys.readouterr().out.count("this machine has no NVIDIA driver") == len(lines)


def test_a_device_that_no_engines_fit(
    tiny: Bundle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_gpu, "open_device", lambda: Device(CudaStandIn(90)))
    monkeypatch.setattr(check_gpu, "_check_kernels", lambda report: report.add("kernels", "ran", "yes", True))
    assert check_gpu.main([str(tiny.path)]) == 0
    out = capsys.readouterr().out
    assert "Stand-in GPU (sm90)" in out and "kernels" in out and out.count("foredraft build") == len(STEPS)
