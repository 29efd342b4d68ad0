"""One sequence on the device: its caches and hidden states, and what is run on them. Not thread-safe."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from foredraft.engines.cuda.device import PinnedBuffer
from foredraft.engines.cuda.heads import Head
from foredraft.engines.cuda.memory import FLOAT, Memory
from foredraft.engines.protocol import Batch, Float32, Int32
from foredraft.sampling.logits import Rows


class Forwards(Protocol):
    """How a batch gets through a segment."""

    def run(self, segment: int, batch: Batch) -> None: ...


class CudaSequence:
    """Work is put into one stream, which is only waited for where its results come to the host."""

    def __init__(
        self,
        memory: Memory,
        forwards: Forwards,
        heads: tuple[Head, Head],
        slots: int,
        owner: object,
    ) -> None:
        """``heads``: the whole one and the one that drafts; ``slots`` of the cache's rows may be used.

        ``owner`` is whose memory the engines read besides the sequence's own: it is kept as long as the sequence.
        """
        self.slots = slots
        self._owner = owner
        self._memory, self._forwards = memory, forwards
        self._head, self._draft_head = heads
        self._last = 0
        self._read = PinnedBuffer(memory.device, memory.readout.size)

    def run(self, segment: int, batch: Batch) -> None:
        self._memory.device.activate()
        self._forwards.run(segment, batch)
        self._last = len(batch)

    def logits(self, rows: Int32) -> Rows:
        self._memory.device.activate()
        return self._head.logits(rows)

    def draft_logits(self, rows: Int32) -> Rows:
        self._memory.device.activate()
        return self._draft_head.logits(rows)

    def readout(self, rows: Int32) -> Float32:
        self._memory.device.activate()
        memory = self._memory
        memory.stream.to_host(self._read.address, memory.readout.address, self._last * memory.width)
        memory.stream.wait()
        batch: Float32 = self._read.view(np.float32, (self._last, memory.width // FLOAT))
        return batch[rows]

    def move(self, source: Int32, target: Int32) -> None:
        moved = source != target
        if not moved.any():
            return
        self._memory.device.activate()
        memory, count = self._memory, int(moved.sum())
        sources, targets = memory.indices.send(source[moved], target[moved])
        memory.copier.move(memory.caches.address, memory.layout, sources, targets)
        for hidden in memory.hidden:
            # By way of a forward's own tensor, which is free between two forwards.
            memory.copier.gather(memory.read.address, hidden.address, sources, count, memory.width)
            memory.copier.scatter(hidden.address, memory.read.address, targets, count, memory.width)

    def copy_rows(self, other: CudaSequence, count: int) -> None:
        self._memory.device.activate()
        mine, theirs = self._memory, other._memory
        theirs.stream.wait()  # what was put into it so far belongs to the rows
        for to, start in zip(mine.layout.plane_offsets(), theirs.layout.plane_offsets(), strict=True):
            mine.stream.copy(mine.caches.address + to, theirs.caches.address + start, count * mine.layout.row)
        for hidden, source in zip(mine.hidden, theirs.hidden, strict=True):
            mine.stream.copy(hidden.address, source.address, count * mine.width)
        mine.stream.wait()  # from now on the other one may overwrite them
