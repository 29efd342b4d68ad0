"""The rows of a head of which only the highest logits came to the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np

from foredraft.engines.protocol import Float32, Int32
from foredraft.sampling.logits import Ids, PartialRow


class TopRows(Sequence[PartialRow]):
    """``ids`` [T, K] and ``values`` float32 [T, K] of each row's highest logits, the highest first, and ``totals``
    float32 [T], the logs of the sums of exp over all logits; views of memory that the head's next run overwrites.

    Rows are made when they are looked at, and keep what is theirs. One whose total is no number comes whole, so that
    whoever picks from it sees why.
    """

    def __init__(
        self, ids: Int32, values: Float32, totals: Float32, head: HeadVocabulary, fetch: Callable[[int], Float32]
    ) -> None:
        """``fetch(row)`` brings all logits of a row, [vocab_size]."""
        self._ids, self._values, self._totals = ids, values, totals
        self._head, self._fetch = head, fetch

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, row: int) -> PartialRow: ...
    @overload
    def __getitem__(self, row: slice) -> list[PartialRow]: ...
    def __getitem__(self, row: int | slice) -> PartialRow | list[PartialRow]:
        if isinstance(row, slice):
            return [self._row(each) for each in range(len(self))[row]]
        return self._row(range(len(self))[row])

    def __iter__(self) -> Iterator[PartialRow]:
        return map(self._row, range(len(self)))

    def _row(self, row: int) -> PartialRow:
        head, values, total = self._head, self._values[row], float(self._totals[row])
        if not math.isfinite(total):  # NaN has no place in an order, so the top need not show it
            return PartialRow(np.arange(head.vocab_size), self._fetch(row), head.vocab_size)
        order = np.argsort(self._ids[row])
        tokens, known = head.tokens(self._ids[row][order]), values[order]
        if len(values) == head.size:
            return PartialRow(tokens, known, head.vocab_size, log_total=total)
        return PartialRow(tokens, known, head.vocab_size, float(values[-1]), total, lambda: self._fetch(row))


class HeadVocabulary:
    """What the ``size`` logits of a head's row stand for: the first tokens of the vocabulary, or ``ids``, ascending."""

    def __init__(self, size: int, vocab_size: int, ids: Ids | None) -> None:
        self.size, self.vocab_size, self.ids = size, vocab_size, ids

    def tokens(self, places: Int32) -> Ids:
        """What the logits at these places stand for."""
        return places.astype(np.int64) if self.ids is None else self.ids[places]
