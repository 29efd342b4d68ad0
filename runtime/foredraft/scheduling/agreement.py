"""How often an exit's token is the one that the whole model writes, learned by how sure the exit was."""

from __future__ import annotations

import math

BUCKETS = 8
_FORGET = 0.998
"""Weight of an observation after the next one."""
_PRIOR = 3.0
"""Observations that the first guess, the exit's own confidence, counts for."""


class Agreement:
    """One exit's agreement with the whole model, by confidence in ``BUCKETS`` equal steps."""

    def __init__(self) -> None:
        self._hits = [_PRIOR * (bucket + 0.5) / BUCKETS for bucket in range(BUCKETS)]
        self._seen = [_PRIOR] * BUCKETS
        self._all_hits, self._all_seen = 0.0, 0.0

    @property
    def mean(self) -> float:
        """Agreement over all confidences; a half while nothing is known."""
        return (self._all_hits + 0.5) / (self._all_seen + 1.0)

    def optimistic(self) -> float:
        """The highest mean that what was seen leaves likely: one and a half standard errors above it."""
        seen, mean = self._all_seen + 1.0, self.mean
        return min(mean + 1.5 * math.sqrt(mean * (1.0 - mean) / seen), 1.0)

    def rate(self, confidence: float) -> float:
        """The probability that a token of this confidence is the model's own."""
        bucket = _bucket(confidence)
        return self._hits[bucket] / self._seen[bucket]

    def learn(self, confidence: float, agreed: bool) -> None:
        bucket = _bucket(confidence)
        self._hits[bucket] = self._hits[bucket] * _FORGET + agreed
        self._seen[bucket] = self._seen[bucket] * _FORGET + 1.0
        self._all_hits = self._all_hits * _FORGET + agreed
        self._all_seen = self._all_seen * _FORGET + 1.0


def _bucket(confidence: float) -> int:
    return min(max(int(confidence * BUCKETS), 0), BUCKETS - 1)
