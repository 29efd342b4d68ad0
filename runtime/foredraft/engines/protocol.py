"""The protocol between the loop and an engine. Knows nothing of drafting, sampling or text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from foredraft.sampling.logits import Rows

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

WINDOW = 256
"""How many slots above ``n_past`` a forward's mask can address; also the largest number of nodes in one forward."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The T nodes of one forward, in ascending slot order (parents before children).

    ``tokens`` [T], ``positions`` [T] (for RoPE), ``slots`` [T] (the row each node writes), ``n_past`` (every node sees
    slots 0..n_past-1), ``mask`` [T, WINDOW / 32] int32 (bit j of word w: may see slot n_past + 32 w + j; a node sees
    itself).
    """

    tokens: Int32
    positions: Int32
    slots: Int32
    n_past: int
    mask: Int32

    def __len__(self) -> int:
        return len(self.slots)


class EngineSequence(Protocol):
    """One sequence's KV cache and hidden states on an engine; not thread-safe.

    Segment k > 0 starts from the hidden states that segment k-1 left at the same slots.
    """

    slots: int

    def run(self, segment: int, batch: Batch) -> None:
        """Run one segment on the batch: writes its KV rows and hidden states at ``batch.slots``, in place."""
        ...

    def logits(self, rows: Int32) -> Rows:
        """Head over the given rows (indices into the last batch that ran), valid until the next call: all logits
        [len(rows), vocab_size], or of each row what the engine thinks is enough.
        """
        ...

    def draft_logits(self, rows: Int32) -> Rows:
        """What an exit drafts from, as above. It may know only the most frequent tokens; the others are impossible."""
        ...

    def readout(self, rows: Int32) -> Float32:
        """The exit's normed state for the given rows of the last batch -> a copy, [len(rows), hidden_size]."""
        ...

    def move(self, source: Int32, target: Int32) -> None:
        """Copy KV rows and hidden states of ``source`` slots to ``target`` slots (ascending, target <= source)."""
        ...

    def copy_rows(self, other: Self, count: int) -> None:
        """Copy KV rows and hidden states of another sequence's first ``count`` slots to the same slots here."""
        ...


class Engine(Protocol):
    """The compiled segments and head of one bundle on one device; shared by sequences, safe to use from threads."""

    name: str
    version: str
    """Of the library that runs it: what was measured with another one is measured anew."""
    segments: int
    threads: int
    exact: bool
    """Whether a node has the same bits whatever shares its forward. Where it has not, a draft can change a text at a
    near tie, and whoever reports on a text says so."""
    trees: bool
    """Whether trees may be drafted. An engine that is only exact for single paths keeps to these."""
    lazy: bool
    """Whether a sequence only takes memory for rows that were written; else it takes all of it when it is opened."""
    vocab_size: int

    def open_sequence(self, slots: int) -> EngineSequence:
        """A fresh cache of ``slots`` rows."""
        ...
