"""How each matrix is stored, from what is asked for and what the checkpoint already has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foredraft.errors import ForedraftError
from foredraft_exporter.weights.blocks import BlockFormat
from foredraft_exporter.weights.storage import BlockRows, Floats, IntegerRows, Storage, Tiles

Chooser = Callable[[Sequence[BlockFormat | None], bool], Storage]
"""``(formats, wide)`` -> how a fused matrix is stored.

``formats`` are those in which the checkpoint stores the matrices that are fused (None: as floats, or in a type that is
not taken over); ``wide`` marks embedding and head.
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """A family of storages that one kind of backend reads; ``name`` is what graphs call it."""

    name: str
    precisions: tuple[str, ...]
    choose: Callable[[str, Sequence[BlockFormat | None], bool], Storage]

    def chooser(self, precision: str) -> Chooser:
        """Raises ForedraftError for a precision that this layout has not."""
        if precision not in self.precisions:
            raise ForedraftError(
                f"precision {precision!r} is not known here; expected one of {', '.join(self.precisions)}"
            )
        return lambda formats, wide: self.choose(precision, formats, wide)


def _tiles(precision: str, parts: Sequence[BlockFormat | None], wide: bool) -> Storage:
    """``auto`` takes the checkpoint's own numbers, at the bits of the widest part, and 8 bits where there are none;
    ``int8`` and ``int4`` are that many bits, taking over what is already there and fits, embedding and head at 8.
    """
    if precision == "fp32":
        return Floats("fp32")
    if precision == "int4" and not wide:
        own = all(part == BlockFormat(4, False) for part in parts)
        return Tiles(BlockFormat(4, not own))
    bits = 8
    if precision == "auto" and all(part is not None for part in parts):
        bits = max(part.bits for part in parts if part is not None)
    return Tiles(BlockFormat(bits, any(part is not None and part.has_min for part in parts)))


def _rows(precision: str, parts: Sequence[BlockFormat | None], wide: bool) -> Storage:
    """Embedding and head stay floats: GPU libraries have no gather of quantized rows."""
    if precision == "int8" and not wide:
        return IntegerRows()
    if precision == "int4" and not wide:
        return BlockRows(has_offset=any(part != BlockFormat(4, False) for part in parts))
    return Floats("bf16" if precision == "bf16" else "fp16")


TILES = Layout("tiles", ("auto", "fp32", "int8", "int4"), _tiles)
"""For the CPU: packed for our own operators."""
ROWS = Layout("rows", ("auto", "fp16", "bf16", "int8", "int4"), _rows)
"""For GPUs: matrices as they are, row by row. ``auto`` is fp16; int8 has a scale for each row, int4 for each 32."""
