"""How often an exit's choices are the whole model's token, by rank, learned by how clearly they were chosen.

Exit and model pick with the same noise, so what decides whether they agree is not how probable the exit holds its token
to be, but by how much it won: another token is only picked if the model's logits differ from the exit's by more.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

EDGES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Margins, in scores of a pick, between the buckets that are learned about."""
RUNNERS_UP = 8
"""Choices after the first that are learned about."""
_FORGET = 0.998
"""Weight of an observation after the next one."""
_PRIOR = 3.0
"""Observations that the first guess counts for."""


class Agreement:
    """One exit's agreement with the whole model, by rank and margin: that of the first choice is its lead over the
    second, that of a runner-up how far it was behind the first."""

    def __init__(self) -> None:
        middles = [(low + high) / 2 for low, high in zip((0.0, *EDGES), (*EDGES, EDGES[-1] + 1), strict=True)]
        behind = [math.exp(-middle) for middle in middles]
        self._hits = [[_PRIOR * (1.0 - 0.6 * share) for share in behind]]
        self._hits += [[_PRIOR * 0.6 * share * 0.5**rank for share in behind] for rank in range(1, RUNNERS_UP + 1)]
        self._seen = [[_PRIOR] * len(middles) for _ in range(1 + RUNNERS_UP)]
        self._all_hits, self._all_seen = [0.5 ** (1 + rank) for rank in range(1 + RUNNERS_UP)], 1.0

    @property
    def mean(self) -> float:
        """Agreement over all margins; a half while nothing is known."""
        return self._all_hits[0] / self._all_seen

    def optimistic(self) -> float:
        """The highest mean that what was seen leaves likely: one and a half standard errors above it."""
        seen, mean = self._all_seen, self.mean
        return min(mean + 1.5 * math.sqrt(mean * (1.0 - mean) / seen), 1.0)

    def rate(self, margin: float, rank: int = 0) -> float:
        """The probability that the choice of this rank, chosen by this margin, is the model's own."""
        bucket = bisect_right(EDGES, margin)
        return self._hits[rank][bucket] / self._seen[rank][bucket]

    def runners_up(self, price: float) -> tuple[int, float]:
        """How many ranks after the first are right more often than ``price``, and how often they are together."""
        rates = [hits / self._all_seen for hits in self._all_hits[1:]]
        worth = [rate for rate in rates if rate > price]
        return len(worth), sum(worth)

    def learn(self, margins: Sequence[float], choices: Sequence[int], own: int) -> None:
        """The exit's ``choices``, best first, had these margins, and the model's own token was ``own``."""
        for rank, (margin, token) in enumerate(zip(margins, choices, strict=True)):
            bucket = bisect_right(EDGES, margin)
            self._hits[rank][bucket] = self._hits[rank][bucket] * _FORGET + (token == own)
            self._seen[rank][bucket] = self._seen[rank][bucket] * _FORGET + 1.0
        self._all_hits = [hits * _FORGET for hits in self._all_hits]
        if own in choices:
            self._all_hits[choices.index(own)] += 1.0
        self._all_seen = self._all_seen * _FORGET + 1.0
