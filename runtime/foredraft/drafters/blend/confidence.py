"""How far an offer can be trusted: learned while running, one number for each kind of offer.

A kind of offer is (level, order, how often its context was seen, whether it is the level's longest match or the next).
The number is the share of such offers that held the token which then came: the complement of PPM's escape probability.
"""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.databases.database import RECYCLED
from foredraft.databases.hashing import ORDERS

FORGET = 0.998
"""Weight of an observation after the next of its kind."""
RANKS = 2
BUCKETS = 4
"""Of the number of times that the context was seen: once, 2 or 3, 4 to 10, more often."""
LEVEL_STRIDE = len(ORDERS) * BUCKETS * RANKS
_PRIOR_WEIGHT = 6.0
_PRIORS = {
    "context": (0.40, 0.55, 0.65, 0.75, 0.85, 0.92),
    "model": (0.25, 0.35, 0.45, 0.55, 0.70, 0.80),
    "corpus": (0.20, 0.25, 0.30, 0.40, 0.50, 0.60),
}
"""Where learning starts, for each order: about what 5,000 tokens of general questions gave."""


class Rates:
    """Shares of hits among observations, each with slow forgetting."""

    __slots__ = ("_hits", "_seen", "value")

    def __init__(self, priors: Sequence[float], weight: float = _PRIOR_WEIGHT) -> None:
        self._hits = [prior * weight for prior in priors]
        self._seen = [weight] * len(priors)
        self.value = list(priors)
        """The shares now; read directly in the drafting loop."""

    def learn(self, kind: int, hit: bool) -> None:
        """Record one observation."""
        seen = self._seen[kind] = self._seen[kind] * FORGET + 1.0
        hits = self._hits[kind] = self._hits[kind] * FORGET + hit
        self.value[kind] = hits / seen


def offer_priors(levels: Sequence[str]) -> list[float]:
    """Priors of every kind of offer: kind = ((level * orders + order) * buckets + bucket) * ranks + rank."""
    return [prior for level in levels for prior in _PRIORS[level] for _ in range(BUCKETS * RANKS)]


def recycled_priors() -> list[float]:
    """Priors of recycled tokens: kind = (longest order that any level matched + 1) * 8 + rank in the row."""
    row = [0.3 / (rank + 1) ** 1.7 for rank in range(RECYCLED)]
    return row * (len(ORDERS) + 1)
