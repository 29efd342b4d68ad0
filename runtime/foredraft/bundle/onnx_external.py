"""Where an ONNX file says that its weights lie, checked before a library opens them. Reads the wire format
itself.

An initializer may name any file of the machine as its data, or with ONNX Runtime's own marker any address of
the process. Allowed are files that the bundle lists, inside their size. The field numbers are those of
onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from foredraft.bundle.manifest import FileInfo
from foredraft.bundle.paths import check_path
from foredraft.errors import BundleError

_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""Which fields of each message lead to tensors."""
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_MAX_DEPTH = 64


def check_external_data(model: bytes, name: str, files: Mapping[str, FileInfo], where: str) -> None:
    """Refuse the ONNX file ``name`` of a bundle if any tensor in it points elsewhere than into ``files``.

    Raises BundleError with the location; also for a file that is no ONNX model.
    """
    try:
        for entries in _external_tensors(model):
            _check(entries, PurePosixPath(name).parent, files, where)
    except (IndexError, UnicodeDecodeError, _MalformedError) as error:
        raise BundleError(f"{where}: is not an ONNX model ({error}); export the bundle again") from error


def _check(entries: dict[str, str], folder: PurePosixPath, files: Mapping[str, FileInfo], where: str) -> None:
    location = entries.get("location", "")
    check_path(location, f"{where}: external data")
    target = str(folder / location)
    if target not in files:
        raise BundleError(f"{where}: external data in {target[:200]!r}, which is not a file of this bundle")
    offset, length = _number(entries, "offset", where), _number(entries, "length", where)
    if offset + length > files[target].size:
        raise BundleError(
            f"{where}: external data at {offset}, {length} bytes, but {target} has {files[target].size}; "
            "export the bundle again"
        )


def _number(entries: dict[str, str], key: str, where: str) -> int:
    text = entries.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BundleError(f"{where}: external data has {key} {text[:40]!r}, expected a number of bytes")
    return int(text)


class _MalformedError(Exception):
    """Bytes that are no protobuf message."""


def _external_tensors(model: bytes) -> Iterator[dict[str, str]]:
    """The external_data entries of every tensor that has some, wherever it hides in the model."""
    pending: list[tuple[str, memoryview, int]] = [("model", memoryview(model), 0)]
    while pending:
        kind, message, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise _MalformedError(f"nested deeper than {_MAX_DEPTH}")
        if kind == "tensor":
            if entries := _entries(message):
                yield entries
            continue
        inside = _INSIDE[kind]
        for field, value in _fields(message):
            if field in inside and isinstance(value, memoryview):
                pending.append((inside[field], value, depth + 1))


def _entries(tensor: memoryview) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, value in _fields(tensor):
        if field == _EXTERNAL_DATA and isinstance(value, memoryview):
            pair = {inner: bytes(text).decode() for inner, text in _fields(value) if isinstance(text, memoryview)}
            key = pair.get(1, "")
            if key in found:
                raise _MalformedError(f"external data with two values of {key!r}")
            found[key] = pair.get(2, "")
        elif field == _DATA_LOCATION and value == 1:
            found.setdefault("", "")
    return found


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """(field number, bytes or number) of a message's fields, in order."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        wire = tag & 7
        if wire == 2:
            length, at = _varint(message, at)
            if length > end - at:
                raise _MalformedError("truncated")
            yield tag >> 3, message[at : at + length]
            at += length
        elif wire == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise _MalformedError(f"wire type {wire}")
    if at != end:
        raise _MalformedError("truncated")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    byte = message[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        at += 1
        if shift > 63:
            raise _MalformedError("number too long")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1
