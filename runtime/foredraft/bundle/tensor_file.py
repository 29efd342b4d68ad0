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

from foredraft.bundle.typed_json import load_object
from foredraft.errors import BundleError

MAX_HEADER = 100_000_000
"""Bytes; the safetensors library's own limit."""
MAX_DIMENSIONS = 8
_NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8, "I8": np.int8, "I32": np.int32}
"""numpy has no bfloat16: its 16 bits are there as an integer."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies: ``offset`` in bytes from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def read_entries(data: memoryview, sizes: Mapping[str, int]) -> dict[str, TensorEntry]:
    """The tensors of any safetensors file by name; ``sizes`` has the bytes of a number of each dtype that may occur.

    Raises ValueError, which does not know the file's name, if the header is too long, is not JSON, or places a tensor
    outside the file, over another one, behind a hole, or with a size that is not its shape's.
    """
    length, most = int.from_bytes(data[:8], "little"), min(MAX_HEADER, len(data) - 8)
    if length > most:
        raise ValueError(
            f"says its header has {length} bytes, expected at most {max(0, most)} (the file has {len(data)}): "
            "it is truncated or no safetensors file"
        )
    header = load_object(bytes(data[8 : 8 + length]))
    entries = {name: _entry(name, spec, 8 + length, sizes) for name, spec in header.items() if name != "__metadata__"}
    _check_layout(entries, 8 + length, len(data))
    return entries


def parse_header(data: memoryview, where: str) -> dict[str, TensorEntry]:
    """As ``read_entries``, for a bundle's file; raises BundleError."""
    try:
        return read_entries(data, {name: np.dtype(dtype).itemsize for name, dtype in _NUMPY.items()})
    except ValueError as error:
        raise BundleError(f"{where}: {error}; export the bundle again") from error


def arrays(data: memoryview, where: str) -> Mapping[str, npt.NDArray[np.generic]]:
    """Every tensor as a read-only array over ``data``."""
    result: dict[str, npt.NDArray[np.generic]] = {}
    for name, entry in parse_header(data, where).items():
        dtype = _NUMPY[entry.dtype]
        count = math.prod(entry.shape)
        result[name] = np.frombuffer(data, dtype, count, entry.offset).reshape(entry.shape)
    return result


def _entry(name: str, spec: object, start: int, sizes: Mapping[str, int]) -> TensorEntry:
    name = name[:200]
    if not isinstance(spec, dict):
        raise ValueError(f"tensor {name!r}: its description is not an object")
    dtype, shape = spec.get("dtype"), _naturals(spec.get("shape"), MAX_DIMENSIONS)
    offsets = _naturals(spec.get("data_offsets"), 2)
    if not isinstance(dtype, str) or dtype not in sizes:
        raise ValueError(f"tensor {name!r}: dtype {str(dtype)[:40]}, expected one of {', '.join(sizes)}")
    if shape is None or offsets is None or len(offsets) != 2:
        raise ValueError(f"tensor {name!r}: shape and data_offsets are not lists of natural numbers")
    begin, end = offsets
    nbytes = math.prod(shape) * sizes[dtype]
    if end - begin != nbytes:
        raise ValueError(f"tensor {name!r}: {end - begin} bytes, expected {nbytes} for {dtype} {list(shape)}")
    return TensorEntry(dtype, shape, start + begin, nbytes)


def _naturals(value: object, most: int) -> tuple[int, ...] | None:
    """A list of at most ``most`` sizes, or None if it is anything else."""
    if not isinstance(value, list) or len(value) > most:
        return None
    sizes = tuple(size for size in value if type(size) is int and 0 <= size < 2**53)
    return sizes if len(sizes) == len(value) else None


def _check_layout(entries: Mapping[str, TensorEntry], start: int, size: int) -> None:
    """Tensors must lie side by side from byte ``start`` to the end of a file of ``size`` bytes."""
    end = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset != end:
            kind = "overlaps the tensor before it" if entry.offset < end else "leaves a hole before it"
            raise ValueError(f"tensor {name[:200]!r} {kind} (it starts at byte {entry.offset}, expected {end})")
        end += entry.nbytes
    if end != size:
        kind = "is truncated" if end > size else "has bytes that belong to no tensor"
        raise ValueError(f"{kind}: {size} bytes, expected {end}")
