"""The reference in pieces is transformers' own model as a whole, for every architecture and format."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foredraft.errors import CheckpointError, ForedraftError
from foredraft_exporter.parity import torch_reference as reference
from foredraft_exporter.parity.torch_reference import load_reference
from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.fixtures import tiny_checkpoint, tiny_gguf

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOKENS = [256, *range(40, 77)]
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
]


def whole_model(folder: Path) -> Any:
    """The folder as anybody would load it."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def assert_same(folder: Path, context: int = 256) -> None:
    ours, model = load_reference(open_checkpoint(folder), context), whole_model(folder)
    after: list[Any] = []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda _module, _inputs, output: after.append(output))
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS])).logits[0].numpy()
        states = [model.model.norm(state)[0].numpy() for state in after]
    readouts = ours.readouts(TOKENS, (1, 2, 4))
    for exit_, readout in zip((1, 2, 4), readouts, strict=True):
        np.testing.assert_allclose(readout, states[exit_ - 1], atol=1e-5)
    np.testing.assert_allclose(ours.logits(readouts[-1]), expected, atol=1e-5)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
def test_architectures(tmp_path: Path, model_type: str) -> None:
    assert_same(tiny_checkpoint(tmp_path / "model", model_type))


def test_tied_biased_and_sharded(tmp_path: Path) -> None:
    options = {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    assert_same(tiny_checkpoint(tmp_path / "model", shards=2, **options))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaled_rotation(tmp_path: Path, scaling: dict[str, Any]) -> None:
    assert_same(tiny_checkpoint(tmp_path / "model", rope_scaling=scaling))


def test_dynamic_rotation_is_that_of_the_longest_text(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model", rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    fixed, model = load_reference(open_checkpoint(folder), 512), whole_model(folder)
    tokens = (TOKENS * 14)[:512]
    with torch.inference_mode():
        short, full = (model(torch.tensor([part])).logits[0].numpy() for part in (tokens[:64], tokens))
    for part in (tokens[:64], tokens):
        own = fixed.logits(fixed.readouts(part, [4])[0])
        np.testing.assert_allclose(own, full[: len(part)], atol=1e-4)
    assert np.abs(short - full[:64]).max() > 0.1  # what transformers itself would do to a short text


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "smollm3"])
def test_gguf_is_the_folder_it_was_made_of(tmp_path: Path, model_type: str) -> None:
    folder = tiny_checkpoint(tmp_path / "model", model_type)
    file = tiny_gguf(tmp_path / "model.gguf", "F32", model_type=model_type)
    own, other = (load_reference(open_checkpoint(source), 256) for source in (folder, file))
    np.testing.assert_allclose(own.readouts(TOKENS, [2, 4]), other.readouts(TOKENS, [2, 4]), atol=1e-5)


def test_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    with pytest.raises(ForedraftError, match=r"needs torch; install it with: pip install 'foredraft\[reference\]'"):
        reference.require_libraries()


def test_old_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "4.56.1")
    with pytest.raises(ForedraftError, match=r"needs transformers 5 or later, found 4\.56\.1"):
        reference.require_libraries()


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    monkeypatch.setattr(reference, "_available_memory", lambda: 10_000)
    with pytest.raises(ForedraftError, match=r"needs 0\.001 GB of memory for float32 weights, and 0\.000 GB are"):
        load_reference(open_checkpoint(tiny_folder), 256)


def test_damaged_weights(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model", dtype=np.float16)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-2:] = b"\x00\x7e"  # a float16 NaN
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"tensor 'model\.\S+' has values that are NaN or infinite"):
        load_reference(open_checkpoint(folder), 256)
