"""Turns estimates into observed rates: buckets of the estimate, two to the octave, learned while running.

Below one half the buckets are octaves of the estimate p, above it octaves of 1 - p: whether a copied token is 90% or 99
percent sure decides how deep a tree grows. In both directions the rates are kept monotone.
"""

from __future__ import annotations

from math import log2

FORGET = 0.9998
"""Weight of an observation after the next in its bucket: a token brings about a dozen observations."""
REFRESH = 256
"""Observations after which the map is made anew."""
CEILING = 0.99
"""No token is surer than this; so a path's probability falls with its length."""
HIGH, LOW = 10, 22
"""Buckets above one half, where 1 - p reaches 2**-6, and below it, where p reaches 2**-12."""
BUCKETS = HIGH + LOW
_WEIGHT, _LEAST_WEIGHT = 8.0, 200.0
"""Observations that the start is worth, and where it was raised to the least: such rates take hundreds to see."""
_NEAR_ZERO, _NEAR_ONE = 2.0 ** (-LOW / 2 - 0.999), 1.0 - 2.0 ** (-HIGH / 2 - 0.999)


def place(estimate: float) -> float:
    """Where an estimate lies on the axis of buckets: 0 for the surest, HIGH at one half, BUCKETS for the least."""
    if estimate < 0.5:
        return HIGH - 2.0 - 2.0 * log2(estimate if estimate > _NEAR_ZERO else _NEAR_ZERO)
    return HIGH + 2.0 + 2.0 * log2(1.0 - (estimate if estimate < _NEAR_ONE else _NEAR_ONE))


class Calibration:
    """Maps an estimate to the rate at which such estimates came true; monotone, and linear between the buckets."""

    __slots__ = ("_age", "_hits", "_knots", "_seen")

    def __init__(self, least: float = 0.0) -> None:
        """Learning starts from the estimates themselves, but none below ``least`` is believed."""
        middles = [1.0 - 2.0 ** ((b + 0.5 - HIGH) / 2 - 1) for b in range(HIGH)]
        middles += [2.0 ** (-(b + 0.5) / 2 - 1) for b in range(LOW)]
        self._seen = [_WEIGHT if middle > least else _LEAST_WEIGHT for middle in middles]
        rates = (min(CEILING, max(least, middle)) for middle in middles)
        self._hits = [seen * rate for seen, rate in zip(self._seen, rates, strict=True)]
        self._knots: list[float] = []
        self._age = 0
        self._refresh()

    def __call__(self, estimate: float) -> float:
        """The calibrated probability of one token, given its path."""
        where = place(estimate) + 0.5
        below = int(where)
        low, high = self._knots[below], self._knots[below + 1]
        return low + (high - low) * (where - below)

    def learn(self, estimate: float, hit: bool) -> None:
        """Record what became of one estimate."""
        index = int(place(estimate))
        self._seen[index] = self._seen[index] * FORGET + 1.0
        self._hits[index] = self._hits[index] * FORGET + hit
        self._age += 1
        if self._age >= REFRESH:
            self._age = 0
            self._refresh()

    def _refresh(self) -> None:
        """Recompute the map: the monotone rates nearest to those observed, and one knot beyond at each end."""
        blocks: list[list[float]] = []
        for hits, seen in zip(self._hits, self._seen, strict=True):
            blocks.append([hits, seen, 1.0])
            # Pool adjacent violators (Ayer et al. 1955): rates must fall from bucket to bucket.
            while len(blocks) > 1 and blocks[-1][0] * blocks[-2][1] >= blocks[-2][0] * blocks[-1][1]:
                last = blocks.pop()
                blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
        rates = [min(CEILING, hits / seen) for hits, seen, width in blocks for _ in range(int(width))]
        self._knots = [rates[0], *rates, rates[-1]]
