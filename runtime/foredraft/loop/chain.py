"""The segments in order over an arena. Knows nothing of drafting, sampling or text.

It keeps the law that no layer runs twice on the same node: a node's ``stage`` says how many segments it has been
through, and a segment refuses a node of any other stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft.engines.protocol import WINDOW, Batch, EngineSequence, Int32
from foredraft.loop.arena import Arena
from foredraft.sampling.logits import Rows

HEAD, EXIT_HEAD = -1, -2
"""What ran, if it was no segment: the whole head, or the one that exits draft and judge with."""
Forward = tuple[int, int]
"""The segment or head that ran, and on how many nodes."""


@dataclass(slots=True)
class Work:
    """What has been computed. Deterministic, so tests may assert it.

    ``forwards``: passes through the last segment after the prompt; ``layer_passes``: how often a layer's weights were
    read, for however many nodes at once; ``layer_runs``: the same, times the nodes (one for each node and layer);
    ``head_rows``: rows that went through the head; ``rows_moved``: slots whose rows were copied to close up an accepted
    path.
    """

    forwards: int = 0
    layer_passes: int = 0
    layer_runs: int = 0
    head_rows: int = 0
    rows_moved: int = 0


class Chain:
    """One sequence's arena and engine, kept in step."""

    def __init__(self, sequence: EngineSequence, layers: Sequence[int]) -> None:
        """``layers[k]`` is the number of layers of segment k."""
        self.arena = Arena(sequence.slots)
        self.work = Work()
        self._forwards: list[Forward] = []
        self._sequence = sequence
        self._layers = tuple(layers)

    @property
    def segments(self) -> int:
        return len(self._layers)

    def take_forwards(self) -> tuple[Forward, ...]:
        """What ran since this was last asked."""
        taken = tuple(self._forwards)
        self._forwards.clear()
        return taken

    def prefill(self, tokens: Sequence[int], chunk: int = WINDOW) -> Rows:
        """Settle ``tokens`` after the text, through all segments -> one row of logits, after the last one."""
        for start in range(0, len(tokens), chunk):
            part = tokens[start : start + chunk]
            parents = range(self.arena.used - 1, self.arena.used - 1 + len(part))
            slots = self.arena.extend(part, parents)
            self.advance(slots, self.segments)
            self.commit(slots.tolist())
        return self.logits(np.array([len(part) - 1], np.int32))

    def verify(self, slots: Int32) -> Rows:
        """Run nodes through all segments that they still lack -> a row of logits for each."""
        self.advance(slots, self.segments)
        self.work.forwards += 1
        return self.logits(np.arange(len(slots), dtype=np.int32))

    def advance(self, slots: Int32, stage: int) -> None:
        """Run nodes (ascending slots, none with an ancestor that lags behind it) until each has ``stage`` segments.

        The last segment runs on all of them at once, so that ``logits`` may be asked for any.
        """
        batch = None
        for segment in range(int(self.arena.stage[slots].min()), stage):
            lagging = slots[self.arena.stage[slots] == segment]
            if batch is None or len(lagging) > len(batch):  # those that lag only become more
                batch = self.arena.batch(lagging)
            self._run(segment, batch)
        if len(lagging) != len(slots):
            raise AssertionError(f"of {len(slots)} nodes only {len(lagging)} were in the last segment's batch")

    def logits(self, rows: Int32) -> Rows:
        """Head over rows of the last batch."""
        self._count_head(HEAD, len(rows))
        return self._sequence.logits(rows)

    def exit_logits(self, rows: Int32) -> Rows:
        """What the exit at the end of the last segment that ran says, a row for each."""
        self._count_head(EXIT_HEAD, len(rows))
        return self._sequence.draft_logits(rows)

    def commit(self, path: Sequence[int]) -> None:
        """Settle the path, moving its rows where it has gaps, and forget the rest of the window."""
        source, target = self.arena.commit(path)
        if len(source):
            self._sequence.move(source, target)
            self.work.rows_moved += len(source)

    def copy_settled(self, other: Chain, count: int) -> None:
        """Hold the first ``count`` settled tokens of another chain of the engine: rows are copied, no layer runs."""
        self._sequence.copy_rows(other._sequence, count)
        self.arena.copy_settled(other.arena, count)

    def touch(self, first: int, end: int) -> None:
        """Write rows above the text once, as they are, so that the system finds memory for them now and not later."""
        if first < self.arena.used:
            raise ValueError(f"cannot touch slots from {first}: {self.arena.used} are in use")
        rows = np.arange(first, end, dtype=np.int32)
        self._sequence.move(rows, rows)

    def wait(self) -> None:
        """Return once everything so far is computed, also on a device that works on its own."""
        self._sequence.readout(np.zeros(1, np.int32))

    def _run(self, segment: int, batch: Batch) -> None:
        slots = batch.slots
        stages: npt.NDArray[np.int8] = self.arena.stage[slots]
        if (stages != segment).any():
            raise AssertionError(f"segment {segment} asked for nodes of stages {sorted(set(stages.tolist()))}")
        self._sequence.run(segment, batch)
        self.arena.stage[slots] = segment + 1
        self.work.layer_passes += self._layers[segment]
        self.work.layer_runs += len(slots) * self._layers[segment]
        self._forwards.append((segment, len(slots)))

    def _count_head(self, head: int, rows: int) -> None:
        self.work.head_rows += rows
        self._forwards.append((head, rows))
