"""``foredraft check``: right bundles pass tightly, and every kind of damage fails and is named."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from foredraft.bundle import Bundle
from foredraft.cli import main
from foredraft.errors import ForedraftError, RequestError
from foredraft_exporter.build import export
from foredraft_exporter.parity.comparison import ParityReport, check
from foredraft_exporter.parity.samples import default_text, plan_samples
from foredraft_exporter.weights.writing import read_layout
from foredraft_plugins import library
from tests.fixtures import tiny_checkpoint, tiny_gguf

pytest.importorskip("torch")
pytest.importorskip("transformers")

TEXT = default_text()[:600]
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
kernels = pytest.param(
    "kernels",
    marks=pytest.mark.skipif(library.unavailable_reason() is not None, reason="no kernels on this machine"),
)


def exported(source: Path, precision: str = "fp32", **options: Any) -> Bundle:
    target = source.parent / f"{source.stem}-{precision}.foredraft"
    export(source, target, exits=(1, 2), precision=precision, **options)
    return Bundle.open(target)


def compared(bundle: Bundle, source: Path, lowering: str = "auto", **options: Any) -> ParityReport:
    """One thread: two thread pools on a busy machine wait for each other."""
    return check(bundle, source, text=TEXT, lowering=lowering, threads=1, **options)


def assert_tight(report: ParityReport) -> None:
    assert report.passed, report.failures
    assert [d.length for d in report.differences[::3]] == ["1", "2", "7", "64", str(report.context), "text"]
    assert [d.exit for d in report.differences[:3]] == [1, 2, 4]
    assert all(d.agreeing == d.rows for d in report.differences)
    assert max(max(d.readout_relative, d.logits_relative) for d in report.differences) < 5e-5
    assert report.perplexity.ratio == pytest.approx(1, abs=1e-4)
    assert report.note is None


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a folder's weights."""
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def decided(folder: Path) -> Path:
    """A tied model whose layers add little, and whose logits are moderate.

    Random ones multiply every rounding, prefer no token clearly, and are as surprised as can be by any text.
    """
    tiny_checkpoint(folder, tie_word_embeddings=True)

    def damp(tensors: dict[str, Any]) -> None:
        for name in tensors:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensors[name] *= np.float32(0.1)
        tensors["model.norm.weight"] *= np.float32(0.2)

    change(folder, damp)
    return folder


@pytest.mark.parametrize("lowering", [kernels, "portable"])
@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
def test_architectures(tmp_path: Path, model_type: str, lowering: str) -> None:
    folder = tiny_checkpoint(tmp_path / "model", model_type)
    assert_tight(compared(exported(folder), folder, lowering))


@pytest.mark.parametrize("lowering", [kernels, "portable"])
def test_tied_and_biased(tmp_path: Path, lowering: str) -> None:
    options = {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    folder = tiny_checkpoint(tmp_path / "model", **options)
    assert_tight(compared(exported(folder), folder, lowering))


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "llama3", "factor": 8.0, **LLAMA3},
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
    ],
    ids=lambda scaling: str(scaling["rope_type"]),
)
@pytest.mark.parametrize("context", [256, 512])
def test_scaled_rotation(tmp_path: Path, scaling: dict[str, Any], context: int) -> None:
    trained = 512 if scaling["rope_type"] == "llama3" else 256
    folder = tiny_checkpoint(tmp_path / "model", rope_scaling=scaling, max_position_embeddings=trained)
    assert_tight(compared(exported(folder, context=context), folder))


def test_gguf_with_frequency_factors(tmp_path: Path) -> None:
    """Llama 3.1 as llama.cpp stores it."""
    factors = {"rope_freqs.weight": np.linspace(1, 8, 8, dtype=np.float32)}
    source = tiny_gguf(tmp_path / "model.gguf", "F16", extra=factors)
    assert_tight(compared(exported(source), source))


@pytest.mark.parametrize("lowering", [kernels, "portable"])
def test_eight_bits(tmp_path: Path, lowering: str) -> None:
    folder = decided(tmp_path / "model")
    report = compared(exported(folder, "int8"), folder, lowering)
    assert report.passed, report.failures
    assert report.limits.kind == "weights and activations rounded to 8 bits"
    assert max(d.readout_relative for d in report.differences) > 1e-3  # it did measure the rounding


@pytest.mark.parametrize("lowering", [kernels, "portable"])
def test_a_ggufs_own_numbers(tmp_path: Path, lowering: str) -> None:
    source = tiny_gguf(tmp_path / "model.gguf", "Q4_1", kinds={"token_embd": "Q8_0", "output": "Q8_0"})
    report = compared(exported(source, "auto"), source, lowering)
    assert report.precision == "int4"
    assert report.limits.kind == "weights as in the source, activations rounded to 8 bits"
    assert not [failure for failure in report.failures if "relative" in failure or "differ" in failure]


def test_four_bits(tmp_path: Path) -> None:
    folder = decided(tmp_path / "model")
    report = compared(exported(folder, "int4"), folder)
    assert report.passed, report.failures
    assert report.limits.kind == "weights rounded to 4 bits, activations to 8"
    assert report.limits.argmax < 0.95


