"""Tokens and ends that any sidecar of a folder knows: the ids are those that transformers gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from foredraft.bundle.opening import Bundle
from foredraft.errors import CheckpointError
from foredraft.session import Session
from foredraft_exporter.build import export
from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.fixtures import byte_tokenizer, tiny_checkpoint

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [{"role": "user", "content": "hé <tool> <extra> [PAD]"}]
START, END, TOOL = 272, 273, 274
FULL = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}


def _decoder(*tokens: tuple[int, str]) -> dict[str, Any]:
    return {str(index): {"content": text, **FULL} for index, text in tokens}


BOTH = _decoder((START, "<|im_start|>"), (END, "<|im_end|>"))
NAMES = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
# file -> what it holds; tokenizer_config.json always has the template
SIDECARS: dict[str, dict[str, Any]] = {
    "only the config's decoder": {"tokenizer_config.json": {"added_tokens_decoder": BOTH, **NAMES}},
    "a decoder with a token that keeps its spaces": {
        "tokenizer_config.json": {
            "added_tokens_decoder": BOTH | {str(TOOL): {"content": "<tool>", **FULL, "lstrip": True, "rstrip": True}},
            **NAMES,
        }
    },
    "a decoder with a token that is not special": {
        "tokenizer_config.json": {
            "added_tokens_decoder": BOTH | {str(TOOL): {"content": "<tool>", **FULL, "special": False}},
            **NAMES,
        }
    },
    "a decoder beside a map that does not count": {
        "tokenizer_config.json": {"added_tokens_decoder": BOTH, **NAMES},
        "special_tokens_map.json": {"pad_token": "[PAD]"},
        "added_tokens.json": {"<tool>": TOOL},
    },
    "only the map": {
        "tokenizer_config.json": {},
        "special_tokens_map.json": {
            "bos_token": {"content": "<s>", **FULL},
            "eos_token": {"content": "<|im_end|>", **FULL},
            "additional_special_tokens": ["<|im_start|>"],
        },
    },
    "the map against the config": {
        "tokenizer_config.json": {"bos_token": "<|user|>", "eos_token": "</s>"},
        "special_tokens_map.json": NAMES | {"additional_special_tokens": ["<|im_start|>", "<tool>"]},
    },
    "added_tokens.json with names": {
        "tokenizer_config.json": NAMES,
        "added_tokens.json": {"<|im_start|>": START, "<|im_end|>": END, "<tool>": TOOL},
    },
    "the config's names alone": {
        "tokenizer_config.json": NAMES | {"pad_token": "[PAD]", "extra_special_tokens": ["<|im_start|>", "<extra>"]},
    },
    "a name of the model's own": {
        "tokenizer_config.json": NAMES | {"tool_token": "<tool>", "additional_special_tokens": ["<|im_start|>"]},
    },
    "all that tokenizer.json knows": {"tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>"}},
}


def _folder(path: Path, files: dict[str, Any], **overrides: Any) -> Path:
    folder = tiny_checkpoint(path, vocab_size=288, **overrides)
    (folder / "generation_config.json").unlink()
    for name, value in files.items():
        if name == "tokenizer_config.json":
            value = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHATML, **value}
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize("files", SIDECARS.values(), ids=SIDECARS)
def test_chat_ids_are_those_of_transformers(tmp_path: Path, files: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = _folder(tmp_path / "m", files)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    expected = theirs.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=True, return_dict=False)
    export(folder, tmp_path / "b")
    session = Session(Bundle.open(tmp_path / "b"), threads=1)
    assert session.encode(messages=MESSAGES) == expected
    assert theirs.convert_tokens_to_ids(theirs.eos_token) == open_checkpoint(folder).info.generation["eos_token_ids"][0]


def test_an_id_that_cannot_be_given_names_the_token(tmp_path: Path) -> None:
    decoder = _decoder((START, "<|im_start|>"), (280, "<|im_end|>"))
    folder = _folder(tmp_path / "m", {"tokenizer_config.json": {"added_tokens_decoder": decoder}})
    with pytest.raises(CheckpointError, match=r"'<\|im_end\|>' has id 280, but in .*tokenizer.json it has 273"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": ["<x>"]},
            "added_tokens_decoder: got a list of 1, expected an object",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"x": {"content": "<x>"}}},
            "decoder.x': expected the id",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"272": {}}},
            r"decoder\.272\.content: missing, expected",
        ),
        ("added_tokens.json", {"<x>": "272"}, "<x>: got '272', expected a whole number"),
        ("special_tokens_map.json", ["<x>"], "holds a list of 1, expected an object"),
        ("tokenizer.json", {"model": 1}, "not a tokenizer that can be read"),
    ],
)
def test_a_sidecar_of_another_form(tmp_path: Path, name: str, value: object, what: str) -> None:
    folder = _folder(tmp_path / "m", {})
    if name != "tokenizer_config.json":
        (folder / "tokenizer_config.json").unlink()
    (folder / name).write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=what) as caught:
        open_checkpoint(folder)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "end",
    ["<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|end_of_text|>"],
)
def test_a_known_control_token_ends_a_text(tmp_path: Path, end: str) -> None:
    folder = _folder(tmp_path / "m", {"tokenizer_config.json": {"added_tokens_decoder": _decoder((272, end))}})
    assert open_checkpoint(folder).info.generation["eos_token_ids"] == [257, 272]


def test_an_end_that_only_the_map_names(tmp_path: Path) -> None:
    files = {
        "tokenizer_config.json": {"eos_token": "<|user|>", "added_tokens_decoder": {}},
        "special_tokens_map.json": {"eos_token": "<|assistant|>"},
    }
    assert open_checkpoint(_folder(tmp_path / "m", files)).info.generation["eos_token_ids"] == [258, 257, 259]


def test_an_ordinary_word_that_looks_like_an_end_is_none(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "m", {})
    tokenizer: Tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken("<|im_ends|>", special=True)])
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    assert open_checkpoint(folder).info.generation["eos_token_ids"] == [257]
