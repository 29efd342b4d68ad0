"""The header of a GGUF file: metadata and tensor infos, every count checked against the file's size first.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian). Reads no
tensor.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.fields import Fields
from foredraft_exporter.sources.mapped import MappedFile

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_HEADER = 512 << 20
_MAX_NAME = 256
"""Characters of a tensor's name; ggml itself allows 63."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor's place: ``shape`` rows first, ``offset`` from the file's start, bytes in all and a row."""

    file: MappedFile
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    metadata: Fields
    tensors: dict[str, GgufTensor]


def read_header(file: MappedFile) -> GgufHeader:
    """Raises ``CheckpointError`` naming the file: no GGUF, truncated, or with counts that cannot be true."""
    cursor = _Cursor(file)
    if file.bytes(0, 4) != b"GGUF":
        raise CheckpointError(f"{file.path}: is no GGUF file (it starts with {file.bytes(0, 4)!r}, expected b'GGUF')")
    cursor.at = 4
    version = cursor.number("I")
    if version not in (2, 3):
        raise CheckpointError(
            f"{file.path}: GGUF version {version}, expected 2 or 3 in little-endian order; convert the model again"
        )
    tensor_count, entry_count = cursor.number("Q"), cursor.number("Q")
    cursor.need(entry_count, 13, "metadata entries")
    cursor.need(tensor_count, 28, "tensors")
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = cursor.text()
        if key in metadata:
            raise CheckpointError(f"{file.path}: metadata key {key[:100]!r} appears twice; the file is damaged")
        metadata[key] = cursor.value(key, cursor.number("I"))
    infos = [_tensor_info(cursor) for _ in range(tensor_count)]
    fields = Fields(metadata, file.path)
    return GgufHeader(fields, _place(cursor, fields, infos))


def _tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, dimensions = cursor.text(), cursor.number("I")
    if len(name) > _MAX_NAME:
        raise CheckpointError(f"{cursor.file.path}: a tensor's name has {len(name)} characters; the file is damaged")
    if not 1 <= dimensions <= 4:
        raise CheckpointError(f"{cursor.file.path}: tensor {name!r} has {dimensions} dimensions, expected 1 to 4")
    shape = tuple(cursor.number("Q") for _ in range(dimensions))[::-1]
    return name, shape, cursor.number("I"), cursor.number("Q")


def _place(
    cursor: _Cursor, metadata: Fields, infos: list[tuple[str, tuple[int, ...], int, int]]
) -> dict[str, GgufTensor]:
    """Tensors with absolute offsets, each wholly inside the file."""
    path, size = cursor.file.path, cursor.file.size
    alignment = metadata.whole("general.alignment", 32)
    if alignment & (alignment - 1):
        raise metadata.fault("general.alignment", "a power of two")
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind_id, offset in infos:
        try:
            kind = GGMLQuantizationType(kind_id)
        except ValueError:
            raise CheckpointError(f"{path}: tensor {name!r} has unknown type {kind_id}; update gguf") from None
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if min(shape) < 1 or shape[-1] % block or name in tensors:
            reason = "it appears twice" if name in tensors else f"shape {list(shape)} is not possible"
            raise CheckpointError(f"{path}: tensor {name!r} ({kind.name}): {reason}; the file is damaged")
        row_bytes = shape[-1] // block * block_bytes
        nbytes = row_bytes
        for rows in shape[:-1]:
            nbytes *= rows
        if data_start + offset + nbytes > size:
            raise CheckpointError(
                f"{path}: is truncated: {size} bytes, but tensor {name!r} ends at byte "
                f"{data_start + offset + nbytes}; "
                "download it again"
            )
        tensors[name] = GgufTensor(cursor.file, kind, shape, data_start + offset, nbytes, row_bytes)
    return tensors


class _Cursor:
    """Reads forward through the header and never past the file's end."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.at = 0

    def need(self, count: int, each: int, what: str) -> None:
        """Refuses ``count`` items of at least ``each`` bytes that cannot lie in what is left."""
        left = min(self.file.size, _MAX_HEADER) - self.at
        if count * each > left:
            raise CheckpointError(
                f"{self.file.path}: says it has {count} {what}, but only {left} bytes are left for them; "
                "the file is truncated or damaged, download it again"
            )

    def take(self, count: int, what: str = "bytes") -> bytes:
        self.need(count, 1, what)
        self.at += count
        return self.file.bytes(self.at - count, count)

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        """Bytes that are no UTF-8 become lone surrogates, which no reader of a value takes."""
        return self.take(self.number("Q"), "bytes of text").decode("utf-8", "surrogateescape")

    def value(self, key: str, kind: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise CheckpointError(f"{self.file.path}: {key[:100]!r}: unknown metadata type {kind} at byte {self.at}")
        item, count = self.number("I"), self.number("Q")
        if item in _SCALARS:
            code = np.dtype("<" + _SCALARS[item])
            self.need(count, code.itemsize, "array elements")
            return np.frombuffer(self.take(count * code.itemsize), code).tolist()
        if item != _STRING:
            raise CheckpointError(
                f"{self.file.path}: {key[:100]!r}: array of unsupported type {item} at byte {self.at}"
            )
        self.need(count, 8, "strings")
        return [self.text() for _ in range(count)]
