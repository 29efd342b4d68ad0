"""pick: pure, exact filters, and distributed as the softmax says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.errors import EngineError, RequestError
from foredraft.sampling import noise
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.picking import make_picker, pick

Row = npt.NDArray[np.float32]
GREEDY = SamplingParams()


def reference(row: Row, position: int, path: list[int], params: SamplingParams) -> int:
    """The definition, step by step in float64 and with sorting, slowly."""
    logits = row.astype(np.float64)
    for token in sorted(set(path)):
        penalty = params.repetition_penalty
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
        logits[token] -= params.presence_penalty + params.frequency_penalty * path.count(token)
    logits = logits.astype(np.float32).astype(np.float64)
    order = sorted(range(len(row)), key=lambda i: (-logits[i], i))
    if params.temperature == 0:
        return order[0]
    scaled = (logits - logits[order[0]]) / params.temperature
    if params.top_k:
        order = order[: params.top_k]
    weights = np.exp(scaled[order])
    before = np.cumsum(weights) - weights
    left = [i for i, mass in zip(order, before, strict=True) if mass < params.top_p * weights.sum()]
    order = left or order[:1]
    if params.min_p:
        order = [i for i in order if scaled[i] >= math.log(params.min_p)]
    ids = np.array(sorted(order))
    scores = scaled[ids] - np.log(noise.exponentials(noise.stream(params.seed, position), ids))
    return int(ids[scores.argmax()])


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-7, 1e-6, 0.004, 0.05, 0.7, 1.0, 5.0, 100.0]),
    top_k=st.sampled_from([0, 1, 3, 50, 10_000]),
    top_p=st.sampled_from([1.0, 0.987, 0.513, 0.011, 0.0]),
    min_p=st.sampled_from([0.0, 0.00997, 0.303]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.3]),
    seed=st.integers(0, 2**64 - 1),
)


@pytest.mark.slow
@settings(max_examples=400)
@given(params=PARAMS, position=st.integers(0, 10_000), data=st.data())
def test_equals_the_definition(params: SamplingParams, position: int, data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([1, 2, 17, 300, 9000]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    row = (rng.standard_normal(size) * data.draw(st.sampled_from([0.0, 0.1, 3.0, 40.0]))).astype(np.float32)
    if data.draw(st.booleans()):
        row = np.round(row)  # many ties
    if data.draw(st.booleans()):
        row[1:] = np.where(rng.random(size - 1) < 0.3, -np.inf, row[1:])
    path = [int(token) for token in rng.integers(0, size, 12)]
    kept = row.copy()
    assert pick(row, position, path, params) == reference(row, position, path, params)
    assert np.array_equal(row, kept)  # the engine's row is not ours to change


@settings(max_examples=200)
@given(params=PARAMS, position=st.integers(0, 10_000), count=st.integers(1, 12), data=st.data())
def test_runners_up_are_what_would_be_picked_without_those_before(
    params: SamplingParams, position: int, count: int, data: st.DataObject
) -> None:
    params = replace(params, top_k=0, top_p=1.0, min_p=0.0)  # what the filters leave depends on what was taken out
    size = data.draw(st.sampled_from([1, 2, 17, 300, 9000]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    row = (rng.standard_normal(size) * 3).astype(np.float32)
    row[1:] = np.where(rng.random(size - 1) < 0.3, -np.inf, row[1:])
    path = [int(token) for token in rng.integers(0, size, 12)]
    ranked = make_picker(params).ranked(row, position, path, count)
    assert len(ranked) == min(count, int((row > -np.inf).sum()))
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    for token, _ in ranked:
        assert token == pick(row, position, path, params)
        row[token] = -np.inf


def test_runners_up_come_from_what_the_filters_leave() -> None:
    row = np.array([0.0, 3.0, 2.9, 2.8, -1.0], np.float32)
    for params in (SamplingParams(temperature=1.0, top_k=3), SamplingParams(temperature=1.0, min_p=0.5)):
        picker = make_picker(params)
        for position in range(50):
            ranked = picker.ranked(row, position, (), 5)
            assert sorted(token for token, _ in ranked) == [1, 2, 3] and ranked[0][0] == picker(row, position, ())


@given(st.integers(0, 2**64 - 1), st.integers(0, 200_000))
def test_one_exponential_is_that_of_the_array(start: int, token: int) -> None:
    (expected,) = noise.exponentials(start, np.array([token], np.int64))
    assert noise.exponential(start, token) == pytest.approx(float(expected), rel=1e-14)


def test_does_not_depend_on_memory_or_neighbours() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5, 4999)).astype(np.float32) * 4
    params = SamplingParams(temperature=0.9, top_p=0.97, top_k=2000, min_p=0.001, seed=3)
    for position, row in enumerate(rows):
        first = pick(row, position, [], params)
        for shift in range(1, 9):
            moved = np.empty(len(row) + 16, np.float32)[shift : shift + len(row)]
            moved[:] = row
            assert pick(moved, position, [], params) == first
        strided = np.repeat(row, 2)[::2]
        assert pick(strided, position, [], params) == first


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    row = np.array([0, 2, -1, 2, 2], np.float32)
    assert pick(row, 0, [], GREEDY) == 1
    assert pick(-np.zeros(4, np.float32), 0, [], GREEDY) == 0


def test_greedy_with_penalties() -> None:
    row = np.array([2.0, 1.9, -1.0], np.float32)
    assert pick(row, 3, [0, 0, 0], SamplingParams(repetition_penalty=1.1)) == 1
    assert pick(row, 3, [0, 1, 1], SamplingParams(frequency_penalty=0.2)) == 0
    assert pick(row, 3, [0], SamplingParams(presence_penalty=0.2)) == 1
    assert pick(row, 0, [], SamplingParams(presence_penalty=0.2)) == 0


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=0.5, seed=2),
        SamplingParams(temperature=1.0, top_k=4, seed=3),
        SamplingParams(temperature=1.0, top_p=0.8, seed=4),
        SamplingParams(temperature=2.0, min_p=0.3, seed=5),
    ],
)
def test_samples_the_softmax(params: SamplingParams) -> None:
    """Chi-square over positions, at a significance of about 1 in 10,000 (9 degrees of freedom: 33.7)."""
    row = np.array([1.0, 0.3, -0.5, 2.0, 0.3, -3.0, 1.5, 0.0, -1.0, 0.9], np.float32)
    picker = make_picker(params)
    count = 20_000
    seen = np.bincount([picker(row, position, []) for position in range(count)], minlength=len(row))
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))[: params.top_k or None]
    weights = np.exp(row[order].astype(np.float64) / params.temperature)
    kept = np.cumsum(weights) - weights < params.top_p * weights.sum()
    kept &= weights >= params.min_p * weights.max()
    wanted = np.zeros(len(row))
    wanted[np.array(order)[kept]] = weights[kept] / weights[kept].sum() * count
    assert np.all(seen[wanted == 0] == 0)
    there = wanted > 0
    assert (((seen - wanted)[there] ** 2) / wanted[there]).sum() < 33.7


def test_tokens_seeds_and_positions_have_independent_noise() -> None:
    ids = np.arange(64)
    tables = [noise.exponentials(noise.stream(seed, at), ids) for seed in range(20) for at in range(20)]
    values = np.array(tables)
    assert len(np.unique(values)) == values.size
    assert abs(values.mean() - 1) < 0.03  # an exponential variable has mean 1 and deviation 1
    assert abs(values.std() - 1) < 0.03
    correlations = np.corrcoef(values.T)[np.triu_indices(64, 1)]
    assert np.abs(correlations).max() < 0.25  # 5 deviations of 1 / sqrt(400)


def test_noise_is_split_mix_64() -> None:
    """Against the generator's published outputs for the start value 1234567."""
    steps = np.arange(1, 6, dtype=np.uint64) * np.uint64(noise._GAMMA)
    out = np.empty(5, np.uint64)
    noise._outputs(1234567, steps, out, np.empty_like(out))
    assert out.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_cheap_bounds_are_below_the_exact_noise() -> None:
    start = noise.stream(5, 6)
    exact = noise.exponentials(start, np.arange(200_000))
    bounds = noise.lower_bounds(start, None, 200_000)
    assert np.all(bounds <= exact * (1 + 1e-6))
    assert np.all(np.isfinite(exact)) and exact.min() > 0
    some = np.arange(5, 200_000, 7)
    assert np.array_equal(noise.lower_bounds(start, some, len(some)), bounds[some])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=1.0, top_p=0.9)])
