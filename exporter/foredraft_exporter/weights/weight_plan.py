"""What the weights file will hold, tensor by tensor and byte by byte, before any weight is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import CheckpointError, UnsupportedModelError
from foredraft_exporter.sources.checkpoint import Checkpoint
from foredraft_exporter.weights.precision import TILES, Chooser, Layout
from foredraft_exporter.weights.storage import Floats, Storage
from foredraft_graphs.decoder import Decoder
from foredraft_plugins.block_linear.packing import BLOCK

ALIGNMENT = 64
_SAFETENSORS_DTYPE = {
    "uint8": "U8", "int8": "I8", "uint16": "U16", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "int32": "I32",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight [n, k]: the rows of ``parts`` (checkpoint names) in order."""

    name: str
    parts: tuple[str, ...]
    rows: tuple[int, ...]
    k: int
    storage: Storage

    @property
    def n(self) -> int:
        return sum(self.rows)

    @property
    def bits(self) -> int:
        return self.storage.bits


@dataclass(frozen=True, slots=True)
class Vector:
    """A norm or bias: the elements of ``parts`` one after the other, float32."""

    name: str
    parts: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor of the file: ``dtype`` is a safetensors name, ``offset`` counts from the start of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Extras:
    """What a file holds beyond the model's own weights.

    ``matrices``: name, the checkpoint's name for it, rows and columns; at most 8 bits, and float32 where the rows
    do not divide into blocks. ``constants`` are written as they are; ``metadata`` goes into the file's header.
    """

    matrices: tuple[tuple[str, str, int, int], ...] = ()
    constants: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """Everything that ``write_weights`` will write. ``tensors`` are in the file's order."""

    matrices: tuple[Matrix, ...]
    vectors: tuple[Vector, ...]
    tensors: tuple[PlannedTensor, ...]
    constants: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; the file has a header of some tens of KiB besides."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def bits(self) -> dict[str, int]:
        """4, 8, 16 or 32 for each matrix, as the graphs want it."""
        return {matrix.name: matrix.bits for matrix in self.matrices}


def plan(
    checkpoint: Checkpoint, decoder: Decoder, precision: str, extras: Extras | None = None, layout: Layout = TILES
) -> WeightPlan:
    """The file for ``decoder`` at ``precision`` (one of ``layout``'s), with ``extras`` beside the model.

    Raises ``CheckpointError`` for a tensor that is missing or has another shape than the config says, and
    ``UnsupportedModelError`` for one that has no place here, or a width that cannot be quantized.
    """
    storage = layout.chooser(precision)
    matrices = tuple(_matrix(checkpoint, storage, *item) for item in _matrices(decoder))
    vectors = tuple(_vectors(decoder))
    for vector in vectors:
        _check_shapes(checkpoint, vector.parts, vector.size, None)
    used = {part for m in matrices for part in m.parts} | {part for v in vectors for part in v.parts}
    unused = [n for n in checkpoint.names() if n not in used and not n.endswith("rotary_emb.inv_freq")]
    if unused:
        raise UnsupportedModelError(
            f"{checkpoint.info.path}: tensor {unused[0]!r} (and {len(unused) - 1} more) has no place in a "
            f"{checkpoint.info.config.get('model_type')} model; it would be left out and change the output"
        )
    extras = extras or Extras()
    matrices += tuple(_extra_matrix(checkpoint, storage, *item) for item in extras.matrices)
    tensors = _lay_out(matrices, vectors, decoder, extras.constants)
    return WeightPlan(matrices, vectors, tensors, extras.constants, extras.metadata)


