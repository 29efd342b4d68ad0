"""A Hugging Face folder is read right: every dtype, shards, rows, and all that its sidecar files say."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.fixtures import BOS, CHAT_TEMPLATE, EOS, tiny_checkpoint, tiny_config, tiny_tensors


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shards", [1, 3])
def test_every_tensor_reads_as_stored(tmp_path: Path, dtype: type, shards: int) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path / "m", shards=shards, dtype=dtype))
    expected = tiny_tensors(tiny_config())
    assert set(checkpoint.names()) == set(expected)
    for name, value in expected.items():
        stored = value.astype(dtype).astype(np.float32)
        assert checkpoint.shape(name) == value.shape
        assert checkpoint.block_format(name) is None
        np.testing.assert_array_equal(checkpoint.read(name), stored)
        np.testing.assert_array_equal(checkpoint.read_rows(name, 3, 17), stored[3:17])
    checkpoint.release()
    np.testing.assert_array_equal(checkpoint.read("model.norm.weight").shape, (64,))


def test_info(tiny_folder: Path) -> None:
    info = open_checkpoint(str(tiny_folder)).info
    assert info.name == tiny_folder.name
    assert info.config["model_type"] == "llama"
    assert info.chat_template == CHAT_TEMPLATE
    assert info.license == {"id": "apache-2.0"}
    assert info.generation == {"bos_token_id": BOS, "eos_token_ids": [EOS], "add_bos": True, "sampling": {}}


def test_tokenizer_is_taken_as_it_is(tiny_folder: Path) -> None:
    assert open_checkpoint(tiny_folder).tokenizer_json() == (tiny_folder / "tokenizer.json").read_bytes()


def test_every_end_of_text_counts(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", eos_token_id=[257, 261])
    ends = {"eos_token_id": [262, 257], "do_sample": True, "top_p": 0.9}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|user|>"}}))
    generation = open_checkpoint(folder).info.generation
    assert generation["eos_token_ids"] == [258, 257, 261, 262]  # the tokenizer's own first
    assert generation["sampling"] == {"top_p": 0.9}


@pytest.mark.parametrize(("explicit", "processor", "expected"), [
    (None, False, False), (None, True, True), (False, True, False), (True, False, True),
])  # fmt: skip
def test_bos_is_decided_once(tmp_path: Path, explicit: bool | None, processor: bool, expected: bool) -> None:
    """An explicit flag wins; otherwise it is what tokenizer.json's own post-processor does."""
    folder = tiny_checkpoint(tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "add_bos_token": explicit}))
    if processor:
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        special = {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}}
        template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
        tokenizer["post_processor"] = {"type": "Sequence", "processors": [template]}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert open_checkpoint(folder).info.generation["add_bos"] is expected


def test_template_from_its_own_file_wins(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert open_checkpoint(folder).info.chat_template == "{{ messages }}"


def test_default_of_several_templates(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert open_checkpoint(folder).info.chat_template == "D"


def test_shards_without_an_index(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", shards=2)
    (folder / "model.safetensors.index.json").unlink()
    assert len(open_checkpoint(folder).names()) == 39
