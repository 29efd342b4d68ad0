"""A GGUF in parts is the model of the whole file, from whichever part it is opened; parts that do not belong together
are refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.fixtures import tiny_gguf


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three parts of the tiny model."""
    tiny_gguf(tmp_path / "split" / "tiny.gguf", part_tensors=15)
    return sorted((tmp_path / "split").iterdir())


def test_the_names(parts: list[Path]) -> None:
    assert [path.name for path in parts] == [f"tiny-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


@pytest.mark.parametrize("opened", [0, 1, 2, "folder"])
def test_every_way_in_gives_the_whole_model(tmp_path: Path, parts: list[Path], opened: int | str) -> None:
    checkpoint = open_checkpoint(parts[0].parent if isinstance(opened, str) else parts[opened])
    whole = open_checkpoint(tiny_gguf(tmp_path / "tiny.gguf"))
    assert checkpoint.info == whole.info
    assert checkpoint.tokenizer_json() == whole.tokenizer_json()
    assert set(checkpoint.names()) == set(whole.names())
    for name in whole.names():
        np.testing.assert_array_equal(checkpoint.read(name), whole.read(name))
    checkpoint.release()


def test_a_first_part_without_tensors(tmp_path: Path) -> None:
    first = tiny_gguf(tmp_path / "split" / "tiny.gguf", part_tensors=15, empty_first=True)
    assert first.name == "tiny-00001-of-00004.gguf"
    whole = open_checkpoint(tiny_gguf(tmp_path / "tiny.gguf"))
    assert set(open_checkpoint(first).names()) == set(whole.names())


def test_a_part_that_is_linked_alone(tmp_path: Path, parts: list[Path]) -> None:
    for name in ("mine.gguf", parts[0].name):
        (tmp_path / name).symlink_to(parts[0])
        assert len(open_checkpoint(tmp_path / name).names()) == 39


def test_two_models_in_a_folder(parts: list[Path]) -> None:
    tiny_gguf(parts[0].with_name("other.gguf"))
    with pytest.raises(CheckpointError, match=r"2 GGUF models \(other\.gguf, tiny-00001-of-00003\.gguf\)"):
        open_checkpoint(parts[0].parent)


def _missing(parts: list[Path]) -> tuple[Path, str]:
    parts[1].unlink()
    return parts[1], r"missing part \(2 of 3 are there\)"


def _renamed(parts: list[Path]) -> tuple[Path, str]:
    parts[0].rename(parts[0].with_name("first.gguf"))
    return parts[0].with_name("first.gguf"), r"one of 3 parts.*NAME-00001-of-00003\.gguf"


def _other_total(parts: list[Path]) -> tuple[Path, str]:
    parts[0].rename(parts[0].with_name("tiny-00001-of-00004.gguf"))
    return parts[0].with_name("tiny-00001-of-00004.gguf"), "one of 3 parts"


def _truncated(parts: list[Path]) -> tuple[Path, str]:
    parts[2].write_bytes(parts[2].read_bytes()[:-100])
    return parts[2], "is truncated"


def _swapped(parts: list[Path]) -> tuple[Path, str]:
    third = parts[2].read_bytes()
    parts[2].write_bytes(parts[1].read_bytes())
    parts[1].write_bytes(third)
    return parts[1], r"split\.no: got 2, expected 1"


def _of_a_larger_model(parts: list[Path]) -> tuple[Path, str]:
    other = tiny_gguf(parts[0].parent / "other" / "tiny.gguf", part_tensors=16, attention_bias=True)
    parts[1].write_bytes(other.with_name("tiny-00002-of-00004.gguf").read_bytes())
    return parts[1], r"split\.count: got 4, expected 3"


def _repeated(parts: list[Path]) -> tuple[Path, str]:
    _set(parts[1], b"split.no", 2)
    parts[2].write_bytes(parts[1].read_bytes())
    _set(parts[1], b"split.no", 1)
    return parts[2], r"tensor '.*' is also in tiny-00002-of-00003\.gguf"


def _fewer_tensors(parts: list[Path]) -> tuple[Path, str]:
    for path in parts:
        _set(path, b"split.tensors.count", 40)
    return parts[0], r"split\.tensors\.count: got 40, expected 39, which the 3 parts have"


def _no_number(parts: list[Path]) -> tuple[Path, str]:
    parts[1].write_bytes(parts[1].read_bytes().replace(b"split.no", b"split.xx"))
    return parts[1], r"split\.no: missing"


def _set(path: Path, key: bytes, value: int) -> None:
    """Another value for a metadata key, whose type is 16 (2) or 32 bits wide (5)."""
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
    (kind,) = struct.unpack_from("<I", data, at)
    struct.pack_into({2: "<H", 5: "<i"}[kind], data, at + 4, value)
    path.write_bytes(data)


FAULTS = [
    _missing, _renamed, _other_total, _truncated, _swapped, _of_a_larger_model, _repeated, _fewer_tensors, _no_number,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_part_at_fault_is_named(parts: list[Path], fault: Callable[[list[Path]], tuple[Path, str]]) -> None:
    named, message = fault(parts)
    source = parts[0] if parts[0].exists() else named
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(source)
    assert str(caught.value).startswith(f"{named}: ")


@pytest.mark.parametrize("count", ["3", 0, 3.0])
def test_a_count_that_is_none(tmp_path: Path, count: object) -> None:
    with pytest.raises(CheckpointError, match=rf"m\.gguf: split\.count: got {count!r}"):
        open_checkpoint(tiny_gguf(tmp_path / "m.gguf", metadata={"split.count": count}))


def test_one_part_is_a_whole(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", metadata={"split.count": 1})
    assert open_checkpoint(path).info.name == "m"