def _matrices(d: Decoder) -> Iterator[tuple[str, tuple[str, ...], tuple[int, ...], int]]:
    """Name, checkpoint names, rows of each and columns of every matrix; the biggest first."""
    q, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
    embedding = "model.embed_tokens.weight"
    yield "head", (embedding if d.tied else "lm_head.weight",), (d.vocab_size,), d.hidden_size
    if not d.tied:
        yield "embed", (embedding,), (d.vocab_size,), d.hidden_size
    for i in range(d.layers):
        attention, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        qkv = tuple(f"{attention}.{x}_proj.weight" for x in "qkv")
        yield f"layers.{i}.qkv", qkv, (q, kv, kv), d.hidden_size
        yield f"layers.{i}.o", (f"{attention}.o_proj.weight",), (d.hidden_size,), q
        gate_up = (f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight")
        yield f"layers.{i}.gate_up", gate_up, (d.intermediate_size,) * 2, d.hidden_size
        yield f"layers.{i}.down", (f"{mlp}.down_proj.weight",), (d.hidden_size,), d.intermediate_size


def _vectors(d: Decoder) -> Iterator[Vector]:
    yield Vector("norm", ("model.norm.weight",), d.hidden_size)
    for i in range(d.layers):
        hf, own = f"model.layers.{i}", f"layers.{i}"
        yield Vector(f"{own}.attn_norm", (f"{hf}.input_layernorm.weight",), d.hidden_size)
        yield Vector(f"{own}.mlp_norm", (f"{hf}.post_attention_layernorm.weight",), d.hidden_size)
        if d.qk_norm:
            for x in "qk":
                yield Vector(f"{own}.{x}_norm", (f"{hf}.self_attn.{x}_norm.weight",), d.head_dim)
        if d.qkv_bias:
            parts = tuple(f"{hf}.self_attn.{x}_proj.bias" for x in "qkv")
            yield Vector(f"{own}.qkv.bias", parts, d.qkv_size)
        if d.o_bias:
            yield Vector(f"{own}.o.bias", (f"{hf}.self_attn.o_proj.bias",), d.hidden_size)
        if d.mlp_bias:
            parts = (f"{hf}.mlp.gate_proj.bias", f"{hf}.mlp.up_proj.bias")
            yield Vector(f"{own}.gate_up.bias", parts, 2 * d.intermediate_size)
            yield Vector(f"{own}.down.bias", (f"{hf}.mlp.down_proj.bias",), d.hidden_size)


def _matrix(
    checkpoint: Checkpoint, storage: Chooser, name: str, parts: tuple[str, ...], rows: tuple[int, ...], k: int
) -> Matrix:
    for part, n in zip(parts, rows, strict=True):
        _check_shapes(checkpoint, (part,), n, k)
    chosen = storage([checkpoint.block_format(part) for part in parts], name in ("head", "embed"))
    if chosen.bits < 16 and k % BLOCK:
        raise UnsupportedModelError(
            f"{name}: rows of {k} are no multiple of {BLOCK}, which quantized weights need; export with "
            "--precision fp32 (for TensorRT: fp16)"
        )
    return Matrix(name, parts, rows, k, chosen)


def _extra_matrix(checkpoint: Checkpoint, storage: Chooser, name: str, part: str, n: int, k: int) -> Matrix:
    """As wide as a head: those of an exit are read for every draft, and are too small to save on."""
    chosen = storage([checkpoint.block_format(part)], True)
    return Matrix(name, (part,), (n,), k, chosen if k % BLOCK == 0 or chosen.bits >= 16 else Floats("fp32"))


def _check_shapes(checkpoint: Checkpoint, parts: tuple[str, ...], n: int, k: int | None) -> None:
    """``parts`` together have ``n`` rows of ``k`` columns (None: they are vectors)."""
    shapes = [checkpoint.shape(part) for part in parts]
    expected = () if k is None else (k,)
    if sum(shape[0] for shape in shapes if shape) != n or any(shape[1:] != expected for shape in shapes):
        raise CheckpointError(
            f"{checkpoint.info.path}: tensor {parts[0]!r} has shape {[list(shape) for shape in shapes]}, "
            "expected "
            f"{[n, *expected]} in all by the config; config and weights are of different models"
        )


def _lay_out(
    matrices: tuple[Matrix, ...],
    vectors: tuple[Vector, ...],
    d: Decoder,
    constants: Mapping[str, NDArray[np.generic]],
) -> tuple[PlannedTensor, ...]:
    """Without holes, and aligned: sizes that are multiples of 64 first, and of those the big ones."""
    items: list[tuple[str, str, tuple[int, ...], int]] = []
    for matrix in matrices:
        items += _matrix_tensors(matrix)
    items += [(v.name, "F32", (v.size,), 4 * v.size) for v in vectors]
    table = (d.context, d.rotary_dim // 2)
    items += [(name, "F32", table, 4 * table[0] * table[1]) for name in ("rope.cos", "rope.sin")]
    items += [(n, _SAFETENSORS_DTYPE[c.dtype.name], c.shape, c.nbytes) for n, c in constants.items()]
    items.sort(key=lambda item: (-min(item[3] & -item[3], ALIGNMENT), -item[3]))
    placed, offset = [], 0
    for name, dtype, shape, nbytes in items:
        placed.append(PlannedTensor(name, dtype, shape, offset, nbytes))
        offset += nbytes
    return tuple(placed)


def _matrix_tensors(matrix: Matrix) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    for suffix, (shape, dtype) in matrix.storage.shapes(matrix.n, matrix.k).items():
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        yield tensor_name(matrix.name, suffix), _SAFETENSORS_DTYPE[dtype.name], tuple(shape), nbytes


def tensor_name(matrix: str, suffix: str) -> str:
    """What one array of a matrix is called in the file."""
    return f"{matrix}.{suffix}" if suffix else matrix
