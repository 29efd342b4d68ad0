"""The race that Gumbel-max sampling is: each token's arrival, and who comes first. Knows nothing of filters.

With u uniform, E = -log(u) and gumbel = -log(E), the largest ``logit / temperature + gumbel`` is the least arrival
``E * exp(-logit / temperature)``. Since E >= 1 - u, which costs no logarithm, it is cheap to say of nearly all tokens
that they cannot win; only the few others' arrivals are computed exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft.sampling import noise
from foredraft.sampling.logits import Float32, Ids
from foredraft_plugins.sampling import calls

Float64 = npt.NDArray[np.float64]

_STEEP = 80.0
"""exp of more than 88 overflows float32; a token that far behind the best one needs no better estimate."""
_SLACK = 1.001
"""More than the relative error of the float32 estimates, so that they never rule out the winner."""
_HUGE = float(np.finfo(np.float32).max)
"""Above all estimates."""
_FARTHEST = 600.0
"""Exponents beyond which exp is not worth computing."""
_ROUNDING = 1e-9
"""More than how far two ways to compute a score can be apart, relative to it."""
_FEW = 32
"""Contenders whose exact scores are faster found one by one."""


@dataclass(frozen=True, slots=True)
class Race:
    """``logits`` [n], finite or -inf, of the tokens ``ids`` [n] (ascending; None: 0..n-1), contiguous; ``best`` is the
    place of the largest. ``stream`` is where the random numbers start."""

    logits: Float32
    ids: Ids | None
    best: int
    temperature: float
    stream: int

    def first(self, count: int) -> list[tuple[int, float]]:
        """The ``count`` first tokens and their scores, ties to the lowest id; fewer if fewer have a finite logit.

        A score is minus the logarithm of an arrival: ``logit / temperature + gumbel``, but for what all have in common.
        """
        places, scores = self._contenders(min(count, len(self.logits)))
        order = sorted(zip((-scores).tolist(), places.tolist(), strict=True))[:count]
        return [(self._token(place), -behind) for behind, place in order if behind < math.inf]

    def is_decided(self, last: float, ceiling: float, vocab_size: int) -> bool:
        """Whether no token below ``vocab_size`` outside the race can reach the score ``last``, whatever its logit up to
        ``ceiling``.
        """
        assert self.ids is not None
        if calls.available():
            least = calls.least_outside(self.stream, vocab_size, self.ids)
        else:
            bounds = noise.lower_bounds(self.stream, None, vocab_size)
            bounds[self.ids] = 1.0
            least = float(bounds.min())
        behind = min((float(self.logits[self.best]) - ceiling) / self.temperature, _FARTHEST)
        return _arrival(last) * _SLACK < least * math.exp(behind)

    def _contenders(self, count: int) -> tuple[Ids, Float64]:
        """Places of all that can be among the first ``count``, ascending, and of some others; and their scores."""
        if calls.available() and count <= calls.MOST_WINNERS:
            found = calls.contenders(self.logits, self.ids, self.best, self.temperature, self.stream, count)
            if found is not None:
                return found
        with np.errstate(over="ignore"):
            behind = (self.logits[self.best] - self.logits) * np.float32(1.0 / self.temperature)
        np.minimum(behind, np.float32(_STEEP), out=behind)
        bounds = noise.lower_bounds(self.stream, self.ids, len(self.logits))
        bounds *= np.exp(behind, out=behind)
        leaders = np.argpartition(bounds, count - 1)[:count] if count > 1 else [int(bounds.argmin())]
        last = max(_arrival(self._score(int(place))) for place in leaders)
        places = np.flatnonzero(bounds <= min(last * _SLACK, _HUGE))
        if len(places) > _FEW:
            places = self._nearest(places, count)
        return places, np.array([self._score(place) for place in places.tolist()])

    def _nearest(self, places: Ids, count: int) -> Ids:
        """Those of many places whose scores, found all at once, are not clearly behind the first ``count``."""
        ids = places if self.ids is None else self.ids[places]
        scores = (self.logits[places].astype(np.float64) - float(self.logits[self.best])) / self.temperature
        scores -= np.log(noise.exponentials(self.stream, ids))
        count = min(count, len(scores))
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        nearest: Ids = places[scores >= least - _ROUNDING * (1.0 + abs(least))]
        return nearest

    def _score(self, place: int) -> float:
        ahead = (float(self.logits[place]) - float(self.logits[self.best])) / self.temperature
        return ahead - math.log(noise.exponential(self.stream, self._token(place)))

    def _token(self, place: int) -> int:
        return place if self.ids is None else int(self.ids[place])


def _arrival(score: float) -> float:
    """Infinite if it is too late to say."""
    return math.exp(-score) if score > -_FARTHEST else math.inf
