"""How often drafts were right that a drafter held to be so probable. Knows nothing of how they were drafted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from foredraft.loop.rounds import Round

EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Limits between the buckets; most drafts have small probabilities."""


class Bucket(NamedTuple):
    """Mean predicted path probability and the share that was accepted, of ``samples`` drafted nodes."""

    predicted: float
    observed: float
    samples: int


@dataclass(slots=True)
class DraftCalibration:
    """Drafted nodes, counted by predicted path probability: ``samples`` and ``accepted`` are numbers of nodes, and
    ``predicted`` the sums of their probabilities, [buckets] each.
    """

    samples: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))
    predicted: list[float] = field(default_factory=lambda: [0.0] * (len(EDGES) + 1))
    accepted: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))

    def add(self, round_: Round) -> None:
        """Count all nodes of a round's tree."""
        accepted = set(round_.accepted)
        for node, probability in enumerate(round_.tree.probabilities):
            bucket = bisect_right(EDGES, probability)
            self.samples[bucket] += 1
            self.predicted[bucket] += probability
            self.accepted[bucket] += node in accepted

    def buckets(self) -> list[Bucket]:
        """Those that are not empty, least probable first."""
        rows = zip(self.samples, self.predicted, self.accepted, strict=True)
        return [Bucket(predicted / n, accepted / n, n) for n, predicted, accepted in rows if n]

    @classmethod
    def total(cls, parts: Iterable[DraftCalibration]) -> DraftCalibration:
        """All parts counted together."""
        whole = cls()
        for part in parts:
            for bucket in range(len(EDGES) + 1):
                whole.samples[bucket] += part.samples[bucket]
                whole.predicted[bucket] += part.predicted[bucket]
                whole.accepted[bucket] += part.accepted[bucket]
        return whole
