"""The parts of a bundle that can be left out of a pull: lowerings, engines, token databases, adapters. All else is
the base.

A partly pulled bundle keeps the whole manifest, so that its signature stays valid, and a ``partial.json``
with the names of the parts that it holds. Whoever opens it sees the manifest reduced to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from foredraft.bundle.manifest import SCHEMA, Manifest, check_schema
from foredraft.bundle.typed_json import build, parse_object
from foredraft.errors import BundleError

Value = TypeVar("Value")
GROUPS = {"onnxruntime": "graphs", "engines": "engines", "databases": "databases", "adapters": "adapters"}
"""Names that stand for several parts at once."""


@dataclass(frozen=True, slots=True)
class Partial:
    """The content of partial.json."""

    schema: str
    parts: tuple[str, ...]


def names_of(manifest: Manifest) -> tuple[str, ...]:
    """Every part of a bundle, lowerings first."""
    return (*manifest.graphs, *manifest.engines, *manifest.databases, *manifest.adapters)


def choose(manifest: Manifest, only: Sequence[str], where: str) -> tuple[str, ...]:
    """The parts that ``only`` asks for: all if it is empty; no lowering or engines named means every lowering.

    A group's name stands for its parts, the bundle's precision for nothing more than the base. Raises
    BundleError for a name that the bundle does not have.
    """
    chosen: set[str] = set()
    for name in only:
        if name in GROUPS:
            chosen.update(getattr(manifest, GROUPS[name]))
        elif name in names_of(manifest):
            chosen.add(name)
        elif name != manifest.precision:
            known = (*names_of(manifest), *GROUPS, manifest.precision)
            raise BundleError(f"{where}: has no part {name!r}, expected some of {', '.join(known)}")
    if not chosen.intersection((*manifest.graphs, *manifest.engines)):
        chosen.update(manifest.graphs)
    return tuple(name for name in names_of(manifest) if not only or name in chosen)


def reduce(manifest: Manifest, parts: Iterable[str]) -> Manifest:
    """The manifest of a bundle that holds the base and these parts and nothing else."""
    held = set(parts)
    left_out: set[str] = set()
    kept = {manifest.weights, "tokenizer.json"}
    for name in names_of(manifest):
        (kept if name in held else left_out).update(_files_of(manifest, name))
    left_out -= kept
    return replace(
        manifest,
        graphs=_only(manifest.graphs, held),
        databases=_only(manifest.databases, held),
        adapters=_only(manifest.adapters, held),
        engines=_only(manifest.engines, held),
        files={name: info for name, info in manifest.files.items() if name not in left_out},
    )


def partial_bytes(parts: Sequence[str]) -> bytes:
    """The bytes of partial.json."""
    value = {"schema": f"{SCHEMA[0]}.{SCHEMA[1]}", "parts": list(parts)}
    return (json.dumps(value, indent=1) + "\n").encode()


def read_partial(data: bytes, manifest: Manifest, where: str) -> tuple[str, ...]:
    """The parts that partial.json lists; raises BundleError if it is malformed or names one that is not
    there.
    """
    value = parse_object(data, where)
    check_schema(value.get("schema"), where)
    parts = build(Partial, value, where).parts
    unknown = sorted(set(parts) - set(names_of(manifest)))
    if unknown:
        raise BundleError(f"{where}: names {unknown[0][:80]!r}, which is not in the manifest; pull the bundle again")
    return tuple(name for name in names_of(manifest) if name in parts)


def _files_of(manifest: Manifest, part: str) -> set[str]:
    if part in manifest.graphs:
        return set(manifest.graphs[part].paths)
    if part in manifest.engines:
        return set(manifest.files_of_engines(part))
    return {manifest.databases.get(part) or manifest.adapters[part]}


def _only(values: Mapping[str, Value], names: set[str]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name in names}
