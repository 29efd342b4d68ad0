"""The loops of sampling against their definitions in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.sampling import noise
from foredraft_plugins.sampling import calls


def arrivals(row: np.ndarray, ids: np.ndarray, temperature: float, stream: int) -> np.ndarray:
    """float64 [n]: when each token arrives, infinite if never."""
    behind = (float(row.max()) - row.astype(np.float64)) / temperature
    with np.errstate(over="ignore"):
        return noise.exponentials(stream, ids) * np.exp(behind)


@settings(max_examples=300)
@given(
    size=st.sampled_from([1, 2, 15, 16, 17, 511, 512, 513, 5000]),
    temperature=st.sampled_from([0.01, 0.3, 0.8, 1.0, 2.0]),
    stream=st.integers(0, 2**64 - 1),
    winners=st.integers(1, calls.MOST_WINNERS),
    some=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_winners_are_among_the_contenders(
    size: int, temperature: float, stream: int, winners: int, some: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    row = (rng.standard_normal(size) * rng.choice([0.5, 3.0, 30.0])).astype(np.float32)
    row[1:] = np.where(rng.random(size - 1) < 0.1, -np.inf, row[1:])
    ids = np.sort(rng.choice(200_000, size, replace=False)) if some else np.arange(size)
    winners = min(winners, size)
    found = calls.contenders(row, ids if some else None, int(row.argmax()), temperature, stream, winners)
    if found is None:
        return  # too many to tell apart
    places, scores = found
    when = arrivals(row, ids, temperature, stream)
    with np.errstate(divide="ignore"):
        near = when[places] < 1e300
        np.testing.assert_allclose(scores[near], -np.log(when[places][near]), rtol=1e-9, atol=1e-9)
    first = [place for place in np.argsort(when, kind="stable")[:winners].tolist() if when[place] < 1e38]
    assert set(first) <= set(places.tolist())
    assert np.all(np.diff(places) > 0) and places[-1] < size


def test_there_are_few_contenders() -> None:
    """Else nothing would be gained. Logits as spread as a model's."""
    rng = np.random.default_rng(3)
    counts = []
    for stream in range(200):
        row = (rng.standard_normal(49152) * 3).astype(np.float32)
        found = calls.contenders(row, None, int(row.argmax()), 1.0, noise.stream(1, stream), 1)
        assert found is not None
        counts.append(len(found[0]))
    assert np.mean(counts) < 4


def test_too_many_contenders_are_none() -> None:
    row = np.zeros(5000, np.float32)
    row[1:] = -np.inf
    assert calls.contenders(row, None, 0, 1.0, 5, 3) is None  # only one can win, so nobody is out of the race


@pytest.mark.parametrize("vocab_size", [1, 16, 700, 49152])
def test_the_least_number_outside(vocab_size: int) -> None:
    bounds = noise.lower_bounds(9, None, vocab_size)
    for left in (0, 1, min(vocab_size, 64)):
        ids = np.sort(np.argsort(bounds)[:left])
        rest = np.delete(bounds, ids)
        wanted = float(rest.min()) if len(rest) else 1.0
        found = calls.least_outside(9, vocab_size, ids)
        assert wanted - 2.0**-30 <= found <= wanted * (1 + 1e-6)


@pytest.mark.parametrize("size", [1, 15, 512, 1000, 49152])
def test_the_total(size: int) -> None:
    row = (np.random.default_rng(size).standard_normal(size) * 5).astype(np.float32)
    row[size // 2 + 1 :: 7] = -np.inf
    best = float(row.max())
    assert calls.total(row, best) == pytest.approx(float(np.exp(row.astype(np.float64) - best).sum()), rel=1e-5)


@pytest.mark.parametrize("size", [1, 7, 16, 17, 1000])
@pytest.mark.parametrize("rounded", [False, True])
def test_the_top(size: int, rounded: bool) -> None:
    row = (np.random.default_rng(size).standard_normal(size) * 3).astype(np.float32)
    row = np.round(row) if rounded else row
    row[size // 2 + 1 :: 5] = -np.inf
    for k in (1, 8, 64):
        assert calls.top(row, k).tolist() == np.argsort(-row, kind="stable")[:k].tolist()
