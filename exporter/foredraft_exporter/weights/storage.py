"""How a matrix [n, k] lies in the weights file: what arrays it becomes, and with what numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from foredraft.errors import CheckpointError, UnsupportedModelError
from foredraft_exporter.sources.checkpoint import Checkpoint
from foredraft_exporter.weights.blocks import BlockFormat, Blocks, fits, widen
from foredraft_exporter.weights.quantize import quantize, round_rows, squared_error
from foredraft_plugins.block_linear.packing import BLOCK, pack, packed_shapes

Arrays = dict[str, NDArray[Any]]
"""By suffix of the tensor's name; ``""`` for a matrix that is one array."""
Piece = tuple[str, int, int]
"""Rows ``start .. stop-1`` of the checkpoint's matrix of this name."""

FLOATS: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass(frozen=True, slots=True)
class Rounding:
    """Sum of squared differences and sum of squares of what had to be rounded, to be added up over a matrix."""

    wrong: float = 0.0
    total: float = 0.0

    def __add__(self, other: Rounding) -> Rounding:
        return Rounding(self.wrong + other.wrong, self.total + other.total)


class Storage(Protocol):
    """One way to store a matrix. ``bits`` is the width of its numbers: 4, 8, 16 or 32."""

    @property
    def bits(self) -> int: ...

    def shapes(self, n: int, k: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each array of a matrix [n, k], by suffix."""
        ...

    def encode(self, checkpoint: Checkpoint, pieces: list[Piece]) -> tuple[Arrays, Rounding]:
        """The pieces one below the other. Encoded chunks of rows concatenate along axis 0."""
        ...

    def rounds(self, checkpoint: Checkpoint, part: str) -> bool:
        """Whether numbers of the checkpoint's matrix ``part`` are rounded to fewer bits than they have there."""
        ...


@dataclass(frozen=True, slots=True)
class Floats:
    """As floats of ``kind`` (fp32, fp16 or bf16), row by row."""

    kind: str

    @property
    def bits(self) -> int:
        return FLOATS[self.kind].itemsize * 8

    def shapes(self, n: int, k: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        return {"": ((n, k), FLOATS[self.kind])}

    def encode(self, checkpoint: Checkpoint, pieces: list[Piece]) -> tuple[Arrays, Rounding]:
        rounding, rows = Rounding(), []
        for piece in pieces:
            own = checkpoint.read_rows(*piece)
            rows.append(self._rounded(own, piece[0]))
            difference = rows[-1].astype(np.float32) - own if self.kind != "fp32" else np.zeros(0, np.float32)
            wrong = float(np.vdot(difference, difference))
            rounding += Rounding(wrong, float(np.vdot(own, own))) if wrong else Rounding()
        return {"": np.concatenate(rows)}, rounding

    def rounds(self, checkpoint: Checkpoint, part: str) -> bool:
        return False  # half floats are judged by limits of their own

    def _rounded(self, rows: NDArray[np.float32], name: str) -> NDArray[Any]:
        check_finite(rows, name)
        if self.kind == "fp16" and rows.size and np.abs(rows).max() > 65504:
            raise UnsupportedModelError(f"{name}: has values beyond what float16 can hold; use --precision bf16")
        return rows.astype(FLOATS[self.kind])


@dataclass(frozen=True, slots=True)
class Tiles:
    """In blocks of 32, packed for the CPU operators (plugins' block_linear/packing.py)."""

    format: BlockFormat

    @property
    def bits(self) -> int:
        return self.format.bits

    def shapes(self, n: int, k: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        return packed_shapes(n, k, self.format.bits, self.format.has_min)

    def encode(self, checkpoint: Checkpoint, pieces: list[Piece]) -> tuple[Arrays, Rounding]:
        rounding, blocks = Rounding(), []
        for part, start, stop in pieces:
            if self.rounds(checkpoint, part):
                rows = checkpoint.read_rows(part, start, stop)
                own = quantize(rows, self.format.bits, part)
                rounding += Rounding(*squared_error(rows, own))
            else:
                taken = checkpoint.blocks(part, start, stop)
                assert taken is not None
                own = taken
            blocks.append(widen(own, self.format, part))
        low = [b.min for b in blocks if b.min is not None]
        codes, scale = np.concatenate([b.codes for b in blocks]), np.concatenate([b.scale for b in blocks])
        return pack(codes, scale, np.concatenate(low) if low else None, self.format.bits), rounding

    def rounds(self, checkpoint: Checkpoint, part: str) -> bool:
        return not fits(checkpoint.block_format(part), self.format)


@dataclass(frozen=True, slots=True)
class IntegerRows:
    """As 8-bit integers with a scale for each row: ``codes`` i8 [n, k], ``scale`` f16 [n]."""

    bits: int = 8

    def shapes(self, n: int, k: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        return {"codes": ((n, k), np.dtype(np.int8)), "scale": ((n,), np.dtype(np.float16))}

    def encode(self, checkpoint: Checkpoint, pieces: list[Piece]) -> tuple[Arrays, Rounding]:
        rounding, codes, scales = Rounding(), [], []
        for part, start, stop in pieces:
            rows = check_finite(checkpoint.read_rows(part, start, stop), part)
            code, scale = round_rows(rows, part)
            difference = code.astype(np.float32) * scale.astype(np.float32)[:, None] - rows
            rounding += Rounding(float(np.vdot(difference, difference)), float(np.vdot(rows, rows)))
            codes.append(code)
            scales.append(scale)
        return {"codes": np.concatenate(codes), "scale": np.concatenate(scales)}, rounding

    def rounds(self, checkpoint: Checkpoint, part: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class BlockRows:
    """As signed 4-bit integers with a scale, and maybe an offset, for each 32: ``value = scale * code + offset``.

    ``codes`` u8 [n, k / 2], the first of two in the low half; ``scale`` and ``offset`` f16 [n, k / 32].
    """

    has_offset: bool
    bits: int = 4

    def shapes(self, n: int, k: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        half, blocks = np.dtype(np.float16), (n, k // BLOCK)
        shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "codes": ((n, k // 2), np.dtype(np.uint8)),
            "scale": (blocks, half),
        }
        return shapes | ({"offset": (blocks, half)} if self.has_offset else {})

    def encode(self, checkpoint: Checkpoint, pieces: list[Piece]) -> tuple[Arrays, Rounding]:
        rounding, encoded = Rounding(), []
        for part, start, stop in pieces:
            blocks = checkpoint.blocks(part, start, stop) if not self.rounds(checkpoint, part) else None
            if blocks is None:
                rows = checkpoint.read_rows(part, start, stop)
                blocks = quantize(rows, 4, part)
                rounding += Rounding(*squared_error(rows, blocks))
            encoded.append(self._arrays(blocks))
        return {name: np.concatenate([arrays[name] for arrays in encoded]) for name in encoded[0]}, rounding

    def rounds(self, checkpoint: Checkpoint, part: str) -> bool:
        form = checkpoint.block_format(part)
        return form is None or form.bits != 4 or (form.has_min and not self.has_offset)

    def _arrays(self, blocks: Blocks) -> Arrays:
        """Codes turn signed: 8 less each, for which the minimum makes up."""
        signed = blocks.codes ^ 8  # the low four bits of code - 8
        arrays: Arrays = {"codes": signed[:, 0::2] | signed[:, 1::2] << 4, "scale": blocks.scale}
        if self.has_offset:
            zero = np.zeros_like(blocks.scale)
            middle = 8 * blocks.scale.astype(np.float32)
            arrays["offset"] = (
                zero if blocks.min is None else (blocks.min.astype(np.float32) + middle).astype(np.float16)
            )
        return arrays


def check_finite(values: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """The values; raises ``CheckpointError`` naming the tensor if one is NaN or infinite."""
    if not np.isfinite(values).all():
        raise CheckpointError(f"{name}: has values that are not finite (NaN or infinity); the checkpoint is damaged")
    return values
