"""The weights file: what the plan says, every number right, each byte once, and little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from foredraft import disk_space
from foredraft.errors import CheckpointError, ForedraftError
from foredraft_exporter import models
from foredraft_exporter.build import export
from foredraft_exporter.sources.checkpoint import Checkpoint, open_checkpoint
from foredraft_exporter.weights.weight_plan import WeightPlan, plan
from foredraft_exporter.weights.writing import PEAK_MEMORY, WeightReport, read_layout, write_weights
from foredraft_plugins.block_linear import packing
from tests.fixtures import tiny_checkpoint, tiny_config, tiny_gguf
from tests.full_disk import no_file_beyond


def _export(source: Path, precision: str, out: Path) -> tuple[Checkpoint, WeightPlan, WeightReport]:
    checkpoint = open_checkpoint(source)
    decoder = models.decoder(checkpoint.info.config)
    weights = plan(checkpoint, decoder, precision)
    return checkpoint, weights, write_weights(out, checkpoint, decoder, weights)


def _matrix(tensors: dict[str, Any], weights: WeightPlan, name: str) -> np.ndarray:
    """A matrix of the file as float32 [n, k], unpacked if it is packed."""
    matrix = next(m for m in weights.matrices if m.name == name)
    if matrix.bits == 32:
        return tensors[name]
    names = {key: f"{name}.{key}" for key in ("codes", "scale", "min")}
    packed = {key: tensors[full] for key, full in names.items() if full in tensors}
    codes, scale, low = packing.unpack(packed, matrix.n, matrix.bits)
    return packing.dequantize(codes, scale, low, matrix.bits)


def _source(checkpoint: Checkpoint, weights: WeightPlan, name: str) -> np.ndarray:
    matrix = next(m for m in weights.matrices if m.name == name)
    return np.concatenate([checkpoint.read(part) for part in matrix.parts])


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "smollm3"])
def test_fp32_holds_every_number(tmp_path: Path, model_type: str) -> None:
    checkpoint, weights, report = _export(tiny_checkpoint(tmp_path / "m", model_type), "fp32", tmp_path / "w")
    tensors = load_file(tmp_path / "w")
    assert list(report.errors) == []
    assert set(weights.bits.values()) == {32}
    for matrix in weights.matrices:
        np.testing.assert_array_equal(tensors[matrix.name], _source(checkpoint, weights, matrix.name))
    for vector in weights.vectors:
        expected = np.concatenate([checkpoint.read(part) for part in vector.parts])
        np.testing.assert_array_equal(tensors[vector.name], expected)


@pytest.mark.parametrize(("precision", "bits", "limit"), [("auto", 8, 0.008), ("int4", 4, 0.09)])
def test_quantized_from_floats(tiny_folder: Path, tmp_path: Path, precision: str, bits: int, limit: float) -> None:
    checkpoint, weights, report = _export(tiny_folder, precision, tmp_path / "w")
    tensors = load_file(tmp_path / "w")
    assert {name: b for name, b in weights.bits.items() if name.startswith("layers")}["layers.0.qkv"] == bits
    assert (weights.bits["head"], weights.bits["embed"]) == (8, 8)
    for name in weights.bits:
        expected, got = _source(checkpoint, weights, name), _matrix(tensors, weights, name)
        error = float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
        assert report.errors[name] == pytest.approx(error, rel=1e-3)
        assert error < limit


GGUFS: list[tuple[str, dict[str, str]]] = [
    ("Q4_1", {"token_embd": "Q8_0"}),
    ("Q4_0", {"output": "Q8_0"}),
    ("Q8_0", {}),
    ("Q4_1", {"attn_v": "Q8_0", "ffn_up": "Q4_0"}),
    ("Q4_0", {"attn_v": "Q8_0"}),
]


@pytest.mark.parametrize(("kind", "kinds"), GGUFS)
@pytest.mark.parametrize("precision", ["auto", "int8"])
def test_a_ggufs_numbers_are_kept_bit_exactly(tmp_path: Path, kind: str, kinds: dict[str, str], precision: str) -> None:
    source = tiny_gguf(tmp_path / "m.gguf", kind, kinds=kinds)
    checkpoint, weights, report = _export(source, precision, tmp_path / "w")
    tensors = load_file(tmp_path / "w")
    assert report.errors == {}
    for matrix in weights.matrices:
        blocks = [checkpoint.blocks(p, 0, n) for p, n in zip(matrix.parts, matrix.rows, strict=True)]
        expected = np.concatenate([b.values() for b in blocks if b is not None])
        np.testing.assert_array_equal(_matrix(tensors, weights, matrix.name), expected)


def test_mixed_with_a_type_that_is_not_taken_over(tmp_path: Path) -> None:
    source = tiny_gguf(tmp_path / "m.gguf", "Q4_1", kinds={"attn_v": "Q5_1"})
    checkpoint, weights, report = _export(source, "auto", tmp_path / "w")
    assert set(report.errors) == {f"layers.{i}.qkv" for i in range(4)}
    got = _matrix(load_file(tmp_path / "w"), weights, "layers.0.qkv")
    expected = _source(checkpoint, weights, "layers.0.qkv")
    np.testing.assert_allclose(got[:96], expected[:96], rtol=1e-6, atol=1e-6)
    assert np.abs(got - expected).max() < 0.01


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_tied_bytes_are_there_once(tmp_path: Path, precision: str) -> None:
    tied = _export(tiny_checkpoint(tmp_path / "t", tie_word_embeddings=True), precision, tmp_path / "tied")[1]
    apart = _export(tiny_checkpoint(tmp_path / "u"), precision, tmp_path / "apart")[1]
    assert not any(tensor.name.startswith("embed") for tensor in tied.tensors)
    head = sum(tensor.nbytes for tensor in tied.tensors if tensor.name.startswith("head"))
    assert apart.nbytes - tied.nbytes == head


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
def test_the_file_is_what_was_planned(tiny_folder: Path, tmp_path: Path, precision: str) -> None:
    _, weights, report = _export(tiny_folder, precision, tmp_path / "w")
    layout = read_layout(tmp_path / "w")
    assert report.nbytes == (tmp_path / "w").stat().st_size
    assert {t.name: (t.dtype, t.shape, t.nbytes) for t in weights.tensors} == {
        name: (place.dtype, place.shape, place.nbytes) for name, place in layout.items()
    }
    assert all(place.offset % 64 == 0 for place in layout.values())
    with safe_open(tmp_path / "w", "numpy") as file:
        assert sorted(file.keys()) == sorted(layout)
        data = (tmp_path / "w").read_bytes()
        for name, place in layout.items():
            assert file.get_tensor(name).tobytes() == data[place.offset : place.offset + place.nbytes]


def test_odd_sizes_stay_aligned_to_their_type(tmp_path: Path) -> None:
    """A vocabulary and widths that are no multiples of anything: still no holes, still readable."""
    overrides = {"hidden_size": 36, "intermediate_size": 50, "vocab_size": 261, "head_dim": 6}
    checkpoint, weights, _ = _export(tiny_checkpoint(tmp_path / "m", **overrides), "fp32", tmp_path / "w")
    assert all(place.offset % 4 == 0 for place in read_layout(tmp_path / "w").values())
    tensors = load_file(tmp_path / "w")
    np.testing.assert_array_equal(tensors["embed"], _source(checkpoint, weights, "embed"))


def test_a_vocabulary_between_tiles(tmp_path: Path) -> None:
    checkpoint, weights, _ = _export(tiny_checkpoint(tmp_path / "m", vocab_size=277), "int8", tmp_path / "w")
    got, expected = _matrix(load_file(tmp_path / "w"), weights, "head"), _source(checkpoint, weights, "head")
    assert got.shape == expected.shape == (277, 64)
    assert np.linalg.norm(got - expected) < 0.01 * np.linalg.norm(expected)


def test_progress_reaches_the_total(tiny_folder: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_folder)
    decoder = models.decoder(checkpoint.info.config)
    weights = plan(checkpoint, decoder, "auto")
    seen: list[tuple[int, int, str]] = []
    write_weights(tmp_path / "w", checkpoint, decoder, weights, lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][:2] == (weights.nbytes, weights.nbytes)
    assert {what for _, _, what in seen} == {tensor.name for tensor in weights.tensors}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
def test_nan_is_a_failed_export(tmp_path: Path, precision: str, name: str) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors[name].reshape(-1)[7] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="not finite"):
        _export(folder, precision, tmp_path / "w")


def test_width_that_cannot_be_quantized(tmp_path: Path) -> None:
    with pytest.raises(ForedraftError, match=r"rows of 80.*--precision fp32"):
        _export(tiny_checkpoint(tmp_path / "m", intermediate_size=80), "int8", tmp_path / "w")


def test_space_is_asked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "_free", lambda path: 1000)
    with pytest.raises(ForedraftError, match=r"there/yet: the export needs .* on this disk, 1\.0 kB are free"):
        export(tiny_checkpoint(tmp_path / "m"), tmp_path / "not" / "there" / "yet")
    assert not (tmp_path / "not").exists()


def test_a_disk_that_fills_up_meanwhile(tmp_path: Path) -> None:
    source = tiny_checkpoint(tmp_path / "m")
    with no_file_beyond(1 << 14), pytest.raises(ForedraftError, match=r"/out: could not be written: file too large"):
        export(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


_WIDE = """
import sys, threading, time, psutil
from pathlib import Path
from foredraft_exporter import models
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.weights.weight_plan import plan
from foredraft_exporter.weights.writing import write_weights
checkpoint = open_checkpoint(sys.argv[1])
decoder = models.decoder(checkpoint.info.config)
weights = plan(checkpoint, decoder, sys.argv[3])
process, peak, done = psutil.Process(), 0, False
start = process.memory_info().rss
def watch():
    global peak
    while not done:
        peak = max(peak, process.memory_info().rss)
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
write_weights(Path(sys.argv[2]), checkpoint, decoder, weights)
done = True
watcher.join()
print(peak - start)
"""


@pytest.mark.slow
def test_memory_stays_small_for_wide_layers(tmp_path: Path) -> None:
    """A layer as wide as a 7B model's: 1.3 GB as float32, never more than a small part of it in memory."""
    psutil = pytest.importorskip("psutil")
    if psutil.disk_usage(tmp_path).free < 3e9:
        pytest.skip("needs 3 GB of disk")
    folder = _wide_checkpoint(tmp_path / "wide")
    command = [sys.executable, "-c", _WIDE, str(folder), str(tmp_path / "w"), "int8"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    added = int(done.stdout)
    total = sum(place.nbytes for place in read_layout(folder / "model.safetensors").values())
    (tmp_path / "w").unlink()
    (folder / "model.safetensors").unlink()
    assert total > 4e8
    assert added < PEAK_MEMORY < total / 2


def _wide_checkpoint(folder: Path) -> Path:
    """One layer, 4096 x 11008, in float16; random numbers that repeat, since only sizes matter."""
    tiny_checkpoint(folder)
    overrides = {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    }
    overrides |= {"num_key_value_heads": 32, "num_hidden_layers": 1, "tie_word_embeddings": True}
    config = tiny_config(**overrides)
    (folder / "config.json").write_text(json.dumps(config))
    pattern = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float16)
    shapes = {"model.embed_tokens.weight": (32000, 4096), "model.norm.weight": (4096,)}
    layer = "model.layers.0"
    for name in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"{layer}.{name}.weight"] = (4096,)
    for name in "qkvo":
        shapes[f"{layer}.self_attn.{name}_proj.weight"] = (4096, 4096)
    shapes |= {f"{layer}.mlp.{name}_proj.weight": (11008, 4096) for name in ("gate", "up")}
    shapes[f"{layer}.mlp.down_proj.weight"] = (4096, 11008)
    save_file({name: np.resize(pattern, shape) for name, shape in shapes.items()}, folder / "model.safetensors")
    return folder