def test_broken_logits_are_an_error_that_names_the_position(bad: float, params: SamplingParams) -> None:
    row = np.zeros(100, np.float32)
    row[37] = bad
    with pytest.raises(EngineError, match=r"position 12: .*token 37"):
        pick(row, 12, [], params)
    with pytest.raises(EngineError, match="position 0"):
        pick(np.full(10, -np.inf, np.float32), 0, [], params)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, -1e30, True, "0.5", None, 1j])
def test_numbers_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -0.1},
        {"temperature": False},
        {"top_p": -0.1},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"repetition_penalty": 0},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_k": True},
        {"seed": -(2**63) - 1},
        {"seed": 2**64},
        {"seed": 1.0},
    ],
)
def test_values_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(RequestError, match=f"{name}: got .* expected"):
        SamplingParams(**settings)


def test_values_of_openai_at_the_edges() -> None:
    assert SamplingParams(temperature=1e-7) == SamplingParams(temperature=0)
    assert SamplingParams(seed=-1) == SamplingParams(seed=2**64 - 1)
    row = np.array([1.0, 3.0, 3.0, 2.0], np.float32)
    picker = make_picker(SamplingParams(temperature=2.0, top_p=0.0, seed=-3))
    assert {picker(row, position, []) for position in range(50)} == {1}
