"""The first bytes of an engine of TensorRT for RTX: a cross-check of what was asked for. Observed, not documented."""

from __future__ import annotations

import struct

from foredraft.errors import ForedraftError

_MAGIC = b"vtrt"
_SIZE_AT, _TARGETS_AT, _HEADER = 0x10, 0x20, 64
_BITS = {"sm75": 1, "sm80": 2, "sm86": 4, "sm89": 8, "sm120": 16, "sm121": 32}


def targets_of(engine: bytes) -> tuple[str, ...] | None:
    """The compute capabilities that an engine says it was built for; None for bytes of another form."""
    if len(engine) < _HEADER or engine[:4] not in (_MAGIC, _MAGIC[::-1]):
        return None
    (mask,) = struct.unpack_from("<I", engine, _TARGETS_AT)
    return tuple(name for name, bit in _BITS.items() if mask & bit)


def check_header(engine: bytes, targets: tuple[str, ...], where: str) -> None:
    """Raises ForedraftError if an engine is cut short or says it is for other targets than ``targets``."""
    found = targets_of(engine)
    if found is None:
        return
    (size,) = struct.unpack_from("<Q", engine, _SIZE_AT)
    if size != len(engine):
        raise ForedraftError(f"{where}: {len(engine)} bytes, but its header says {size}; build it again")
    if found != targets:
        raise ForedraftError(f"{where}: built for {', '.join(found) or 'nothing'}, expected {', '.join(targets)}")
