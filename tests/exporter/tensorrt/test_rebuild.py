"""Engines added to a bundle that is there already, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foredraft import Bundle
from foredraft.cli import main
from foredraft_exporter.build import export
from foredraft_exporter.tensorrt.build_options import BuildOptions
from tests.fixtures import tiny_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """With native attention, whose engines need no kernels compiled."""
    source = tiny_checkpoint(tmp_path / "model")
    export(source, tmp_path / "b", exits=(2,), engines=BuildOptions("tensorrt-rtx", ("sm89",), "native"))
    return tmp_path / "b"


BUILD = ["--backend", "tensorrt-rtx", "--attention", "native", "--quiet"]


def test_one_more_target(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(bundle), *BUILD, "--targets", "sm86", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["name"] == "tensorrt-rtx-native-sm86"
    opened = Bundle.open(bundle)
    opened.verify()
    assert set(opened.manifest.engines) == {"tensorrt-rtx-native-sm89", "tensorrt-rtx-native-sm86"}
    engines = opened.manifest.engines["tensorrt-rtx-native-sm86"]
    assert set(engines.paths) == set(report["engines"])
    assert (engines.targets, engines.decode, engines.prefill, engines.slots) == (("sm86",), 64, 256, 528)
    assert (engines.dtype, engines.weights, engines.plugin) == ("fp16", "inputs", None)


def test_again_replaces_and_drops_the_signature(bundle: Path) -> None:
    (bundle / "model.sig").write_text("a signature")
    assert main(["build", str(bundle), *BUILD, "--targets", "sm89"]) == 0
    assert not (bundle / "model.sig").exists()
    opened = Bundle.open(bundle)
    opened.verify()
    assert list(opened.manifest.engines) == ["tensorrt-rtx-native-sm89"]


def test_a_bundle_for_the_cpu_names_the_export(tiny_bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(tiny_bundle()), *BUILD, "--targets", "sm89"]) == 1
    error = capsys.readouterr().err
    assert "has no graphs 'tensorrt-native'" in error
    assert "foredraft export tiny-llama0 --backend tensorrt-rtx --targets sm89 --attention native" in error


def test_a_failing_build_leaves_the_bundle_alone(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    graph = bundle / "graphs" / "tensorrt-native-segment-1.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"\0")
    before[graph] = graph.read_bytes()
    assert main(["build", str(bundle), *BUILD, "--targets", "sm86"]) == 1
    assert "tensorrt-native-segment-1.onnx" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()} == before
    assert [path.name for path in bundle.parent.iterdir() if "engines" in path.name] == []


def test_one_graph_alone(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = bundle / "graphs" / "tensorrt-native-head.onnx"
    assert main(["build", str(graph), *BUILD, "--targets", "sm89", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engines"]["tensorrt-native-head.onnx"]["nbytes"] > 0
    assert main(["build", str(bundle / "none.onnx"), *BUILD]) == 1
    assert "no such file" in capsys.readouterr().err
