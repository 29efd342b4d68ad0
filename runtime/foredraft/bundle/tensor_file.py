"""A safetensors file as a map of arrays over its own bytes, nothing copied. The header is bounded before it
is believed.

The safetensors library's numpy reader copies each tensor; an engine wants the mapping itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft.bundle.typed_json import parse_object
from foredraft.errors import BundleError

MAX_HEADER = 100 << 20
"""Bytes."""
MAX_DIMENSIONS = 8
_NUMPY = {"F32": np.float32, "F16": np.float16, "U8": np.uint8, "I32": np.int32}


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies: ``offset`` in bytes from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def parse_header(data: memoryview, where: str) -> dict[str, Entry]:
    """The tensors of a safetensors file by name.

    Raises BundleError if the header is too long, is not JSON, or places a tensor outside the file, over
    another one, or with a size that is not its shape's.
    """
    if len(data) < 8:
        raise BundleError(f"{where}: {len(data)} bytes, too short for a safetensors file; export the bundle again")
    length = int.from_bytes(data[:8], "little")
    if length > min(MAX_HEADER, len(data) - 8):
        raise BundleError(f"{where}: header of {length} bytes in a file of {len(data)}; export the bundle again")
    header = parse_object(bytes(data[8 : 8 + length]), f"{where}: safetensors header")
    start = 8 + length
    entries = {name: _entry(name, spec, start, where) for name, spec in header.items() if name != "__metadata__"}
    end = start
    for entry in sorted(entries.values(), key=lambda e: e.offset):
        if entry.offset != end:
            raise BundleError(f"{where}: tensors overlap or leave a hole at byte {end}")
        end += entry.nbytes
    if end != len(data):
        raise BundleError(f"{where}: {len(data)} bytes, but its tensors end at {end}; the file is truncated or padded")
    return entries


def arrays(data: memoryview, where: str) -> Mapping[str, npt.NDArray[np.generic]]:
    """Every tensor as a read-only array over ``data``."""
    result: dict[str, npt.NDArray[np.generic]] = {}
    for name, entry in parse_header(data, where).items():
        dtype = _NUMPY[entry.dtype]
        count = math.prod(entry.shape)
        result[name] = np.frombuffer(data, dtype, count, entry.offset).reshape(entry.shape)
    return result


def _entry(name: str, spec: object, start: int, where: str) -> Entry:
    name = name[:200]
    if not isinstance(spec, dict):
        raise BundleError(f"{where}: tensor {name!r} has a malformed header entry")
    dtype, shape = spec.get("dtype"), _sizes(spec.get("shape"), MAX_DIMENSIONS)
    offsets = _sizes(spec.get("data_offsets"), 2)
    if shape is None or offsets is None or len(offsets) != 2:
        raise BundleError(f"{where}: tensor {name!r} has a malformed shape or data_offsets")
    if dtype not in _NUMPY:
        known = ", ".join(_NUMPY)
        raise BundleError(f"{where}: tensor {name!r} has dtype {str(dtype)[:40]}, expected one of {known}")
    begin, end = offsets
    nbytes = math.prod(shape) * np.dtype(_NUMPY[dtype]).itemsize
    if end - begin != nbytes:
        raise BundleError(f"{where}: tensor {name!r} {dtype}{list(shape)} does not fill bytes {begin}..{end}")
    return Entry(dtype, shape, start + begin, nbytes)


def _sizes(value: object, most: int) -> tuple[int, ...] | None:
    """A list of at most ``most`` sizes, or None if it is anything else."""
    if not isinstance(value, list) or len(value) > most:
        return None
    sizes = tuple(size for size in value if type(size) is int and 0 <= size < 2**53)
    return sizes if len(sizes) == len(value) else None
