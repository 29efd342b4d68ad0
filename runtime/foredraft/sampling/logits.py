"""What a model says about the next token: all logits of a row, or those of some tokens and a ceiling for the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft_plugins.sampling import calls

Float32 = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartialRow:
    """A row of which only some logits are there: the highest, where all would take long to fetch, or those that an
    exit's own small head knows.

    ``ids`` int64 [K], ascending, and ``values`` float32 [K]; no other token's logit is above ``ceiling`` (-inf: there
    are no others to choose). ``log_total`` is the log of the sum of exp over all logits, where that is known.
    """

    ids: Ids
    values: Float32
    vocab_size: int
    ceiling: float = -math.inf
    log_total: float | None = None
    fetch: Callable[[], Float32] | None = None
    """Brings all logits [vocab_size]; valid until the engine runs again. None: what is there is all."""

    def whole(self) -> Float32:
        """[vocab_size]; -inf for tokens that cannot be chosen."""
        if self.fetch is not None:
            return self.fetch()
        row = np.full(self.vocab_size, -np.inf, np.float32)
        row[self.ids] = self.values
        return row


Row = Float32 | PartialRow
"""Logits [vocab], or a part of them."""
Rows = Float32 | Sequence[PartialRow]
"""Logits [rows, vocab], or a part of each row."""


def rows_over(ids: Ids | None, logits: Float32, vocab_size: int) -> Rows:
    """Rows of ``logits`` [rows, N] of the tokens ``ids`` [N], all others being impossible; None: of all tokens."""
    return logits if ids is None else [PartialRow(ids, row, vocab_size) for row in logits]


def whole(row: Row) -> Float32:
    """All logits of a row, [vocab]."""
    return row.whole() if isinstance(row, PartialRow) else row


def dense(rows: Rows) -> Float32:
    """All logits, [rows, vocab]."""
    return rows if isinstance(rows, np.ndarray) else np.stack([row.whole() for row in rows])


def logit(row: Row, token: int) -> float:
    """One token's; -inf if it cannot be chosen."""
    if not isinstance(row, PartialRow):
        return float(row[token])
    place = int(np.searchsorted(row.ids, token))
    if place < len(row.ids) and row.ids[place] == token:
        return float(row.values[place])
    return -math.inf if row.ceiling == -math.inf else float(row.whole()[token])


def log_total(row: Row) -> float:
    """The log of the sum of exp over all logits of a row: a token's log probability is its logit less this."""
    if isinstance(row, PartialRow):
        if row.log_total is not None:
            return row.log_total
        row = row.values if row.ceiling == -math.inf else row.whole()
    row = np.ascontiguousarray(row)
    best = float(row.max())
    if calls.available():
        return best + math.log(calls.total(row, best))
    with np.errstate(under="ignore"):
        return best + math.log(float(np.exp(row - best).sum(dtype=np.float64)))
