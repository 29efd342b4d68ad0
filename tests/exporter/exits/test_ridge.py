"""The closed form against numpy's own least squares, and where least squares fails."""

from __future__ import annotations

import numpy as np

from foredraft_exporter.exits.ridge import NormalEquations

RANDOM = np.random.default_rng(0)


def states(tokens: int, width: int = 16) -> np.ndarray:
    """Far from zero, of very different scales, as hidden states are."""
    scales = np.logspace(-2, 2, width)
    return (RANDOM.standard_normal((tokens, width)) * scales + 3 * scales).astype(np.float32)


def equations(x: np.ndarray, y: np.ndarray, chunk: int = 100) -> NormalEquations:
    sums = NormalEquations(x.shape[1])
    for at in range(0, len(x), chunk):
        sums.add(x[at : at + chunk], y[at : at + chunk])
    return sums


def test_an_affine_map_is_found() -> None:
    x = states(2000)
    weight, bias = RANDOM.standard_normal((16, 16)).astype(np.float32), np.arange(16, dtype=np.float32)
    y = x @ weight.T + bias
    found = equations(x, y).solve()(x)
    assert np.abs(found - y).max() < 1e-2 * y.std()


def test_chunks_do_not_matter() -> None:
    x = states(1000)
    y = (np.tanh(x) + 0.1 * RANDOM.standard_normal(x.shape)).astype(np.float32)
    whole, parts = equations(x, y, 1000), equations(x, y, 7)
    np.testing.assert_allclose(whole.solve()(x), parts.solve()(x), atol=1e-3)
    for a, b, wanted in zip(whole.statistics(), parts.statistics(), (x.mean(axis=0), x.std(axis=0)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3)
        np.testing.assert_allclose(a, wanted, rtol=1e-3)


def test_few_tokens_are_penalised_into_something_useful() -> None:
    width = 64
    x, test = (RANDOM.standard_normal((n, width)).astype(np.float32) for n in (80, 1000))
    weight = (RANDOM.standard_normal((width, width)) / 8).astype(np.float32)

    def noisy(states_: np.ndarray) -> np.ndarray:
        return (states_ @ weight.T + 2 * RANDOM.standard_normal(states_.shape)).astype(np.float32)

    y = noisy(x)
    design = np.concatenate([x, np.ones((80, 1), np.float32)], axis=1)
    plain = np.concatenate([test, np.ones((1000, 1), np.float32)], axis=1) @ np.linalg.lstsq(design, y, rcond=None)[0]
    ours = equations(x, y).solve()(test)
    wanted = test @ weight.T
    assert np.square(ours - wanted).mean() < 0.5 * np.square(plain - wanted).mean()
    assert np.square(ours - wanted).mean() < np.square(wanted).mean()


def test_a_constant_dimension_and_fewer_tokens_than_dimensions() -> None:
    x = states(10, 32)
    x[:, 3] = 5
    adapter = equations(x, x).solve()
    assert np.isfinite(adapter.weight).all()
    assert np.isfinite(adapter(x)).all()
