"""What a sequence needs of an engine, whoever compiled it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from foredraft.engines.cuda.device import DeviceBuffer, Stream

Addresses = Mapping[str, int]
"""Device addresses of tensors by name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """``shape`` has -1 for what is open; ``item`` is an element's size in bytes (half a byte for int4)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    item: float

    def sized(self, rows: int, slots: int) -> tuple[int, ...]:
        """Its shape for a forward of ``rows`` nodes over caches of ``slots`` rows."""
        size = slots if self.name.startswith(("key_", "value_")) else rows
        return tuple(size if dimension < 0 else dimension for dimension in self.shape)

    def nbytes(self, rows: int, slots: int) -> int:
        """Bytes of that."""
        return math.ceil(math.prod(self.sized(rows, slots)) * self.item)


class Context(Protocol):
    """An engine with every tensor bound to an address."""

    def shape(self, rows: int, slots: int) -> None:
        """Give every input its shape for ``rows`` nodes over caches of ``slots`` rows."""
        ...

    def enqueue(self) -> None:
        """Put a forward into the stream. Raises EngineError."""
        ...

    def capturable(self) -> bool:
        """Whether what it puts into its stream may be captured in a CUDA graph."""
        ...


class Runnable(Protocol):
    """A segment or a head. ``where`` is its file."""

    where: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]

    def context(
        self, rows: int, slots: int, addresses: Addresses, scratch: DeviceBuffer, stream: Stream
    ) -> Context: ...

    def keep_kernels(self) -> None:
        """Remember for the next start what was compiled so far, where anything is."""
        ...
