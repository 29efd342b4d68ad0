"""What a bundle says of itself: the schema of manifest.json, written by the exporter and read by the runtime.

The major version changes when an older runtime would misread a bundle; the minor one when it would only miss
something.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from foredraft.bundle.paths import check_paths
from foredraft.bundle.typed_json import build, parse_object
from foredraft.errors import BundleError

SCHEMA = (1, 2)
FILE_NAME = "manifest.json"
SIGNATURE = "model.sig"
"""The signature over the manifest and every file it lists; the name is OpenSSF model-signing's own."""
PARTIAL = "partial.json"
"""Which parts a partly pulled bundle holds; complete ones have no such file."""
OWN_FILES = (FILE_NAME, SIGNATURE, PARTIAL)
"""Files of a bundle that its manifest does not list."""
MAX_MANIFEST = 16 << 20
"""Bytes."""
MAX_FILES = 10_000
ENGINE_LIBRARIES = ("tensorrt-rtx", "tensorrt")
_TARGET = re.compile(r"sm[0-9]{2,3}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Sizes in elements; ``context`` in tokens."""

    name: str
    architecture: str
    license: str | None
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context: int


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """``sha256`` of tokenizer.json; ids of the tokens that begin and end a text."""

    sha256: str
    vocab_size: int
    bos_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Layers ``first .. last-1``."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """One lowering's graphs, as paths in the bundle: a file per segment, the head, and since schema 1.1 the smaller
    head that drafts, if there is one.
    """

    segments: tuple[str, ...]
    head: str
    draft_head: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.segments, self.head, *([self.draft_head] if self.draft_head else []))


@dataclass(frozen=True, slots=True)
class EngineSet:
    """Engines that a library compiled from one of the bundle's graphs (since schema 1.2): a file per segment and head.

    ``library`` is ``tensorrt-rtx`` or ``tensorrt``, ``version`` its own; ``targets`` are compute capabilities such as
    ``sm89``. ``precision`` is that of the weights, ``dtype`` (``fp16`` or ``bf16``) that of activations and caches.
    ``weights`` says whether they are ``inputs`` of the engines, or ``constants`` inside. ``decode`` and ``prefill`` are
    the most nodes that the two optimization profiles take, ``slots`` the most cache rows. ``plugin`` is the folder of
    the attention plugin's images if ``attention`` is ``plugin`` (else it is ``native``).
    """

    library: str
    version: str
    targets: tuple[str, ...]
    precision: str
    dtype: str
    attention: str
    weights: str
    graphs: str
    decode: int
    prefill: int
    slots: int
    segments: tuple[str, ...]
    head: str
    draft_head: str | None = None
    plugin: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The engine files."""
        return (*self.segments, self.head, *([self.draft_head] if self.draft_head else []))


@dataclass(frozen=True, slots=True)
class FileInfo:
    """``size`` in bytes and lower-case hexadecimal sha256."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A bundle's table of contents. Every file but the manifest itself is in ``files``.

    ``databases`` (token databases) and ``adapters`` (since schema 1.1) are paths by name, ``engines`` (since schema
    1.2) sets of engines by name.
    """

    schema: str
    foredraft: str
    model: ModelInfo
    precision: str
    exits: tuple[int, ...]
    segments: tuple[SegmentInfo, ...]
    tokenizer: TokenizerInfo
    weights: str
    graphs: Mapping[str, GraphFiles]
    files: Mapping[str, FileInfo]
    databases: Mapping[str, str] = field(default_factory=dict)
    adapters: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, EngineSet] = field(default_factory=dict)

    def files_of_engines(self, name: str) -> tuple[str, ...]:
        """Every file of one set of engines, its plugin's images included."""
        engines = self.engines[name]
        folder = f"{engines.plugin}/" if engines.plugin else None
        return (*engines.paths, *(path for path in self.files if folder and path.startswith(folder)))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, in the order of the fields."""
        return dataclasses.asdict(self)

    def to_bytes(self) -> bytes:
        """The file's bytes; the same manifest gives the same bytes."""
        return (json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Parse and check; raises BundleError naming the field that is missing or wrong."""
        if len(data) > MAX_MANIFEST:
            raise BundleError(f"{where}: {len(data)} bytes, more than {MAX_MANIFEST}; not a manifest")
        value = parse_object(data, where)
        check_schema(value.get("schema"), where)
        manifest = build(cls, value, where)
        manifest.check(where)
        return manifest

    def check(self, where: str) -> None:
        """Segments must tile the layers and agree with the exits; every path named must be listed in
        ``files``.
        """
        self._check_files(where)
        bounds = [0, *self.exits, self.model.layers]
        tiles = tuple(SegmentInfo(a, b) for a, b in pairwise(bounds))
        if self.segments != tiles or any(t.first >= t.last for t in tiles):
            raise BundleError(
                f"{where}: segments {self.segments} do not cut {self.model.layers} layers at {self.exits}"
            )
        self._check_names(where)
        listed = self.files.get("tokenizer.json")
        if listed is not None and listed.sha256 != self.tokenizer.sha256:
            raise BundleError(
                f"{where}: tokenizer.sha256 is {self.tokenizer.sha256[:80]!r}, but files lists tokenizer.json with "
                f"{listed.sha256}; export the bundle again"
            )
        graphs = [path for graph in self.graphs.values() for path in graph.paths]
        for path in (
            self.weights,
            *graphs,
            *self.databases.values(),
            *self.adapters.values(),
            *(path for engines in self.engines.values() for path in engines.paths),
            "tokenizer.json",
        ):
            if path not in self.files:
                raise BundleError(f"{where}: {path[:200]!r} is used but not listed in files")
        for name, graph in self.graphs.items():
            if len(graph.segments) != len(self.segments):
                raise BundleError(
                    f"{where}: graphs {name!r} have {len(graph.segments)} segments, expected {len(self.segments)}"
                )
        for name, engines in self.engines.items():
            self._check_engines(name, engines, where)

    def _check_engines(self, name: str, engines: EngineSet, where: str) -> None:
        if len(engines.segments) != len(self.segments):
            raise BundleError(
                f"{where}: engines {name!r} have {len(engines.segments)} segments, expected {len(self.segments)}"
            )
        for what, value, known in (
            ("library", engines.library, ENGINE_LIBRARIES),
            ("dtype", engines.dtype, ("fp16", "bf16")),
            ("attention", engines.attention, ("plugin", "native")),
            ("weights", engines.weights, ("inputs", "constants")),
        ):
            if value not in known:
                raise BundleError(f"{where}: engines {name!r}: {what} {value[:80]!r}, expected {' or '.join(known)}")
        if not engines.targets or any(not _TARGET.fullmatch(target) for target in engines.targets):
            raise BundleError(
                f"{where}: engines {name!r}: targets {list(engines.targets)[:20]}, expected names such as 'sm89'"
            )
        images = f"{engines.plugin}/images.json"
        if (engines.plugin is not None) != (engines.attention == "plugin") or (
            engines.plugin is not None and images not in self.files
        ):
            raise BundleError(f"{where}: engines {name!r}: the plugin TreeAttention is missing; looked for {images!r}")

    def _check_files(self, where: str) -> None:
        if len(self.files) > MAX_FILES:
            raise BundleError(f"{where}: lists {len(self.files)} files, more than {MAX_FILES}")
        check_paths(self.files, where, OWN_FILES)
        for path, info in self.files.items():
            if not _SHA256.fullmatch(info.sha256):
                raise BundleError(
                    f"{where}: files[{path!r}].sha256 is {info.sha256[:80]!r}, expected 64 lower-case hex digits"
                )

    def _check_names(self, where: str) -> None:
        """Parts are asked for by name: one name, one thing."""
        names = [*self.graphs, *self.databases, *self.adapters, *self.engines, self.precision]
        for name in names:
            if not _NAME.fullmatch(name):
                raise BundleError(
                    f"{where}: {name[:80]!r} is not a name, expected lower-case letters, digits and . _ -"
                )
            if names.count(name) > 1:
                raise BundleError(f"{where}: the name {name!r} stands for two things")


def check_schema(schema: object, where: str) -> None:
    """Refuse a manifest of another major version, in one line that names both."""
    found = re.fullmatch(r"([0-9]{1,9})\.[0-9]{1,9}", schema) if isinstance(schema, str) else None
    if found is None:
        text = repr(schema)[:80]
        raise BundleError(f"{where}: schema is {text}, expected a version such as '{SCHEMA[0]}.{SCHEMA[1]}'")
    if int(found[1]) != SCHEMA[0]:
        raise BundleError(
            f"{where}: schema {schema}, this Foredraft reads {SCHEMA[0]}.x; "
            "export the bundle again, or install the Foredraft that wrote it"
        )
