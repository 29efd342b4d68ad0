"""Forwards for engines whose attention is the library's own: it writes its rows one after the other, without gaps.

So a batch is cut where its slots have gaps, and nothing is padded, since a row too many would overwrite one in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from foredraft.engines.cuda.memory import Memory
from foredraft.engines.cuda.rows import Index
from foredraft.engines.cuda.runnable import Addresses, Context, Runnable
from foredraft.engines.cuda.steps import Inputs
from foredraft.engines.protocol import Batch


class ExactForwards:
    """The segments of one sequence, run with as many rows as there are nodes, and without CUDA graphs."""

    def __init__(
        self,
        engines: Sequence[Runnable],
        memory: Memory,
        weights: Addresses,
        limits: tuple[int, ...],
        cut: Callable[[Batch], Iterable[Batch]] | None = None,
    ) -> None:
        """``limits``: the most rows of each optimization profile, ascending; ``cut`` defaults to ``contiguous``."""
        self._engines, self._memory, self._weights, self._limits = engines, memory, weights, limits
        self._cut = cut or contiguous
        self._contexts: dict[tuple[int, int], tuple[Inputs, Context]] = {}

    def run(self, segment: int, batch: Batch) -> None:
        """Put the forwards into the stream; afterwards the readout holds the rows of the whole batch."""
        done = 0
        for part in self._cut(batch):
            self._run(segment, part, done)
            done += len(part)

    def _run(self, segment: int, batch: Batch, done: int) -> None:
        memory, count = self._memory, len(batch)
        limit = next(limit for limit in self._limits if limit >= count)
        known = self._contexts.get((segment, limit))
        inputs, context = known or self._made(segment, limit)
        inputs.fill(batch)
        inputs.send()
        memory.uploads[segment].sent()
        hidden, slots = memory.hidden_of(segment), Index(inputs.slots.address, batch.slots)
        context.shape(count, memory.layout.slots)
        if hidden.before is not None:
            memory.copier.gather(hidden.read, hidden.before, slots, count, hidden.width)
        context.enqueue()
        if hidden.after is not None:
            memory.copier.scatter(hidden.after, hidden.written, slots, count, hidden.width)
        memory.stream.copy(memory.readout.address + done * memory.width, memory.part.address, count * memory.width)
        if known is None:
            self._contexts[segment, limit] = inputs, context
            memory.stream.wait()
            self._engines[segment].keep_kernels()

    def _made(self, segment: int, limit: int) -> tuple[Inputs, Context]:
        engine, memory = self._engines[segment], self._memory
        inputs = Inputs(memory.uploads[segment], limit, spare=0)
        tensors = {**memory.tensors(), "readout": memory.part.address}
        addresses = {**self._weights, **inputs.addresses, **tensors}
        return inputs, engine.context(limit, memory.layout.slots, addresses, memory.scratch, memory.stream)


def contiguous(batch: Batch) -> Iterator[Batch]:
    """The batch in parts whose slots follow one another without gaps, in order."""
    cuts = np.flatnonzero(np.diff(batch.slots) != 1) + 1
    for start, end in pairwise([0, *cuts.tolist(), len(batch)]):
        part = slice(start, end)
        yield replace(
            batch,
            tokens=batch.tokens[part],
            positions=batch.positions[part],
            slots=batch.slots[part],
            mask=batch.mask[part],
        )
