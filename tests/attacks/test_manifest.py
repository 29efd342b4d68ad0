"""A hostile manifest.json: each trick is refused with a message of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, MAX_MANIFEST, Manifest
from foredraft.errors import BundleError
from tests.runtime.distribution.made import edit_manifest


def _refused(bundle: Path, message: str) -> None:
    with pytest.raises(BundleError, match=message) as caught:
        Bundle.open(bundle)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../outside", r"leaves the folder \('\.\.'\)"),
        ("graphs/../../outside", r"leaves the folder \('\.\.'\)"),
        ("/etc/passwd", "is absolute"),
        ("graphs\\x", "contains a backslash"),
        ("..\\outside", "contains a backslash"),
        ("a\0b", "contains NUL"),
        ("a\nb", "contains a control character"),
        ("C:/x", "contains a colon"),
        ("file.txt:stream", "contains a colon"),
        ("", "has an empty part"),
        ("a//b", "has an empty part"),
        ("a/", "has an empty part"),
        ("./a", "has an empty part"),
        ("a./b", "ends in a dot or a space"),
        ("a ", "ends in a dot or a space"),
        ("con", "is the name of a device on Windows"),
        ("x/NUL.txt", "is the name of a device on Windows"),
        ("\ud800", "is not valid Unicode"),
        ("a" * 300, "has 300 bytes, more than 100"),
        ("manifest.json", "the name is the bundle's own"),
        ("model.sig", "the name is the bundle's own"),
        ("Tokenizer.json", "differ only in case"),
        ("GRAPHS/x", "differ only in case"),
        ("graphs", "is listed as a file and as a folder"),
        ("tokenizer.json/x", "is listed as a file and as a folder"),
    ],
)
def test_paths(bundle: Path, name: str, message: str) -> None:
    files = json.loads((bundle / FILE_NAME).read_bytes())["files"]
    edit_manifest(bundle, files={**files, name: {"size": 1, "sha256": "0" * 64}})
    _refused(bundle, message)


def test_accents_written_two_ways(bundle: Path) -> None:
    files = json.loads((bundle / FILE_NAME).read_bytes())["files"]
    both = {name: {"size": 0, "sha256": "0" * 64} for name in ("caf\u00e9", "cafe\u0301")}
    edit_manifest(bundle, files={**files, **both})
    _refused(bundle, "in how accents are written")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"schema": "2.0"}', "schema 2.0, this Foredraft reads 1.x; export the bundle again"),
        (b'{"schema": "99999999999999.0"}', "expected a version such as"),
        (b'{"schema": 1.0}', "expected a version such as"),
        (b"{}", "schema is None, expected a version such as"),
        (b'{"schema": "1.0"}', "foredraft is missing"),
        (b'{"schema": "1.0", "schema": "1.0"}', "duplicate key 'schema'"),
        (b'{"a": {"b": 1, "b": 2}}', "duplicate key 'b'"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[]", "expected a JSON object, got list"),
        (b"", "not valid JSON"),
        (b'{"schema": NaN}', "NaN is not a number of JSON"),
        (b"\xff\xfe{\0}\0", "not valid JSON"),
        (b'{"schema": ' + b"1" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_text(bundle: Path, text: bytes, message: str) -> None:
    (bundle / FILE_NAME).write_bytes(text)
    _refused(bundle, message)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("precision", 8, "precision must be str, got 8"),
        ("precision", "Int 8", "is not a name"),
        ("exits", [True], r"exits\[0\] must be int, got True"),
        ("exits", [-1], r"exits\[0\] is -1, expected 0 to"),
        ("exits", [10**30], "is a huge number, expected 0 to"),
        ("exits", [2], "do not cut 4 layers at"),
        ("segments", [], "do not cut 4 layers at"),
        ("graphs", [], "graphs must be an object, got list"),
        ("graphs", {"kernels": {"segments": [], "head": "tokenizer.json"}}, "have 0 segments, expected 1"),
        ("weights", "graphs/weights/other.safetensors", "is used but not listed in files"),
        ("databases", {"words": "db/other.fdb"}, "is used but not listed in files"),
        ("databases", {"portable": "db/words.fdb"}, "stands for two things"),
        ("files", {"a": {"size": -1, "sha256": ""}}, r"files\['a'\].size is -1"),
        ("files", {"a": {"size": 1, "sha256": "0" * 63}}, "expected 64 lower-case hex digits"),
        ("files", {"a": {"size": 1, "sha256": "A" * 64}}, "expected 64 lower-case hex digits"),
        ("files", {f"f{i}": {"size": 0, "sha256": "0" * 64} for i in range(10_001)}, "lists 10001 files"),
    ],
)
def test_values(bundle: Path, field: str, value: Any, message: str) -> None:
    edit_manifest(bundle, **{field: value})
    _refused(bundle, message)


def test_a_manifest_of_gigabytes_is_not_read(bundle: Path) -> None:
    with (bundle / FILE_NAME).open("r+b") as file:
        file.truncate(MAX_MANIFEST * 1000)
    _refused(bundle, "bytes, more than the")


def test_what_a_newer_minor_version_adds_is_left_aside(bundle: Path) -> None:
    edit_manifest(bundle, schema="1.99", invented={"x": [1]})
    assert Bundle.open(bundle).manifest.schema == "1.99"


def test_an_older_minor_version_reads(bundle: Path) -> None:
    value = json.loads((bundle / FILE_NAME).read_bytes())
    del value["databases"], value["adapters"], value["files"]["db/words.fdb"]
    data = json.dumps({**value, "schema": "1.0"}).encode()
    assert Manifest.from_bytes(data, "old").databases == {}


def test_a_forged_list_of_parts_only_hides(bundle: Path) -> None:
    (bundle / "partial.json").write_text('{"schema": "1.0", "parts": ["portable"]}')
    opened = Bundle.open(bundle)
    with pytest.raises(BundleError, match="was not pulled"):
        opened.read("graphs/kernels-head.onnx")
    for text, message in [
        ('{"schema": "1.0", "parts": ["../x"]}', "which is not in the manifest"),
        ('{"schema": "2.0", "parts": []}', "this Foredraft reads 1.x"),
        ('{"schema": "1.0", "parts": {}}', "parts must be a list"),
    ]:
        (bundle / "partial.json").write_text(text)
        _refused(bundle, message)


ENGINES = {
    "library": "tensorrt-rtx",
    "version": "1.7.1.116",
    "targets": ["sm89"],
    "precision": "fp16",
    "dtype": "fp16",
    "attention": "native",
    "weights": "inputs",
    "graphs": "tensorrt-native",
    "decode": 64,
    "prefill": 256,
    "slots": 528,
    "segments": ["tokenizer.json"],
    "head": "tokenizer.json",
}
"""A set of engines, as far as the manifest's own checks go."""


