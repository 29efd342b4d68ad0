"""Which format each matrix gets, from what is asked for and what the checkpoint already has."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.errors import ForedraftError
from foredraft_exporter.blocks import BlockFormat

PRECISIONS = ("auto", "fp32", "int8", "int4")


def matrix_format(precision: str, parts: Sequence[BlockFormat | None], wide: bool) -> BlockFormat | None:
    """The format of a fused matrix, or None for float32.

    ``parts`` are the formats in which the checkpoint stores the matrices that are fused (None: as floats, or
    in a type that is not taken over). ``wide`` marks embedding and head, which ``int4`` keeps at 8 bits.

    * ``auto``: the checkpoint's own numbers, at the bits of the widest part; 8 bits where there are none.
    * ``int8``, ``int4``: that many bits, taking over what is already there and fits.
    """
    if precision not in PRECISIONS:
        raise ForedraftError(f"precision {precision!r} is not known; expected one of {', '.join(PRECISIONS)}")
    if precision == "fp32":
        return None
    if precision == "int4" and not wide:
        own = all(part == BlockFormat(4, False) for part in parts)
        return BlockFormat(4, not own)
    bits = 8
    if precision == "auto" and all(part is not None for part in parts):
        bits = max(part.bits for part in parts if part is not None)
    return BlockFormat(bits, any(part is not None and part.has_min for part in parts))
