"""Bad checkpoints are refused before work starts, in one message that names the file and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.errors import CheckpointError, ForedraftError
from foredraft_exporter.build import prepare
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.sources.mapped import MappedFile
from foredraft_exporter.sources.safetensors_header import read_header
from tests.fixtures import tiny_checkpoint, tiny_gguf

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123456\n"
SHARD = "model-00002-of-00003.safetensors"


def _truncate(folder: Path) -> str:
    data = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(data[: len(data) - 100])
    return "truncated"


def _remove_shard(folder: Path) -> str:
    (folder / SHARD).unlink()
    return "missing shard"


def _remove_shard_and_index(folder: Path) -> str:
    (folder / "model.safetensors.index.json").unlink()
    return _remove_shard(folder)


def _pointer(folder: Path) -> str:
    (folder / SHARD).write_bytes(LFS)
    return "git lfs pull"


def _empty(folder: Path) -> str:
    (folder / SHARD).write_bytes(b"")
    return "empty"


def _long_header(folder: Path) -> str:
    (folder / SHARD).write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    return "header"


def _stale_shard(folder: Path) -> str:
    (folder / SHARD).write_bytes((folder / "model-00001-of-00003.safetensors").read_bytes())
    return "index"


FAULTS = [_truncate, _remove_shard, _remove_shard_and_index, _pointer, _empty, _long_header, _stale_shard]


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_shard_is_named(tmp_path: Path, fault: Callable[[Path], str]) -> None:
    folder = tiny_checkpoint(tmp_path / "m", shards=3)
    expected = fault(folder)
    with pytest.raises(CheckpointError, match=expected) as caught:
        open_checkpoint(folder)
    assert SHARD in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_pointer_among_the_small_files(tmp_path: Path, name: str) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    (folder / name).write_bytes(LFS)
    with pytest.raises(CheckpointError, match="git lfs pull") as caught:
        open_checkpoint(folder)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_or_malformed_small_file(tmp_path: Path, name: str) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    (folder / name).write_text("[1, 2")
    with pytest.raises(CheckpointError, match=f"{name}.*not valid JSON"):
        open_checkpoint(folder)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name}.*missing"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "model.ckpt"])
def test_pickle_is_never_read(tmp_path: Path, name: str) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / name)
    for source in (folder, folder / name):
        with pytest.raises(CheckpointError, match="safe_serialization=True") as caught:
            open_checkpoint(source)
        assert name in str(caught.value)


def test_index_that_points_outside(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", shards=2)
    index = {"weight_map": {"model.norm.weight": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="beside it"):
        open_checkpoint(folder)


def test_folder_without_weights(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no"):
        open_checkpoint(folder)


def _file(path: Path, entries: dict[str, object], data: int, raw: str | None = None) -> MappedFile:
    header = (raw or json.dumps(entries)).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * data)
    return MappedFile(path)


def _entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(("entries", "message"), [
    ({"a": _entry(0, 8, [2]), "b": _entry(4, 12, [2])}, "overlaps"),
    ({"a": _entry(0, 8, [2]), "b": _entry(12, 16, [1])}, "hole"),
    ({"a": _entry(4, 16, [3])}, "hole"),
    ({"a": _entry(0, 12, [3])}, "belong to no tensor"),
    ({"a": _entry(0, 20, [5])}, "truncated"),
    ({"a": _entry(0, 16, [3])}, "expected 12"),
    ({"a": _entry(0, 16, [-4])}, "natural"),
    ({"a": _entry(0, 16, [True, 4])}, "natural"),
    ({"a": _entry(0, 16, [4], "F33")}, "F33"),
    ({"a": {"shape": [4]}}, "dtype"),
    ({"a": 7}, "not an object"),
])  # fmt: skip
def test_safetensors_layout_is_checked(tmp_path: Path, entries: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_header(_file(tmp_path / "x.safetensors", entries, 16))


def test_name_that_appears_twice(tmp_path: Path) -> None:
    entry = json.dumps(_entry(0, 16, [4]))
    with pytest.raises(CheckpointError, match="twice"):
        read_header(_file(tmp_path / "x.safetensors", {}, 16, f'{{"a": {entry}, "a": {entry}}}'))


@settings(max_examples=150)
@given(position=st.integers(0, 4095), byte=st.integers(0, 255), cut=st.integers(0, 4096))
def test_any_damage_is_ours(tiny_folder: Path, tmp_path: Path, position: int, byte: int, cut: int) -> None:
    """A changed byte in the header or a shorter file reads or raises ``CheckpointError``."""
    data = bytearray((tiny_folder / "model.safetensors").read_bytes())
    data[position] = byte
    path = tmp_path / "x.safetensors"
    path.write_bytes(data[: len(data) - cut])
    try:
        read_header(MappedFile(path))
    except ForedraftError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I32", "F64"])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.embed_tokens.weight"])
def test_a_dtype_that_cannot_be_read_is_found_before_weights_are(tmp_path: Path, name: str, dtype: str) -> None:
    folder = tiny_checkpoint(tmp_path / "m")
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    begin, end = header[name]["data_offsets"]
    width = {"F8_E4M3": 1, "I32": 4, "F64": 8}[dtype]
    header[name] |= {"dtype": dtype, "shape": [(end - begin) // width]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    with pytest.raises(CheckpointError, match=f"tensor '{name}' has dtype {dtype}, expected F32, F16, BF16"):
        prepare(folder)


def test_a_gguf_type_that_cannot_be_read_is_found_before_weights_are(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "F16")
    prepare(path)
    data = path.read_bytes()
    name = b"output.weight"
    at = data.index(len(name).to_bytes(8, "little") + name) + 8 + len(name) + 4 + 16
    assert data[at : at + 4] == (1).to_bytes(4, "little")  # F16
    path.write_bytes(data[:at] + (25).to_bytes(4, "little") + data[at + 4 :])  # I16
    with pytest.raises(CheckpointError, match=r"m.gguf: tensor 'lm_head.weight' has type I16, which cannot be read"):
        prepare(path)
