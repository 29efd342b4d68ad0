"""Random and mutated headers: refused with our own error or read, within bounded time and memory; never a crash.

Each target is given ``FUZZ_EXAMPLES`` of them (default 500); set that and ``FUZZ_SEED`` for a longer or another run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, FileInfo, Manifest
from foredraft.bundle.onnx_external import check_external_data
from foredraft.bundle.signature import check_signature
from foredraft.bundle.tensor_file import arrays
from foredraft.databases.database import Database
from foredraft.distribution.pack import pack
from foredraft.distribution.sign import sign
from foredraft.distribution.tar import members
from foredraft.errors import BundleError, ForedraftError
from foredraft_exporter.sources.gguf_header import read_header as read_gguf
from foredraft_exporter.sources.mapped import MappedFile
from foredraft_exporter.sources.safetensors_header import read_header as read_safetensors
from tests.fixtures import tiny_gguf
from tests.runtime.distribution.made import graph, make_keys, safetensors
from tests.runtime.distribution.test_add import make_database

pytestmark = pytest.mark.slow

EXAMPLES, SEED = int(os.environ.get("FUZZ_EXAMPLES", "500")), int(os.environ.get("FUZZ_SEED", "0"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def _run(strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check so many examples. Without FUZZ_SEED the same ones each time."""
    seed(SEED)(settings(max_examples=EXAMPLES, database=None)(given(strategy)(check)))()


def _mutated(sound: bytes) -> st.SearchStrategy[bytes]:
    """The sound bytes with pieces overwritten, cut off or put in, mostly near the start, where headers are."""

    def apply(edits: list[tuple[int, bytes, bool]], cut: int) -> bytes:
        data = bytearray(sound)
        for at, piece, insert in edits:
            at %= len(data) or 1
            data[at : at if insert else at + len(piece)] = piece
        return bytes(data[: len(data) - cut % (len(data) or 1)] if cut else data)

    place = st.integers(0, min(len(sound), 400)) | st.integers(0, len(sound))
    edits = st.lists(st.tuples(place, st.binary(min_size=1, max_size=9), st.booleans()), max_size=4)
    return st.builds(apply, edits, st.just(0) | st.integers(0, len(sound))) | st.binary(max_size=300)


def _fuzz(sound: bytes, target: Callable[[bytes], object]) -> None:
    target(sound)

    def check(data: bytes) -> None:
        try:
            target(data)
        except ForedraftError as error:
            assert len(str(error)) < 2000
            assert "\n" not in str(error)

    _run(_mutated(sound), check)


def test_manifest_bytes(bundle: Path) -> None:
    _fuzz((bundle / FILE_NAME).read_bytes(), lambda data: Manifest.from_bytes(data, "x"))


def test_manifest_values(bundle: Path) -> None:
    """Any JSON in any place of a sound manifest."""
    value = json.loads((bundle / FILE_NAME).read_bytes())
    places = st.sampled_from(list(_places(value)))

    def check(edits: list[tuple[tuple[str | int, ...], object]]) -> None:
        edited = json.loads(json.dumps(value))
        for (*path, last), new in edits:
            inner = edited
            for key in path:
                inner = inner[key] if _has(inner, key) else {}
            if _has(inner, last):
                inner[last] = new
        try:
            manifest = Manifest.from_bytes(json.dumps(edited).encode(), "x")
        except BundleError:
            return
        assert Manifest.from_bytes(manifest.to_bytes(), "x") == manifest

    _run(st.lists(st.tuples(places, JSON), min_size=1, max_size=3), check)


def _has(value: object, key: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(key, int) and key < len(value)
    return isinstance(value, dict) and key in value


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _places(inner, (*path, key))
    return found


def test_safetensors_in_bundles() -> None:
    _fuzz(safetensors(64), lambda data: [array.sum() for array in arrays(memoryview(data), "x").values()])


def test_onnx() -> None:
    files = {"graphs/weights/w": FileInfo(100, "0" * 64)}
    _fuzz(graph("weights/w", 8), lambda data: check_external_data(data, "graphs/x.onnx", files, "x"))


def test_safetensors_in_checkpoints(tmp_path: Path) -> None:
    _fuzz(safetensors(64), lambda data: read_safetensors(_mapped(tmp_path / "x", data)))


def test_gguf(tmp_path: Path) -> None:
    sound = tiny_gguf(tmp_path / "sound.gguf").read_bytes()
    _fuzz(sound, lambda data: read_gguf(_mapped(tmp_path / "x", data)))


def test_databases(tmp_path: Path) -> None:
    sound = make_database(tmp_path / "sound.fdb", "ab" * 32).read_bytes()

    def read(data: bytes) -> None:
        (tmp_path / "x.fdb").write_bytes(data)
        database = Database(tmp_path / "x.fdb")
        for order in database.orders:
            for value in np.random.default_rng(0).integers(0, 2**63, 20).tolist():
                database.lookup(order, value)
        database.close()

    _fuzz(sound, read)


def test_tars(bundle: Path, tmp_path: Path) -> None:
    pack(Bundle.open(bundle), tmp_path / "sound.tar")

    def read(data: bytes) -> None:
        (tmp_path / "x.tar").write_bytes(data)
        with (tmp_path / "x.tar").open("rb") as file:
            for member in members(file, "x"):
                file.seek(min(member.size, len(data)), 1)

    _fuzz((tmp_path / "sound.tar").read_bytes(), read)


def test_signatures(bundle: Path, tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    path = sign(Bundle.open(bundle), private)
    data = (bundle / FILE_NAME).read_bytes()
    manifest = Manifest.from_bytes(data, "x")
    _fuzz(path.read_bytes(), lambda signature: check_signature(signature, public, data, manifest, "x"))


def _mapped(path: Path, data: bytes) -> MappedFile:
    path.write_bytes(data)
    return MappedFile(path)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a fuzz target need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
