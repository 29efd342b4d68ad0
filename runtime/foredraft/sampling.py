"""The model's own next token: ``pick(logits, position, path)``, a pure function. Knows nothing of drafts.

Sampling is the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014): the token with the largest ``logit /
temperature + noise`` is distributed as the softmax. The noise of a token is a function of (seed, position,
token id) alone, so that the same request gives the same text however many tokens are verified at a time, and
with any drafter.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft import noise
from foredraft.errors import EngineError, RequestError

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
_STEEP = 80.0
"""exp of more than 88 overflows float32; a token that far behind the best one needs no better estimate."""
_SLACK = 1.001
"""More than the relative error of the float32 estimates, so that they never rule out the winner."""
_HUGE = float(np.finfo(np.float32).max)
"""Above all estimates."""
_NUCLEUS_CUTS = (math.exp(-4.0), math.exp(-9.0), math.exp(-16.0), 0.0)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. The defaults are greedy decoding; raises RequestError for what makes no
    sense.

    The steps are taken in this order: penalties, temperature, ``top_k``, ``top_p``, ``min_p``. Penalties look
    at the whole text so far, prompt included: ``repetition_penalty`` divides a positive logit of a token that
    occurred and multiplies a negative one; ``presence_penalty`` is subtracted once, ``frequency_penalty``
    once per occurrence.
    """

    temperature: float = 0.0
    """0 is greedy."""
    top_k: int = 0
    """Only the k likeliest tokens; 0 is off."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability."""
    min_p: float = 0.0
    """Only tokens at least this likely, relative to the likeliest."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature != 0 or isinstance(self.temperature, bool):
            _check("temperature", self.temperature, 0.01, 100.0, hint="0 (greedy) or ")
        _check_integer("top_k", self.top_k, 0, 10_000_000)
        _check("top_p", self.top_p, 1e-6, 1.0)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _check("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _check("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        _check_integer("seed", self.seed, 0, 2**64 - 1)

    @property
    def penalised(self) -> bool:
        """True if the choice depends on the text so far, beyond the logits."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


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
        return self.ranked(logits, position, path, 1)[0]

    def ranked(self, logits: Row, position: int, path: Sequence[int], count: int) -> list[int]:
        """The token that is picked, then the one that would be if that one could not be, and so on: up to ``count``.

        They come from what the filters leave, which may be fewer; a logit of -inf is never a runner-up.
        """
        params = self.params
        row = np.ascontiguousarray(logits, np.float32)
        best = _best(row, position)
        if params.penalised:
            row = _penalise(row, path, params)
            best = int(row.argmax())
        if params.temperature == 0:
            return [best] if count == 1 else _largest(row, count)
        ids = _filter(row, best, params)
        return _race(row, best, ids, count, params.temperature, noise.stream(params.seed, position))


def make_picker(params: SamplingParams) -> Picker:
    """``pick`` and its runner-ups for fixed parameters."""
    return Picker(params)


def _best(row: Row, position: int) -> int:
    best = int(row.argmax())  # the first of the largest; of the NaNs, if there are any
    if not math.isfinite(row[best]):
        raise EngineError(
            f"position {position}: the largest logit (token {best}) is {row[best]}, not a finite number; "
            "try another lowering, and check the bundle with: foredraft check"
        )
    return best


def _largest(row: Row, count: int) -> list[int]:
    """The ``count`` first finite ones in the order (logit descending, id ascending)."""
    count = min(count, len(row))
    places = _top_k(row, count)
    order = np.argsort(-row[places], kind="stable")
    return [int(token) for token in places[order] if row[token] > -np.inf]


def _penalise(row: Row, path: Sequence[int], params: SamplingParams) -> Row:
    """A copy of ``row`` with the logits of the tokens in ``path`` changed (the definitions of Keskar et al.
    2019 and of OpenAI's API).
    """
    ids, counts = np.unique(np.fromiter(path, np.int64, len(path)), return_counts=True)
    counts, ids = counts[ids < len(row)], ids[ids < len(row)]
    logits = row[ids].astype(np.float64)
    factor = params.repetition_penalty
    logits = np.where(logits > 0, logits / factor, logits * factor)
    logits -= params.presence_penalty + params.frequency_penalty * counts
    penalised = row.copy()
    penalised[ids] = logits
    return penalised


def _filter(row: Row, best: int, params: SamplingParams) -> Ids | None:
    """Ids (ascending) that the filters leave, the best one always among them; None if there is nothing to
    filter.
    """
    ids: Ids | None = None
    if 0 < params.top_k < len(row):
        ids = _top_k(row, params.top_k)
    if params.top_p < 1.0:
        ids = _top_p(row, best, ids, params)
    if params.min_p > 0.0:
        floor = np.float32(float(row[best]) + params.temperature * math.log(params.min_p))
        ids = np.flatnonzero(row >= floor) if ids is None else ids[row[ids] >= floor]
    return ids


