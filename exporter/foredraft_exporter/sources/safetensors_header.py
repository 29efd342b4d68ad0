"""The header of a checkpoint's safetensors file, checked before it is believed. Reads no tensor."""

from __future__ import annotations

import numpy as np

from foredraft.bundle.tensor_file import read_entries
from foredraft.errors import CheckpointError
from foredraft_exporter.sources.mapped import MappedFile
from foredraft_graphs.weights_file import TensorLocation

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


def read_header(file: MappedFile) -> dict[str, TensorLocation]:
    """Every tensor's place, offsets counted from the file's start.

    Raises ``CheckpointError`` naming the file and what ``read_entries`` finds wrong with it.
    """
    try:
        entries = read_entries(file.array(np.uint8, file.size, 0).data, DTYPE_BYTES)
    except ValueError as error:
        raise CheckpointError(f"{file.path}: {error}; download the file again") from error
    return {name: TensorLocation(e.dtype, e.shape, e.offset, e.nbytes) for name, e in entries.items()}
