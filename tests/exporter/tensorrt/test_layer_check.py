"""Graphs of engines in their own types against float32, layer by layer, through Polygraphy and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from polygraphy.comparator import RunResults
from safetensors.numpy import load_file, save_file

from foredraft.cli import main
from foredraft_exporter.build import export
from foredraft_exporter.tensorrt.build_options import BuildOptions
from tests.fixtures import tiny_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def with_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle_of(tiny_checkpoint(tmp_path_factory.mktemp("layers") / "model", head_dim=32), attention="plugin")


def bundle_of(source: Path, precision: str = "fp16", attention: str = "native") -> Path:
    out = source.with_name(f"{precision}-{attention}")
    export(source, out, exits=(2,), precision=precision, engines=BuildOptions("tensorrt-rtx", ("sm89",), attention))
    return out


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int4"])
def test_graphs_are_within_rounding(
    with_plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], precision: str
) -> None:
    bundle = with_plugin if precision == "fp16" else bundle_of(tiny_checkpoint(tmp_path / "model"), precision)
    assert main(["check", str(bundle), "--layers", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failures"] == []
    outputs = [(layer["segment"], layer["output"]) for layer in report["layers"]]
    assert (0, "layers.1.attention") in outputs and (1, "layers.3.act") in outputs and (1, "readout") in outputs
    relative = [layer["relative"] for layer in report["layers"]]
    assert 0 < max(relative) < (0.05 if precision == "bf16" else 0.005)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_an_overflow_is_found_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A value that float32 holds and float16 does not, in the third layer."""
    source = tiny_checkpoint(tmp_path / "model")
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.2.post_attention_layernorm.weight"] *= np.float32(1e5)
    save_file(tensors, source / "model.safetensors")
    assert main(["check", str(bundle_of(source)), "--layers"]) == 1
    error = capsys.readouterr().err
    assert "segment 1, layers.2.act: NaN or infinite; export with --precision bf16" in error


def test_results_are_kept_for_polygraphy(with_plugin: Path, tmp_path: Path) -> None:
    assert main(["check", str(with_plugin), "--layers", "--save", str(tmp_path / "saved")]) == 0
    results = RunResults.load(str(tmp_path / "saved" / "segment-1.json"))
    assert [name for name, _ in results.items()] == [
        "graphs/portable-segment-1.onnx",
        "graphs/tensorrt-segment-1.onnx",
    ]


def test_a_bundle_without_such_graphs(tiny_bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tiny_bundle()), "--layers"]) == 1
    assert "has no graphs for engines to check; export it with --backend tensorrt-rtx" in capsys.readouterr().err
    assert main(["check", str(tiny_bundle())]) == 2
    assert "give either --against SOURCE or --layers" in capsys.readouterr().err
