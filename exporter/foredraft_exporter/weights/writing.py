"""The weights file, written matrix by matrix in chunks of rows, so that memory stays small."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from foredraft_exporter.models import architecture_of
from foredraft_exporter.models.rope import rotary_tables
from foredraft_exporter.sources.checkpoint import Checkpoint
from foredraft_exporter.sources.mapped import MappedFile
from foredraft_exporter.sources.safetensors_header import read_header
from foredraft_exporter.weights.storage import Rounding, check_finite
from foredraft_exporter.weights.weight_plan import ALIGNMENT, Matrix, PlannedTensor, WeightPlan, tensor_name
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.weights_file import TensorLocation

Progress = Callable[[int, int, str], None]
"""``(bytes_done, bytes_total, what)``."""

_CHUNK_ELEMENTS = 4 << 20
_ROW_MULTIPLE = 64
"""A multiple of every packing's tile of rows, so that chunks concatenate."""

PEAK_MEMORY = 256 << 20
"""Bytes of memory that writing may need beyond the interpreter's own, whatever the model's size."""


@dataclass(frozen=True, slots=True)
class WeightReport:
    """``errors``: sqrt(sum of squared error / sum of squares) of each matrix that had to be rounded."""

    nbytes: int
    errors: dict[str, float] = field(default_factory=dict)


def write_weights(
    path: Path, checkpoint: Checkpoint, decoder: Decoder, plan: WeightPlan, progress: Progress | None = None
) -> WeightReport:
    """Writes and flushes ``path``, a safetensors file with every tensor of ``plan`` exactly once.

    Raises ``CheckpointError`` for values that are not finite, naming the tensor.
    """
    header = _header(plan)
    places = {tensor.name: tensor for tensor in plan.tensors}
    errors: dict[str, float] = {}
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + plan.nbytes)
        writer = _Writer(file, len(header), places, plan.nbytes, progress)
        for matrix in plan.matrices:
            error = _write_matrix(writer, checkpoint, matrix)
            if error is not None:
                errors[matrix.name] = error
        for vector in plan.vectors:
            writer.write(
                vector.name, check_finite(np.concatenate([checkpoint.read(p) for p in vector.parts]), vector.name)
            )
        tables = rotary_tables(checkpoint.info.config, decoder, architecture_of(checkpoint.info.config).rope_theta)
        for name, table in zip(("rope.cos", "rope.sin"), tables, strict=True):
            writer.write(name, table)
        for name, constant in plan.constants.items():
            writer.write(name, constant)
        writer.finish()
    return WeightReport(len(header) + plan.nbytes, errors)


def read_layout(path: Path) -> dict[str, TensorLocation]:
    """Where each tensor of a weights file lies, offsets from the file's start; the header is checked."""
    return read_header(MappedFile(path))


def _header(plan: WeightPlan) -> bytes:
    """The safetensors header, padded with spaces so that the data starts at a multiple of 64."""
    entries = {
        t.name: {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [t.offset, t.offset + t.nbytes]}
        for t in plan.tensors
    }
    metadata = {"format": "foredraft", **plan.metadata}
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


class _Writer:
    """Appends to every tensor at its own place, and knows when all are full."""

    def __init__(
        self,
        file: BinaryIO,
        start: int,
        places: dict[str, PlannedTensor],
        total: int,
        progress: Progress | None,
    ) -> None:
        self._file, self._start, self._places, self._total = file, start, places, total
        self._progress = progress
        self._written = dict.fromkeys(places, 0)
        self._done = 0

    def write(self, name: str, values: NDArray[np.generic]) -> None:
        place, data = self._places[name], np.ascontiguousarray(values)
        if self._written[name] + data.nbytes > place.nbytes:
            raise AssertionError(f"{name}: more bytes than planned ({place.nbytes})")
        self._file.seek(self._start + place.offset + self._written[name])
        self._file.write(data.reshape(-1).view(np.uint8).data)
        self._written[name] += data.nbytes
        self._done += data.nbytes
        if self._progress is not None:
            self._progress(self._done, self._total, name)

    def finish(self) -> None:
        short = [name for name, written in self._written.items() if written != self._places[name].nbytes]
        if short:
            raise AssertionError(f"{short[0]}: fewer bytes than planned")
        self._file.flush()
        os.fsync(self._file.fileno())


def _write_matrix(writer: _Writer, checkpoint: Checkpoint, matrix: Matrix) -> float | None:
    """Returns the relative error of rounding, or None if every number is the checkpoint's own."""
    rounding = Rounding()
    for start, stop in _chunks(matrix):
        encoded, difference = matrix.storage.encode(checkpoint, list(_pieces(matrix, start, stop)))
        rounding += difference
        for suffix, values in encoded.items():
            writer.write(tensor_name(matrix.name, suffix), values)
        checkpoint.release()
    return math.sqrt(rounding.wrong / rounding.total) if rounding.total else None


def _chunks(matrix: Matrix) -> Iterator[tuple[int, int]]:
    step = max(1, _CHUNK_ELEMENTS // matrix.k // _ROW_MULTIPLE) * _ROW_MULTIPLE
    for start in range(0, matrix.n, step):
        yield start, min(start + step, matrix.n)


def _pieces(matrix: Matrix, start: int, stop: int) -> Iterator[tuple[str, int, int]]:
    """Which rows of which parts make up rows ``start .. stop-1`` of the fused matrix."""
    first = 0
    for part, rows in zip(matrix.parts, matrix.rows, strict=True):
        a, b = max(start - first, 0), min(stop - first, rows)
        if a < b:
            yield part, a, b
        first += rows