def test_a_text_of_ones_own_and_a_longest_length(tiny_bundle: Callable[..., Path], tiny_folder: Path) -> None:
    bundle = Bundle.open(tiny_bundle("fp32", (1, 2)))
    report = check(bundle, tiny_folder, text="Ein kurzer Text.", threads=1, longest=100)
    assert report.passed and report.longest == 100
    assert [d.rows for d in report.differences[::3]] == [1, 2, 7, 64, 100, 17]
    assert report.perplexity.tokens == 16
    assert report.note is not None and "context limit of 256 tokens was not run" in report.note


def test_samples_begin_as_prompts_do(tiny_bundle: Callable[..., Path]) -> None:
    plan = plan_samples(Bundle.open(tiny_bundle("fp32", (1, 2))), "abc" * 100)
    assert all(sample.tokens[0] == 256 and 256 not in sample.tokens[1:] for sample in plan.samples)
    windows = [sample for sample in plan.samples if sample.scored]
    assert b"".join(bytes(window.tokens[1:]) for window in windows) == b"abc" * 100
    assert max(len(sample.tokens) for sample in plan.samples) == 256


def test_too_short_a_text(tiny_bundle: Callable[..., Path]) -> None:
    with pytest.raises(RequestError, match="the text has 1 tokens; give one of at least 2"):
        plan_samples(Bundle.open(tiny_bundle("fp32", (1, 2))), "a")


def test_a_swapped_tensor_is_named_by_its_segment(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model")
    bundle = exported(folder)

    def swap(tensors: dict[str, Any]) -> None:
        gate, up = (f"model.layers.1.mlp.{part}_proj.weight" for part in ("gate", "up"))
        tensors[gate], tensors[up] = tensors[up], tensors[gate]

    change(folder, swap)
    report = compared(bundle, folder)
    assert "segment 1 (exit after layer 2) at length 1: readouts differ by up to" in report.failures[0]
    assert not [failure for failure in report.failures if "segment 0" in failure]


@pytest.mark.parametrize("changed", [{"rope_theta": 10500.0}, {"rms_norm_eps": 1e-3}])
def test_a_changed_config(tmp_path: Path, tiny_bundle: Callable[..., Path], changed: dict[str, Any]) -> None:
    folder = tiny_checkpoint(tmp_path / "model", **changed)
    report = compared(Bundle.open(tiny_bundle("fp32", (1, 2))), folder)
    assert not report.passed


def test_nan_in_the_bundle(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model")
    bundle = exported(folder)
    path = bundle.path / bundle.manifest.weights
    with path.open("r+b") as file:
        file.seek(read_layout(path)["layers.2.o"].offset)
        file.write(np.float32("nan").tobytes())
    info = dataclasses.replace(
        bundle.manifest.files[bundle.manifest.weights], sha256=hashlib.sha256(path.read_bytes()).hexdigest()
    )
    files = {**bundle.manifest.files, bundle.manifest.weights: info}
    manifest = dataclasses.replace(bundle.manifest, files=files)
    (bundle.path / "manifest.json").write_bytes(manifest.to_bytes())
    report = compared(Bundle.open(bundle.path), folder)
    assert "segment 2 (exit after layer 4) at length 1:" in report.failures[0]
    assert "values of the bundle are NaN or infinite, first at token 0" in report.failures[0]
    assert not [failure for failure in report.failures if "segment 0" in failure or "segment 1" in failure]
    json.dumps(report.to_json(), allow_nan=False)


def test_another_model(tmp_path: Path, tiny_bundle: Callable[..., Path]) -> None:
    sizes = {"vocab_size": 288, "num_hidden_layers": 6, "max_position_embeddings": 128}
    folder = tiny_checkpoint(tmp_path / "other", "qwen2", **sizes)
    message = "other is not the model of .*: the bundle has architecture llama, not qwen2; layers 4, not 6; vocab_size"
    with pytest.raises(ForedraftError, match=message):
        compared(Bundle.open(tiny_bundle("fp32", (1, 2))), folder)


def test_the_command(
    tiny_bundle: Callable[..., Path], tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, text = tiny_bundle("fp32", (1, 2)), tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    arguments = ["check", str(bundle), "--against", str(tiny_folder), "--text", str(text), "--threads", "1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.endswith("check passed\n") and "perplexity on" in out and "same argmax" in out
    assert main([*arguments, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    values = json.loads(line)
    assert values["passed"] is True and values["failures"] == []
    assert values["perplexity"]["ratio"] == pytest.approx(1, abs=1e-3)
    assert {d["exit"] for d in values["differences"]} == {1, 2, 4}


def test_the_command_fails(
    tiny_bundle: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, folder = tiny_bundle("fp32", (1, 2)), tiny_checkpoint(tmp_path / "model", seed=1)
    arguments = ["check", str(bundle), "--against", str(folder), "--threads", "1", "--longest", "16"]
    for extra in ([], ["--json"]):
        assert main([*arguments, *extra]) == 1
        captured = capsys.readouterr()
        last = captured.err.strip().splitlines()[-1]
        assert last.startswith(f"error: {bundle}: check failed: segment 0 (exit after layer 1) at length 1: ")
        assert "check passed" not in captured.out
    assert json.loads(captured.out)["passed"] is False


@pytest.mark.slow
def test_smollm2(smollm2: Path) -> None:
    report = check(Bundle.open(smollm2), "smollm2-135m", text=default_text()[:1000], threads=1, longest=128)
    assert report.passed, report.failures
    last = [d for d in report.differences if d.exit == 30]
    assert sum(d.agreeing for d in last) / sum(d.rows for d in last) >= 0.95
    assert abs(report.perplexity.ratio - 1) < 0.02