def _top_k(row: Row, k: int) -> Ids:
    """The k first in the order (logit descending, id ascending)."""
    return _first(row, k, np.partition(row, len(row) - k)[len(row) - k])


def _first(logits: Row, k: int, edge: np.float32) -> Ids:
    """Places (ascending) of the k first in the order (logit descending, place ascending); ``edge`` is the
    k-th logit.
    """
    places = np.flatnonzero(logits >= edge)
    if len(places) > k:
        surplus = np.flatnonzero(logits[places] == edge)[k - len(places) :]
        places = np.delete(places, surplus)
    return places


def _top_p(row: Row, best: int, ids: Ids | None, params: SamplingParams) -> Ids:
    """The shortest beginning of the order (logit descending, id ascending) whose probabilities sum to
    ``top_p``.

    Only a few tokens weigh enough to matter, so only those above a cut are sorted; the cut is lowered until
    they do.
    """
    logits = row if ids is None else row[ids]

    def weigh(some: Row) -> Row:
        with np.errstate(over="ignore", under="ignore"):
            weights: Row = np.exp((some - row[best]) * np.float32(1.0 / params.temperature))
        return weights

    weights = weigh(logits)
    target = params.top_p * float(weights.sum(dtype=np.float64))
    for cut in _NUCLEUS_CUTS:
        ranked = np.sort(logits[weights >= cut])[::-1]
        reached = np.cumsum(weigh(ranked), dtype=np.float64)
        if reached[-1] >= target:
            break
    count = min(int(np.searchsorted(reached, target)) + 1, len(ranked))
    places = _first(logits, count, ranked[count - 1])
    return places if ids is None else ids[places]


def _race(row: Row, best: int, ids: Ids | None, count: int, temperature: float, stream: int) -> list[int]:
    """The ``count`` first of ``row / temperature + gumbel`` over ``ids`` (None: all), ties to the lowest id.

    With u uniform, E = -log(u) and gumbel = -log(E), these have the least E * exp(-row / temperature). And E
    >= 1 - u, which costs no logarithm: from these lower bounds in float32 and the exact values of a few tokens
    follows which few tokens can be among them at all. Only those are computed exactly.
    """
    logits = row if ids is None else row[ids]
    with np.errstate(over="ignore"):
        behind = (row[best] - logits) * np.float32(1.0 / temperature)
    np.minimum(behind, np.float32(_STEEP), out=behind)
    bounds = noise.lower_bounds(stream, ids, len(logits))
    bounds *= np.exp(behind, out=behind)
    count = min(count, len(logits))
    leaders = _least(bounds, count)
    front = best if ids is None else int(np.searchsorted(ids, best))
    exact = sorted(_exact(logits, row[best], place, ids, temperature, stream) for place in {front, *leaders})
    places = np.flatnonzero(bounds <= min(exact[count - 1] * _SLACK, _HUGE))
    candidates = places if ids is None else ids[places]
    if len(candidates) == 1:
        return [int(candidates[0])]
    scores = (logits[places].astype(np.float64) - float(row[best])) / temperature
    scores -= np.log(noise.exponentials(stream, candidates))
    if count == 1:
        return [int(candidates[scores.argmax()])]
    order = np.argsort(-scores, kind="stable")[:count]
    return [int(token) for token in candidates[order[scores[order] > -np.inf]]]


def _least(values: Row, count: int) -> list[int]:
    """Places of the ``count`` least values: for a few of them this is faster than a partition."""
    places: list[int] = []
    kept = []
    for _ in range(count):
        places.append(int(values.argmin()))
        kept.append(values[places[-1]])
        values[places[-1]] = np.inf
    values[places] = kept
    return places


def _exact(logits: Row, top: np.float32, place: int, ids: Ids | None, temperature: float, stream: int) -> float:
    """E * exp((top - logit) / temperature) of one token; infinite if that is too large to say."""
    behind = (float(top) - float(logits[place])) / temperature
    token = place if ids is None else int(ids[place])
    return noise.exponential(stream, token) * math.exp(behind) if behind < 600 else math.inf


def _check(name: str, got: object, low: float, high: float, hint: str = "") -> None:
    fine = isinstance(got, numbers.Real) and not isinstance(got, bool) and low <= float(got) <= high
    if not fine:
        raise RequestError(f"{name}: got {got!r}, expected {hint}a number from {low:g} to {high:g}")


def _check_integer(name: str, got: object, low: int, high: int) -> None:
    fine = isinstance(got, numbers.Integral) and not isinstance(got, bool) and low <= int(got) <= high
    if not fine:
        raise RequestError(f"{name}: got {got!r}, expected an integer from {low} to {high}")
