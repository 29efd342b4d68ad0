"""How often an exit's choices are the whole model's token, by rank, learned by how sure the exit was of its first."""

from __future__ import annotations

import math
from collections.abc import Sequence

BUCKETS = 8
RUNNERS_UP = 8
"""Choices after the first that are learned about."""
_FORGET = 0.998
"""Weight of an observation after the next one."""
_PRIOR = 3.0
"""Observations that the first guess counts for: the exit's own confidence, of the rest half for the second choice, a
quarter for the third, and so on."""


class Agreement:
    """One exit's agreement with the whole model, by rank, and by confidence in ``BUCKETS`` equal steps."""

    def __init__(self) -> None:
        middles = [(bucket + 0.5) / BUCKETS for bucket in range(BUCKETS)]
        self._hits = [[_PRIOR * middle for middle in middles]]
        self._hits += [[_PRIOR * (1.0 - middle) * 0.5**rank for middle in middles] for rank in range(1, RUNNERS_UP + 1)]
        self._seen = [_PRIOR] * BUCKETS
        self._all_hits, self._all_seen = [0.5 ** (1 + rank) for rank in range(1 + RUNNERS_UP)], 1.0

    @property
    def mean(self) -> float:
        """Agreement over all confidences; a half while nothing is known."""
        return self._all_hits[0] / self._all_seen

    def optimistic(self) -> float:
        """The highest mean that what was seen leaves likely: one and a half standard errors above it."""
        seen, mean = self._all_seen, self.mean
        return min(mean + 1.5 * math.sqrt(mean * (1.0 - mean) / seen), 1.0)

    def rate(self, confidence: float, rank: int = 0) -> float:
        """The probability that a token of this confidence, or its runner-up of this rank, is the model's own."""
        bucket = _bucket(confidence)
        return self._hits[rank][bucket] / self._seen[bucket]

    def runners_up(self, price: float) -> tuple[int, float]:
        """How many ranks after the first are right more often than ``price``, and how often they are together."""
        rates = [hits / self._all_seen for hits in self._all_hits[1:]]
        worth = [rate for rate in rates if rate > price]
        return len(worth), sum(worth)

    def learn(self, confidence: float, choices: Sequence[int], own: int) -> None:
        """The exit's ``choices`` were these, best first, and the model's own token was ``own``."""
        bucket = _bucket(confidence)
        for hits in self._hits:
            hits[bucket] *= _FORGET
        self._all_hits = [hits * _FORGET for hits in self._all_hits]
        if own in choices:
            rank = choices.index(own)
            self._hits[rank][bucket] += 1.0
            self._all_hits[rank] += 1.0
        self._seen[bucket] = self._seen[bucket] * _FORGET + 1.0
        self._all_seen = self._all_seen * _FORGET + 1.0


def _bucket(confidence: float) -> int:
    return min(max(int(confidence * BUCKETS), 0), BUCKETS - 1)
