"""Tokens that a round was expected to write, for those that it wrote: the same on average, with half the noise."""

from __future__ import annotations

_MEMORY = 0.998
"""Weight of a round after the next one."""
_PRIOR = 4.0
"""Tokens for which expectations are believed before any round."""


class Forecast:
    """Expectations from learned probabilities, corrected by how those before came out."""

    def __init__(self) -> None:
        self._expected = self._written = _PRIOR

    def corrected(self, expected: float, written: int) -> float:
        """Learn from a round, and return what its expectation is worth."""
        self._expected = self._expected * _MEMORY + expected
        self._written = self._written * _MEMORY + written
        return expected * self._written / self._expected
