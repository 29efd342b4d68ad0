"""The model's own next token: ``pick(logits, position, path)``, a pure function. Knows nothing of drafts.

Sampling is the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014): the token with the largest ``logit /
temperature + noise`` is distributed as the softmax. The noise of a token is a function of (seed, position,
token id) alone, so that the same request gives the same text however many tokens are verified at a time, and
with any drafter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.errors import EngineError
from foredraft.sampling import filters, noise
from foredraft.sampling.logits import Float32, Ids, PartialRow, Row
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.race import Race


def pick(logits: Row, position: int, path: Sequence[int], params: SamplingParams) -> int:
    """The token at ``position`` (that many tokens come before it), given float32 ``logits`` [vocab] and all
    tokens so far.

    Ties go to the lowest id. ``path`` is read only if there are penalties. Raises EngineError if a logit is
    NaN or the largest is infinite: a model never says that, so the engine is broken.
    """
    return make_picker(params)(logits, position, path)


@dataclass(frozen=True, slots=True)
class Picker:
    """``pick`` for fixed parameters; called as ``picker(logits [vocab], position, path)``."""

    params: SamplingParams

    def __call__(self, logits: Row, position: int, path: Sequence[int]) -> int:
        return self.ranked(logits, position, path, 1)[0][0]

    def ranked(self, logits: Row, position: int, path: Sequence[int], count: int) -> list[tuple[int, float]]:
        """The token that is picked, then the one that would be if that one could not be, and so on: up to ``count``.

        They come from what the filters leave, which may be fewer; a logit of -inf is never a runner-up. With each comes
        its score, of which only differences mean anything: the logit, or the logit over the temperature and the noise.

        A row of which only a part is there gives the same answer as the whole one, which is fetched where the part
        cannot tell.
        """
        params = self.params
        if isinstance(logits, PartialRow):
            found = None if params.penalised else self._of_part(logits, position, count)
            if found is not None:
                return found
            logits = logits.whole()
        row = np.ascontiguousarray(logits, np.float32)
        best = _best(row, position, None)
        if params.penalised:
            row = filters.penalise(row, path, params)
            best = int(row.argmax())
        if params.temperature > 0:
            return self._race(row, None, best, filters.left(row, best, params), position).first(count)
        places = filters.largest(row, count).tolist() if count > 1 else [best]
        return [(place, float(row[place])) for place in places]

    def _of_part(self, part: PartialRow, position: int, count: int) -> list[tuple[int, float]] | None:
        """None if tokens that are not there could be among those that are wanted."""
        params, row, ceiling = self.params, part.values, part.ceiling
        known, best = ceiling == -np.inf, _best(row, position, part.ids)
        if params.temperature == 0:
            places = filters.largest(row, count)
            ranked = list(zip(part.ids[places].tolist(), row[places].tolist(), strict=True))
            return ranked if known or (len(ranked) == count and ranked[-1][1] > ceiling) else None
        known = known or filters.reach(row, best, ceiling, params)
        if not known and params.filtered:
            return None
        race = self._race(row, part.ids, best, filters.left(row, best, params), position)
        ranked = race.first(count)
        decided = known or (len(ranked) == count and race.is_decided(ranked[-1][1], ceiling, part.vocab_size))
        return ranked if decided else None

    def _race(self, row: Float32, ids: Ids | None, best: int, places: Ids | None, position: int) -> Race:
        """Over the ``places`` of ``row`` that the filters left (None: all); they are ``ids`` (None: the places)."""
        if places is not None:
            best = int(np.searchsorted(places, best))
            row, ids = row[places], places if ids is None else ids[places]
        return Race(row, ids, best, self.params.temperature, noise.stream(self.params.seed, position))


def make_picker(params: SamplingParams) -> Picker:
    """``pick`` and its runner-ups for fixed parameters."""
    return Picker(params)


def _best(row: Float32, position: int, ids: Ids | None) -> int:
    best = int(row.argmax())  # the first of the largest; of the NaNs, if there are any
    if not math.isfinite(row[best]):
        token = best if ids is None else int(ids[best])
        raise EngineError(
            f"position {position}: the largest logit (token {token}) is {row[best]}, not a finite number; "
            "try another lowering, and check the bundle with: foredraft check"
        )
    return best
