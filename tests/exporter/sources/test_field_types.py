"""Every field of every file of a folder, with every kind of wrong value: the model is taken, or there is one error of
ours that names file and key. It comes before any weight is read.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from foredraft_exporter.build import prepare
from tests.exporter.sources.outcomes import outcome
from tests.fixtures import BOS, CHAT_TEMPLATE, EOS, tiny_checkpoint, tiny_config

Path_ = tuple[str | int, ...]

DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]
WRONG: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**64, -(10**40), 0.0, 0.5, -2.5, 1e300, math.nan, -math.inf, "", "x",
    "\ud800", "y" * 5000, [], ["x"], [3, None], {}, {"x": 1}, {"content": 3}, DEEP,
)  # fmt: skip

TOKEN = {"content": "<s>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
# the files of a folder, with every key that is read
FILES: dict[str, dict[str, Any]] = {
    "config.json": {
        "rope_scaling": {
            "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 128, "beta_fast": 32,
            "beta_slow": 1, "attention_factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "truncate": True,
            "finetuned": True, "partial_rotary_factor": 1.0,
        },
        "rope_parameters": {"rope_theta": 10000.0},
        "rope_theta": 10000.0, "partial_rotary_factor": 1.0, "original_max_position_embeddings": 128, "head_dim": 16,
        "sliding_window": 256, "layer_types": ["full_attention"] * 4, "max_window_layers": 4, "no_rope_layers": None,
        "attention_bias": False, "mlp_bias": False, "auto_map": None, "quantization_config": None, "num_experts": 0,
        "final_logit_softcapping": None, "eos_token_id": [EOS],
    },
    "generation_config.json": {
        "bos_token_id": BOS, "eos_token_id": [EOS, 261], "do_sample": True, "temperature": 0.6, "top_k": 20,
        "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.0,
    },
    "tokenizer_config.json": {
        "bos_token": TOKEN, "eos_token": "</s>", "unk_token": None, "pad_token": "</s>", "add_bos_token": True,
        "image_token": "<s>", "additional_special_tokens": ["<s>", TOKEN],
        "extra_special_tokens": {"tool_token": "<s>"},
        "added_tokens_decoder": {str(BOS): TOKEN}, "chat_template": [{"name": "default", "template": CHAT_TEMPLATE}],
    },
    "special_tokens_map.json": {"bos_token": TOKEN, "eos_token": "</s>", "additional_special_tokens": ["<s>"]},
    "added_tokens.json": {"<s>": BOS},
    "chat_template.json": {"chat_template": CHAT_TEMPLATE},
    "model.safetensors.index.json": {},
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


_MOST_KEYS = 38
_OF_MORE = 3
"""So many members are looked at where an object has more than ``_MOST_KEYS``, as vocabularies have."""


def _places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The ways to every member, at any depth; of a list to its first, of a vocabulary to some."""
    if path:
        yield path
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys[: 1 if isinstance(value, list) else _OF_MORE if len(keys) > _MOST_KEYS else None]:
        yield from _places(value[key], (*path, key))


def _get(value: Any, path: Path_) -> Any:
    for key in path:
        value = value[key]
    return value


def _put(value: Any, path: Path_, new: object) -> Any:
    made = copy.deepcopy(value)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return made


def _folder(folder: Path, model_type: str = "llama", **changes: Any) -> tuple[Path, dict[str, dict[str, Any]]]:
    tiny_checkpoint(folder, model_type, shards=2)
    files = json.loads(json.dumps(FILES))  # no two places share a value
    files["config.json"] = tiny_config(model_type) | (files["config.json"] if model_type == "llama" else {}) | changes
    files["model.safetensors.index.json"] = json.loads((folder / "model.safetensors.index.json").read_text())
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    return folder, files


def _fuzz(
    folder: Path, name: str, value: dict[str, Any], named: bool = True, only: Sequence[str] | None = None
) -> set[str]:
    """What is said of the file with every wrong value in every place. Of a wrong type it names the very key."""
    assert outcome(folder) == ""
    said = set()
    for path in _places(value):
        keys = [part for part in path if isinstance(part, str)]
        if only is not None and keys[0] not in only:
            continue
        old = _get(value, path)
        for new in WRONG:
            (folder / name).write_text(json.dumps(_put(value, path, new)))
            said.add(outcome(folder, folder / name, (keys if type(new) is type(old) else keys[-1:]) if named else ()))
    (folder / name).write_text(json.dumps(value))
    return said - {""}


