"""The header of a safetensors file, bounded and checked before it is believed. Reads no tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foredraft.errors import CheckpointError
from foredraft_exporter.mapped import MappedFile
from foredraft_graphs.weights import TensorLocation

MAX_HEADER = 100_000_000
"""Bytes; the safetensors library's own limit."""

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


def read_header(file: MappedFile) -> dict[str, TensorLocation]:
    """Every tensor's place, offsets counted from the file's start.

    Raises ``CheckpointError`` naming the file: truncated, header too long or no JSON, a tensor whose bytes
    are not its dtype times its shape, overlapping tensors, or holes between them.
    """
    length = int.from_bytes(file.bytes(0, 8), "little")
    if file.size < 8 or length > MAX_HEADER or 8 + length > file.size:
        raise CheckpointError(
            f"{file.path}: says its header has {length} bytes, expected at most "
            f"{min(MAX_HEADER, file.size - 8)} "
            f"(the file has {file.size}); it is truncated or no safetensors file, download it again"
        )
    entries = _parse(file.path, file.bytes(8, length))
    tensors = {name: _location(file.path, name, entry, 8 + length) for name, entry in entries.items()}
    _check_layout(file, tensors, 8 + length)
    return tensors


def _parse(path: Path, header: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name appears twice")
        return found

    try:
        entries = json.loads(header.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not valid JSON ({error}); download the file again") from error
    if not isinstance(entries, dict):
        raise CheckpointError(f"{path}: the header is a {type(entries).__name__}, expected an object of tensors")
    entries.pop("__metadata__", None)
    return entries


def _location(path: Path, name: str, entry: object, data_start: int) -> TensorLocation:
    """One entry, its types and its size checked."""
    try:
        if not isinstance(entry, Mapping):
            raise ValueError("not an object")
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        numbers = (*shape, begin, end)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(f"sizes {numbers} are not all natural numbers")
        nbytes = DTYPE_BYTES[dtype]
        for size in shape:
            nbytes *= size
        if end - begin != nbytes:
            raise ValueError(f"{end - begin} bytes, expected {nbytes} for {dtype} {list(shape)}")
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: tensor {name!r} is described wrongly ({error}); download it again") from error
    return TensorLocation(dtype, shape, data_start + begin, nbytes)


def _check_layout(file: MappedFile, tensors: Mapping[str, TensorLocation], data_start: int) -> None:
    position = data_start
    for name, place in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if place.offset != position:
            kind = "overlaps the tensor before it" if place.offset < position else "leaves a hole before it"
            raise CheckpointError(
                f"{file.path}: tensor {name!r} {kind} (starts at byte {place.offset}, expected {position}); "
                "the file is damaged, download it again"
            )
        position += place.nbytes
    if position != file.size:
        kind = "is truncated" if position > file.size else "has bytes that belong to no tensor"
        raise CheckpointError(f"{file.path}: {kind}: {file.size} bytes, expected {position}; download it again")
