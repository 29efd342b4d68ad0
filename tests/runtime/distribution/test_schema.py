"""The JSON Schema in the package says the same as the module that reads manifests."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from foredraft.bundle.manifest import FILE_NAME, FileInfo, GraphFiles, Manifest, ModelInfo, SegmentInfo, TokenizerInfo
from foredraft.errors import BundleError

SCHEMA = json.loads((files("foredraft.bundle") / "manifest.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.fixture
def value(bundle: Path) -> dict[str, Any]:
    return json.loads((bundle / FILE_NAME).read_bytes())


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_what_export_writes_is_valid(tiny_bundle: Callable[..., Path]) -> None:
    for folder in (tiny_bundle(), tiny_bundle("int4", (2,))):
        VALIDATOR.validate(json.loads((folder / FILE_NAME).read_bytes()))


def test_what_bundles_are_made_of_here_is_valid(value: dict[str, Any]) -> None:
    VALIDATOR.validate(value)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Manifest, SCHEMA),
        (ModelInfo, SCHEMA["properties"]["model"]),
        (TokenizerInfo, SCHEMA["properties"]["tokenizer"]),
        (SegmentInfo, SCHEMA["properties"]["segments"]["items"]),
        (GraphFiles, SCHEMA["properties"]["graphs"]["additionalProperties"]),
        (FileInfo, SCHEMA["properties"]["files"]["additionalProperties"]),
    ],
)
def test_fields(kind: type, schema: dict[str, Any]) -> None:
    found = dataclasses.fields(kind)
    assert list(schema["properties"]) == [f.name for f in found]
    missing = dataclasses.MISSING
    required = [f.name for f in found if f.default is missing and f.default_factory is missing]
    assert schema["required"] == required


@pytest.mark.parametrize(
    "spoil",
    [
        lambda v: v.pop("model"),
        lambda v: v.update(schema="2.0"),
        lambda v: v.update(precision="INT 8"),
        lambda v: v["model"].update(layers=-1),
        lambda v: v["model"].update(layers="4"),
        lambda v: v["tokenizer"].update(sha256="00"),
        lambda v: v["files"].update({"../x": {"size": 0, "sha256": "0" * 64}}),
        lambda v: v["files"].update({"/x": {"size": 0, "sha256": "0" * 64}}),
        lambda v: v["files"].update({"a\\b": {"size": 0, "sha256": "0" * 64}}),
        lambda v: v["files"].update({"a//b": {"size": 0, "sha256": "0" * 64}}),
        lambda v: v.update(graphs=[]),
        lambda v: v.update(databases={"Words": "db/words.fdb"}),
    ],
)
def test_both_refuse(value: dict[str, Any], spoil: Callable[[dict[str, Any]], object]) -> None:
    spoil(value)
    with pytest.raises(BundleError):
        Manifest.from_bytes(json.dumps(value).encode(), "x")
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(value)


def test_bytes_are_canonical(value: dict[str, Any], bundle: Path) -> None:
    data = (bundle / FILE_NAME).read_bytes()
    assert Manifest.from_bytes(data, "x").to_bytes() == data
