"""A GGUF file gives the same model as the folder it was made from, and its own numbers bit-exactly."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.errors import CheckpointError, ForedraftError, UnsupportedModelError
from foredraft_exporter import models
from foredraft_exporter.models.rope import rotary_tables
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.sources.gguf_header import read_header
from foredraft_exporter.sources.mapped import MappedFile
from foredraft_exporter.weights.blocks import BlockFormat
from foredraft_exporter.weights.weight_plan import plan
from tests.fixtures import BOS, CHAT_TEMPLATE, EOS, tiny_config, tiny_gguf, tiny_tensors


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_names_and_rows_are_hugging_faces(tmp_path: Path, model_type: str, kind: str) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", kind, model_type=model_type))
    expected = tiny_tensors(tiny_config(model_type))
    assert set(checkpoint.names()) == set(expected)
    tolerance = {"F32": 0, "F16": 1e-3, "BF16": 1e-2}[kind]
    for name, value in expected.items():
        assert checkpoint.shape(name) == value.shape
        np.testing.assert_allclose(checkpoint.read(name), value, rtol=tolerance, atol=tolerance / 10)
        np.testing.assert_array_equal(checkpoint.read_rows(name, 5, 30), checkpoint.read(name)[5:30])


def test_biases_of_a_permuted_model(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "F32", attention_bias=True, mlp_bias=True)
    checkpoint = open_checkpoint(path)
    expected = tiny_tensors(tiny_config(attention_bias=True, mlp_bias=True))
    for name, value in expected.items():
        np.testing.assert_array_equal(checkpoint.read(name), value, err_msg=name)


@pytest.mark.parametrize(("kind", "form"), [
    ("Q4_0", BlockFormat(4, False)), ("Q4_1", BlockFormat(4, True)), ("Q8_0", BlockFormat(8, False)),
    ("Q5_1", None), ("F16", None),
])  # fmt: skip
def test_blocks_are_the_files_own_numbers(tmp_path: Path, kind: str, form: BlockFormat | None) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", kind))
    for name in ("model.layers.1.self_attn.q_proj.weight", "model.layers.2.mlp.down_proj.weight"):
        assert checkpoint.block_format(name) == form
        blocks, rows = checkpoint.blocks(name, 8, 40), checkpoint.read_rows(name, 8, 40)
        if form is None:
            assert blocks is None
            continue
        assert blocks is not None and blocks.format == form
        np.testing.assert_allclose(blocks.values(), rows, rtol=1e-6, atol=1e-7)
    assert checkpoint.block_format("model.norm.weight") is None


def test_codes_and_scales_bit_for_bit(tmp_path: Path) -> None:
    """Against the raw bytes of an unpermuted matrix: scale, minimum, then 16 low and 16 high nibbles."""
    path = tiny_gguf(tmp_path / "m.gguf", "Q4_1")
    stored = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.ffn_up.weight")
    raw = stored.data.reshape(96, 2, 20)
    blocks = open_checkpoint(path).blocks("model.layers.0.mlp.up_proj.weight", 0, 96)
    assert blocks is not None and blocks.min is not None
    assert blocks.scale.tobytes() == raw[..., 0:2].tobytes()
    assert blocks.min.tobytes() == raw[..., 2:4].tobytes()
    codes = blocks.codes.reshape(96, 2, 32)
    np.testing.assert_array_equal(codes[..., :16] | codes[..., 16:] << 4, raw[..., 4:])


def test_info(tiny_gguf_file: Path) -> None:
    info = open_checkpoint(tiny_gguf_file).info
    assert info.name == "tiny"
    assert info.license == {"id": "apache-2.0"}
    assert info.chat_template == CHAT_TEMPLATE
    assert info.generation == {"bos_token_id": BOS, "eos_token_ids": [EOS], "add_bos": True, "sampling": {}}
    assert info.config["rms_norm_eps"] == 1e-5


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "smollm3"])
def test_decoder_equals_the_folders(tmp_path: Path, model_type: str) -> None:
    config = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", model_type=model_type)).info.config
    assert models.decoder(config) == models.decoder(tiny_config(model_type))


def test_llama3_frequency_factors(tmp_path: Path) -> None:
    """Llama 3.1 files carry their scaling as a tensor of divisors."""
    divisors = np.linspace(1, 8, 8, dtype=np.float32)
    config = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": divisors})).info.config
    cos, _ = rotary_tables(config, models.decoder(config))
    angles = np.arange(256)[:, None] * 10000.0 ** (-np.arange(0, 16, 2) / 16) / divisors
    np.testing.assert_allclose(cos, np.cos(angles), atol=1e-6)


def test_a_tensor_without_a_place(tmp_path: Path) -> None:
    extra = {"blk.0.ffn_gate_inp.weight": np.zeros((4, 64), np.float32)}
    with pytest.raises(UnsupportedModelError, match="ffn_gate_inp"):
        open_checkpoint(tiny_gguf(tmp_path / "m.gguf", extra=extra))


def test_yarn_is_understood(tmp_path: Path) -> None:
    names = {"type": "yarn", "factor": 4.0, "original_context_length": 64, "attn_factor": 1.0}
    names |= {"yarn_beta_fast": 16.0}
    metadata = {f"llama.rope.scaling.{name}": value for name, value in names.items()}
    config = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", metadata=metadata)).info.config
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0}
    assert config["rope_parameters"] == {**expected, "rope_theta": 10000.0}
    metadata["llama.rope.scaling.attn_factor"] = 1.5
    with pytest.raises(UnsupportedModelError, match="attn_factor"):
        open_checkpoint(tiny_gguf(tmp_path / "n.gguf", metadata=metadata))


@pytest.mark.parametrize(("metadata", "message"), [
    ({"llama.expert_count": 8}, "expert_count"),
    ({"llama.logit_scale": 0.5}, "logit_scale"), ({"llama.attention.causal": False}, "attention.causal"),
    ({"llama.rope.scaling.yarn_ext_factor": 1.0}, "yarn_ext_factor"),
    ({"llama.rope.scaling.attn_factor": 0.0}, "attn_factor"),
    ({"llama.tensor_data_layout": "reference"}, "tensor_data_layout"),
    ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}, "longrope"),
])  # fmt: skip
def test_settings_that_change_the_function(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(ForedraftError, match=message):
        open_checkpoint(tiny_gguf(tmp_path / "m.gguf", metadata=metadata))


@pytest.mark.parametrize("metadata", [
    {"attention.causal": True}, {"logit_scale": 1.0}, {"embedding_scale": 1.0, "residual_scale": 1.0},
    {"attention.clamp_kqv": 0.0}, {"expert_count": 0, "expert_used_count": 0}, {"final_logit_softcapping": 0.0},
    {"rope.scaling.type": "yarn", "rope.scaling.yarn_ext_factor": 1.0}, {"attention.sliding_window_pattern": 4},
    {"attention.sliding_window": 0}, {"tensor_data_layout": "Meta AI original pth"},
])  # fmt: skip
def test_settings_that_change_nothing(tmp_path: Path, metadata: dict[str, Any]) -> None:
    """As in a folder: what is refused by name is accepted with the value that switches it off."""
    own = {f"llama.{key}": value for key, value in metadata.items()}
    config = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", metadata=own)).info.config
    assert models.decoder(config) == models.decoder(tiny_config())


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "smollm3"])
def test_a_window_is_judged_as_a_folders(tmp_path: Path, model_type: str) -> None:
    """Accepted at a context that it does not cut, refused above with the context that is possible."""
    window = {f"{model_type}.attention.sliding_window": 128}
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", "F32", model_type=model_type, metadata=window))
    expected = models.decoder(tiny_config(model_type), 128)
    assert models.decoder(checkpoint.info.config, 128) == expected
    assert {part for m in plan(checkpoint, expected, "fp32").matrices for part in m.parts} <= set(checkpoint.names())
    for name, value in tiny_tensors(tiny_config(model_type)).items():
        np.testing.assert_array_equal(checkpoint.read(name), value, err_msg=name)
    folder = {"sliding_window": 128} | ({"use_sliding_window": True} if model_type != "llama" else {})
    folder |= {"max_window_layers": 0} if model_type.startswith("qwen") else {}
    with pytest.raises(UnsupportedModelError, match="--context 128") as of_folder:
        models.decoder(tiny_config("mistral" if model_type == "llama" else model_type, **folder))
    with pytest.raises(UnsupportedModelError, match="--context 128") as of_gguf:
        models.decoder(checkpoint.info.config)
    told = str(of_gguf.value).removeprefix(f"{tmp_path / 'm.gguf'}: {model_type}.attention.")
    assert told == str(of_folder.value).removeprefix("config: ")


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "smollm3"])
def test_a_window_as_long_as_the_context_hides_nothing(tmp_path: Path, model_type: str) -> None:
    window = {f"{model_type}.attention.sliding_window": 256}
    config = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", model_type=model_type, metadata=window)).info.config
    assert models.decoder(config) == models.decoder(tiny_config(model_type))


def test_linear_scaling_is_understood(tmp_path: Path) -> None:
    metadata = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", metadata=metadata)).info.config
    assert config["rope_parameters"] == {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}


def test_unknown_architecture_lists_the_known(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=r"mamba.*llama, qwen2, qwen3, smollm3"):
        open_checkpoint(tmp_path / "m.gguf")


def _header(tensors: int, entries: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest


def _text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


@pytest.mark.parametrize(("data", "message"), [
    (b"GGML" + b"\0" * 64, "no GGUF"),
    (_header(0, 0, version=1), "version 1"),
    (_header(0, 0, version=3 << 24), "version"),
    (_header(1 << 60, 0), "tensors"),
    (_header(0, 1 << 60), "metadata entries"),
    (_header(0, 1, _text(b"a", 1 << 62) + b"\0" * 32), "bytes of text"),
    (_header(0, 1, _text(b"a") + struct.pack("<IIQ", 9, 4, 1 << 61) + b"\0" * 32), "array elements"),
    (_header(0, 1, _text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 61) + b"\0" * 32), "strings"),
    (_header(0, 1, _text(b"a") + struct.pack("<IIQ", 9, 9, 1) + b"\0" * 32), "array of"),
    (_header(0, 1, _text(b"a") + struct.pack("<I", 77) + b"\0" * 32), "type 77"),
    (_header(1, 0, _text(b"t") + struct.pack("<IQIQ", 1, 4, 99, 0) + b"\0" * 32), "unknown type 99"),
    (_header(1, 0, _text(b"t") + struct.pack("<IQIQ", 1, 4096, 0, 0) + b"\0" * 32), "truncated"),
    (_header(1, 0, _text(b"t") + struct.pack("<I", 1 << 31) + b"\0" * 64), "dimensions"),
    (_header(1, 0, _text(b"t") + struct.pack("<IQIQ", 1, 0, 0, 0) + b"\0" * 32), "not possible"),
])  # fmt: skip
def test_hostile_headers(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(MappedFile(tmp_path / "m.gguf"))
    assert "m.gguf" in str(caught.value)


def test_lfs_pointer(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        open_checkpoint(tmp_path / "m.gguf")


def test_truncated_file(tiny_gguf_file: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(tiny_gguf_file.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"m\.gguf: is truncated"):
        open_checkpoint(tmp_path / "m.gguf")


@settings(max_examples=150)
@given(position=st.integers(0, 9000), byte=st.integers(0, 255), cut=st.integers(0, 20000))
def test_any_damage_is_ours(tiny_gguf_file: Path, tmp_path: Path, position: int, byte: int, cut: int) -> None:
    data = bytearray(tiny_gguf_file.read_bytes())
    data[position] = byte
    (tmp_path / "m.gguf").write_bytes(data[: len(data) - cut])
    with contextlib.suppress(ForedraftError):
        open_checkpoint(tmp_path / "m.gguf").tokenizer_json()
