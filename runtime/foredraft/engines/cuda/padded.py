"""Forwards padded to one of a few numbers of rows: each has its own context and, for decoding, its own CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.engines.cuda.memory import Memory
from foredraft.engines.cuda.runnable import Addresses, Runnable
from foredraft.engines.cuda.steps import Inputs, SegmentWork, Step
from foredraft.engines.protocol import Batch


class PaddedForwards:
    """The segments of one sequence. Rows beyond a batch write to the cache's last row, which no node sees."""

    def __init__(
        self,
        engines: Sequence[Runnable],
        memory: Memory,
        weights: Addresses,
        buckets: tuple[int, ...],
        captured: tuple[int, ...],
    ) -> None:
        """``buckets``: numbers of rows, ascending; ``captured``: those that run as graphs."""
        self._engines, self._memory, self._weights = engines, memory, weights
        self._buckets, self._captured = buckets, captured
        self._steps: dict[tuple[int, int], tuple[Inputs, Step]] = {}

    def run(self, segment: int, batch: Batch) -> None:
        """Put a forward into the stream."""
        rows = next(bucket for bucket in self._buckets if bucket >= len(batch))
        known = self._steps.get((segment, rows))
        inputs, step = known or self._made(segment, rows)
        inputs.fill(batch)
        step.run()
        if known is None:
            self._steps[segment, rows] = inputs, step
            self._memory.stream.wait()
            self._engines[segment].keep_kernels()

    def _made(self, segment: int, rows: int) -> tuple[Inputs, Step]:
        engine, memory = self._engines[segment], self._memory
        upload = memory.uploads[segment]
        inputs = Inputs(upload, rows, spare=memory.layout.slots - 1)
        addresses = {**self._weights, **inputs.addresses, **memory.tensors()}
        context = engine.context(rows, memory.layout.slots, addresses, memory.scratch, memory.stream)
        work = SegmentWork(context, inputs, memory.hidden_of(segment), memory.copier)
        return inputs, Step(f"{engine.where}, {rows} rows", work, memory.stream, upload, rows in self._captured)
