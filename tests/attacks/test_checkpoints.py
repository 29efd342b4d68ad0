"""Hostile source models: refused from their headers alone, with no tensor read and no code run."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import pytest

from foredraft.bundle.tensor_file import parse_header
from foredraft.errors import BundleError, CheckpointError
from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.fixtures import tiny_checkpoint, tiny_gguf


class _Evil:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("/tmp/foredraft-was-here"),))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth", "model.pt", "model.pkl", "model.ckpt"])
def test_pickled_weights(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(_Evil()))
    with pytest.raises(CheckpointError, match="pickled weights are never read, since opening them runs code"):
        open_checkpoint(tmp_path / name)
    assert not Path("/tmp/foredraft-was-here").exists()


def test_pickled_weights_in_a_folder(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Evil()))
    with pytest.raises(CheckpointError, match="pickled"):
        open_checkpoint(folder)
    assert not Path("/tmp/foredraft-was-here").exists()


def _safetensors(header: bytes, length: int | None = None, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def _entry(**changes: object) -> bytes:
    return json.dumps({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}}).encode()


SAFETENSORS = [
    (_safetensors(b"{}", 2**63), "header"),
    (_safetensors(b"{}", 200_000_000), "header"),
    (b"\0\0", "header"),
    (_safetensors(b"[" * 50_000), "JSON|nested"),
    (_safetensors(b'{"t": 1, "t": 1}'), "duplicate"),
    (_safetensors(_entry(shape=[2**40, 2**40]), data=b"1234"), "expected 4835703278458516698824704 for"),
    (_safetensors(_entry(shape=[-1]), data=b"1234"), "natural numbers"),
    (_safetensors(_entry(shape=[1.0]), data=b"1234"), "natural numbers"),
    (_safetensors(_entry(shape=[True]), data=b"1234"), "natural numbers"),
    (_safetensors(_entry(data_offsets=[4, 8]), data=b"12345678"), "hole"),
    (_safetensors(_entry(data_offsets=[0, 4])), "truncated"),
    (_safetensors(_entry(), data=b"12345678"), "no tensor"),
    (_safetensors(_entry(dtype="F99"), data=b"1234"), "dtype F99"),
]


@pytest.mark.parametrize(("data", "message"), SAFETENSORS)
def test_safetensors_headers(tmp_path: Path, data: bytes, message: str) -> None:
    folder = tiny_checkpoint(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


@pytest.mark.parametrize(("data", "message"), SAFETENSORS)
def test_safetensors_headers_in_a_bundle(data: bytes, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        parse_header(memoryview(data), "weights.safetensors")


def _gguf(version: int = 3, tensors: int = 0, entries: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGML" + bytes(100), "is no GGUF file"),
        (_gguf(version=99), "GGUF version 99"),
        (_gguf(tensors=2**63), "says it has 9223372036854775808 tensors, but only"),
        (_gguf(entries=2**40, rest=bytes(100)), "says it has 1099511627776 metadata entries, but only"),
        (_gguf(entries=1, rest=struct.pack("<Q", 2**50) + bytes(50)), "bytes of text, but only"),
        (
            _gguf(entries=1, rest=_text(b"k") + struct.pack("<IIQ", 9, 4, 2**60) + bytes(50)),
            "array elements, but only",
        ),
        (_gguf(entries=1, rest=_text(b"k") + struct.pack("<I", 77) + bytes(50)), "unknown metadata type 77"),
        (
            _gguf(entries=2, rest=(_text(b"k") + struct.pack("<IB", 0, 1)) * 2 + bytes(50)),
            "metadata key 'k' appears twice",
        ),
        (_gguf(tensors=1, rest=_text(b"t") + struct.pack("<I", 99) + bytes(60)), "has 99 dimensions"),
        (b"GGUF", "only 0 bytes are left"),
    ],
)
def test_gguf_headers(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path / "x.gguf")


def test_a_truncated_gguf(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(CheckpointError, match="is truncated"):
        open_checkpoint(path)
