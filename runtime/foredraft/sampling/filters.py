"""What the penalties and filters of sampling leave of a row of logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foredraft.sampling.logits import Float32, Ids
from foredraft_plugins.sampling import calls

if TYPE_CHECKING:
    from foredraft.sampling.params import SamplingParams

_NUCLEUS_CUTS = (math.exp(-4.0), math.exp(-9.0), math.exp(-16.0), 0.0)


def penalise(row: Float32, path: Sequence[int], params: SamplingParams) -> Float32:
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


def left(row: Float32, best: int, params: SamplingParams) -> Ids | None:
    """Places (ascending) that the filters leave, that of the best one always among them; None if there is nothing to
    filter.
    """
    places: Ids | None = None
    if 0 < params.top_k < len(row):
        places = _top_k(row, params.top_k)
    if params.top_p < 1.0:
        places = _top_p(row, best, places, params)
    if params.min_p > 0.0:
        floor = _floor(row, best, params)
        places = np.flatnonzero(row >= floor) if places is None else places[row[places] >= floor]
    return places


def reach(part: Float32, best: int, ceiling: float, params: SamplingParams) -> bool:
    """Whether the filters leave nothing outside this part of a row, all of which is at most ``ceiling``."""
    if 0 < params.top_k <= len(part):
        return bool(np.partition(part, len(part) - params.top_k)[len(part) - params.top_k] > ceiling)
    return params.min_p > 0.0 and params.top_p == 1.0 and bool(_floor(part, best, params) > ceiling)


def largest(row: Float32, count: int) -> Ids:
    """Places of the ``count`` first finite ones in the order (logit descending, place ascending)."""
    count = min(count, len(row))
    if calls.available() and count <= calls.MOST_OF_TOP:
        order = calls.top(row, count)
    else:
        places = _top_k(row, count)
        order = places[np.argsort(-row[places], kind="stable")]
    return order[row[order] > -np.inf]


def _floor(row: Float32, best: int, params: SamplingParams) -> np.float32:
    """The least logit that ``min_p`` leaves."""
    return np.float32(float(row[best]) + params.temperature * math.log(params.min_p))


def _top_k(row: Float32, k: int) -> Ids:
    """The k first in the order (logit descending, id ascending)."""
    return _first(row, k, np.partition(row, len(row) - k)[len(row) - k])


def _first(logits: Float32, k: int, edge: np.float32) -> Ids:
    """Places (ascending) of the k first in the order (logit descending, place ascending); ``edge`` is the
    k-th logit.
    """
    places = np.flatnonzero(logits >= edge)
    if len(places) > k:
        surplus = np.flatnonzero(logits[places] == edge)[k - len(places) :]
        places = np.delete(places, surplus)
    return places


def _top_p(row: Float32, best: int, ids: Ids | None, params: SamplingParams) -> Ids:
    """The shortest beginning of the order (logit descending, id ascending) whose probabilities sum to
    ``top_p``.

    Only a few tokens weigh enough to matter, so only those above a cut are sorted; the cut is lowered until
    they do.
    """
    logits = row if ids is None else row[ids]

    def weigh(some: Float32) -> Float32:
        with np.errstate(over="ignore", under="ignore"):
            weights: Float32 = np.exp((some - row[best]) * np.float32(1.0 / params.temperature))
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