@pytest.mark.parametrize("name", FILES)
def test_every_field_of_a_folder(tmp_path: Path, name: str) -> None:
    folder, files = _folder(tmp_path / "m")
    if name in ("special_tokens_map.json", "added_tokens.json"):
        files["tokenizer_config.json"] = {"add_bos_token": True}  # else it knows all tokens, and these do not count
        (folder / "tokenizer_config.json").write_text(json.dumps(files["tokenizer_config.json"]))
    assert len(_fuzz(folder, name, files[name])) > 3


@pytest.mark.parametrize(("model_type", "changes"), [
    ("llama", {"rope_scaling": LLAMA3, "rope_parameters": None}),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "rope_parameters": None}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 256, "max_window_layers": 2}),
    ("qwen3", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6, "factor": 2}}),
    ("smollm3", {"no_rope_layers": [1, 1, 1, 0], "use_sliding_window": False, "layer_types": None}),
    ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 4}),
    ("mistral", {"sliding_window": 256}),
], ids=str)  # fmt: skip
def test_every_field_of_other_configs(tmp_path: Path, model_type: str, changes: dict[str, Any]) -> None:
    folder, files = _folder(tmp_path / "m", model_type, **changes)
    said = _fuzz(folder, "config.json", files["config.json"], only=list(changes))
    assert len(said) > 3 * len([value for value in changes.values() if value is not None])


def test_every_field_of_the_tokenizer(tmp_path: Path) -> None:
    """Its fields are the library's to judge; what it says is passed on with the file's name."""
    folder, _ = _folder(tmp_path / "m")
    value = json.loads((folder / "tokenizer.json").read_text())
    value["model"]["vocab"] = {"a": 97} | value["model"]["vocab"]
    assert len(_fuzz(folder, "tokenizer.json", value, named=False)) > 10


BROKEN = {
    "empty": b"", "cut": b'{"eos_token_id": [1, ', "latin-1": '{"x": "\u00e9"}'.encode("latin-1"), "a list": b"[]",
    "a number": b"3", "nested": b'{"x": ' + b"[" * 100_000, "digits": b'{"x": ' + b"9" * 10_000 + b"}",
    "binary": bytes(range(256)), "utf-16 cut": '{"x": 1}'.encode("utf-16")[:-1],
}  # fmt: skip


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("name", [*FILES, "tokenizer.json"])
def test_a_file_that_is_no_json(tmp_path: Path, name: str, data: bytes) -> None:
    folder, _ = _folder(tmp_path / "m")
    (folder / name).write_bytes(data)
    assert outcome(folder, folder / name) != ""


@pytest.mark.parametrize("name", [*FILES, "tokenizer.json", "chat_template.jinja"])
def test_a_folder_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    folder, _ = _folder(tmp_path / "m")
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    assert "cannot be read" in outcome(folder, folder / name)


def test_a_template_of_another_encoding(tmp_path: Path) -> None:
    folder, _ = _folder(tmp_path / "m")
    (folder / "chat_template.jinja").write_bytes(CHAT_TEMPLATE.encode() + "é".encode("latin-1"))
    assert "chat_template.jinja: is not text in UTF-8 (byte " in outcome(folder, folder / "chat_template.jinja")
    (folder / "chat_template.jinja").write_bytes(CHAT_TEMPLATE.encode("utf-16"))
    assert outcome(folder, folder / "chat_template.jinja") != ""


def test_a_model_card_never_stands_in_the_way(tmp_path: Path) -> None:
    """Whatever its encoding; a folder beside it may be called LICENSES."""
    folder, _ = _folder(tmp_path / "m")
    (folder / "LICENSES").mkdir()
    (folder / "LICENSE.txt").write_bytes("\u00a9".encode("latin-1"))
    for data in BROKEN.values():
        (folder / "README.md").write_bytes(data)
        assert outcome(folder) == ""
    (folder / "README.md").write_bytes("\ufeff---\r\nlicense: mit\r\n---\r\n\u00e9".encode())
    plan = prepare(folder)
    assert plan.checkpoint.info.license == {"id": "mit", "files": [str(folder / "LICENSE.txt")]}