def test_engines_that_are_well_formed(bundle: Path) -> None:
    edit_manifest(bundle, engines={"gpu": ENGINES})
    assert Bundle.open(bundle).manifest.engines["gpu"].targets == ("sm89",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"library": "../evil"}, r"engines 'gpu': library '../evil', expected tensorrt-rtx or tensorrt"),
        ({"dtype": "fp8"}, "dtype 'fp8', expected fp16 or bf16"),
        ({"weights": "elsewhere"}, "weights 'elsewhere', expected inputs or constants"),
        ({"targets": []}, "expected names such as 'sm89'"),
        ({"targets": ["sm89", "gfx1100"]}, "expected names such as 'sm89'"),
        ({"head": "engines/none.engine"}, "'engines/none.engine' is used but not listed in files"),
        ({"segments": ["tokenizer.json"] * 2}, "engines 'gpu' have 2 segments, expected 1"),
        ({"attention": "plugin"}, "the plugin TreeAttention is missing; looked for 'None/images.json'"),
        ({"attention": "plugin", "plugin": "engines/gpu"}, "missing; looked for 'engines/gpu/images.json'"),
        ({"plugin": "engines/gpu"}, "the plugin TreeAttention is missing"),
        ({"slots": -1}, "slots"),
        ({"version": None}, "version"),
    ],
)
def test_engines(bundle: Path, change: dict[str, Any], message: str) -> None:
    edit_manifest(bundle, engines={"gpu": {**ENGINES, **change}})
    _refused(bundle, message)
