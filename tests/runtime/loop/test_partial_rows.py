"""A part of a row of logits gives the same tokens as the whole row, which is fetched only where it must be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.drafters.levels.recycled import likeliest
from foredraft.sampling.logits import PartialRow, log_total, logit, whole
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.picking import make_picker
from foredraft_plugins.sampling import calls
from tests.runtime.sampling.test_sampling import PARAMS

VOCAB = 3000


class Engine:
    """Holds a whole row and gives its top."""

    def __init__(self, row: np.ndarray, k: int) -> None:
        self.row, self.fetched = row, 0
        order = np.sort(np.argsort(-row, kind="stable")[:k])
        ceiling = float(row[order].min()) if k < len(row) else -np.inf
        total = float(row.max()) + float(np.log(np.exp(row - row.max()).sum()))
        self.part = PartialRow(order, row[order], len(row), ceiling, total, self._fetch)

    def _fetch(self) -> np.ndarray:
        self.fetched += 1
        return self.row


def logits(seed: int, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(VOCAB) * scale).astype(np.float32)


@settings(max_examples=300)
@given(
    params=PARAMS,
    position=st.integers(0, 10_000),
    count=st.integers(1, 9),
    k=st.sampled_from([1, 64, VOCAB]),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([0.0, 1.0, 3.0, 40.0]),
    rounded=st.booleans(),
    native=st.booleans(),
)
def test_the_top_gives_the_tokens_of_the_whole_row(
    params: SamplingParams, position: int, count: int, k: int, seed: int, scale: float, rounded: bool, native: bool
) -> None:
    row = logits(seed, scale)
    row = np.round(row) if rounded else row  # many ties
    picker, path = make_picker(params), [1, 2, 2, 700]
    wanted = picker.ranked(row, position, path, count)
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(calls, "available", lambda: False)
        assert picker.ranked(Engine(row, k).part, position, path, count) == wanted
        assert picker.ranked(row, position, path, count) == wanted
        assert picker(Engine(row, k).part, position, path) == wanted[0][0]


@settings(max_examples=100)
@given(params=PARAMS, position=st.integers(0, 10_000), count=st.integers(1, 9), seed=st.integers(0, 1000))
def test_a_small_vocabulary_is_a_row_whose_other_tokens_are_impossible(
    params: SamplingParams, position: int, count: int, seed: int
) -> None:
    ids = np.sort(np.random.default_rng(seed).choice(VOCAB, 200, replace=False))
    part = PartialRow(ids, logits(seed)[ids], VOCAB)
    row = whole(part)
    assert np.isneginf(np.delete(row, ids)).all() and np.array_equal(row[ids], part.values)
    picker = make_picker(replace(params, top_p=1.0))  # the rounding of a sum decides what a nucleus is
    assert picker.ranked(part, position, [3, 3], count) == picker.ranked(row, position, [3, 3], count)
    assert log_total(part) == pytest.approx(log_total(row), abs=1e-5)
    other = int(np.setdiff1d(np.arange(VOCAB), ids)[0])
    assert logit(part, other) == -np.inf and logit(part, int(ids[7])) == row[ids[7]]


@pytest.mark.parametrize(
    ("params", "most"),
    [
        (SamplingParams(), 0),
        (SamplingParams(temperature=0.8), 250),
        (SamplingParams(temperature=1.0, top_k=40), 0),
        (SamplingParams(temperature=1.0, min_p=0.1), 0),
        (SamplingParams(temperature=1.0, top_p=0.9), 1000),
        (SamplingParams(repetition_penalty=1.1), 1000),
    ],
)
def test_how_often_the_whole_row_is_needed(params: SamplingParams, most: int) -> None:
    """Of 1,000 picks from logits of which the best 64 hold nearly all probability."""
    picker, fetched = make_picker(params), 0
    for position in range(1000):
        engine = Engine(logits(position, 5.0), 64)
        picker(engine.part, position, [5])
        fetched += engine.fetched
    assert fetched <= most


def test_other_questions_about_a_top() -> None:
    row = logits(4)
    engine = Engine(row, 64)
    assert likeliest(engine.part) == likeliest(row) and engine.fetched == 0
    assert log_total(engine.part) == pytest.approx(log_total(row), abs=1e-5)
    assert logit(engine.part, int(row.argmax())) == row.max() and engine.fetched == 0
    assert logit(engine.part, int(row.argmin())) == row.min() and engine.fetched == 1
