"""How often an exit's token is the one that the whole model writes, learned by how sure the exit was. Pure arithmetic."""

from __future__ import annotations

BUCKETS = 8
_FORGET = 0.998
"""Weight of an observation after the next one of the same bucket."""
_PRIOR = 3.0
"""Observations that the first guess, the exit's own confidence, counts for."""


class Agreement:
    """One exit's agreement with the whole model, by confidence in ``BUCKETS`` equal steps."""

    def __init__(self) -> None:
        self._hits = [_PRIOR * (bucket + 0.5) / BUCKETS for bucket in range(BUCKETS)]
        self._seen = [_PRIOR] * BUCKETS
        self.mean = 0.5
        """Running mean over all confidences."""

    def rate(self, confidence: float) -> float:
        """The probability that a token of this confidence is the model's own."""
        bucket = _bucket(confidence)
        return self._hits[bucket] / self._seen[bucket]

    def learn(self, confidence: float, agreed: bool) -> None:
        bucket = _bucket(confidence)
        self._hits[bucket] = self._hits[bucket] * _FORGET + agreed
        self._seen[bucket] = self._seen[bucket] * _FORGET + 1.0
        self.mean += 0.03 * (agreed - self.mean)


def _bucket(confidence: float) -> int:
    return min(max(int(confidence * BUCKETS), 0), BUCKETS - 1)
