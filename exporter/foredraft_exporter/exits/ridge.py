"""The closed form: an affine map by ridge regression, from sums that grow no larger with more text.

    min over W, b of  sum |W z + b - y|^2 + penalty * |W|^2,   z = standardised x

The penalty is the one with the least generalised cross-validation error (Golub, Heath and Wahba, Technometrics 1979),
which the same sums give. Nothing is shuffled or kept: memory is 2 H^2 float64 numbers per exit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foredraft_exporter.exits.adapters import Adapter

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
PENALTIES = np.logspace(-6, 1, 15)
"""Candidates, per token."""


class NormalEquations:
    """Sums over tokens of x, y and their products, around the first chunk's mean so that nothing cancels."""

    def __init__(self, hidden_size: int) -> None:
        self.tokens = 0
        self._hidden_size = hidden_size
        self._shift: Float32 | None = None
        self._sums = np.zeros((hidden_size + 1, hidden_size + 1))
        self._with_targets = np.zeros((hidden_size + 1, hidden_size))
        self._squares = 0.0

    def add(self, x: Float32, y: Float32) -> None:
        """Hidden states and what they should become, both [T, H]."""
        if self._shift is None:
            self._shift = x.mean(axis=0)
        centred = np.concatenate([x - self._shift, np.ones((len(x), 1), np.float32)], axis=1)
        self._sums += centred.T @ centred
        self._with_targets += centred.T @ y
        self._squares += float(np.square(y, dtype=np.float64).sum())
        self.tokens += len(x)

    def statistics(self) -> tuple[Float32, Float32]:
        """Mean and standard deviation of x, [H] each; a deviation is never 0."""
        assert self._shift is not None
        mean = self._sums[-1, :-1] / self.tokens
        variance = np.diag(self._sums)[:-1] / self.tokens - mean**2
        deviation = np.sqrt(np.maximum(variance, 1e-12))
        return (mean + self._shift).astype(np.float32), deviation.astype(np.float32)

    def solve(self) -> Adapter:
        """The adapter of least cross-validated error, the standardisation folded into it."""
        assert self._shift is not None
        n, mean = self.tokens, self._sums[-1, :-1] / self.tokens
        deviation = self.statistics()[1].astype(np.float64)
        target_mean = self._with_targets[-1] / n
        gram = (self._sums[:-1, :-1] - n * np.outer(mean, mean)) / np.outer(deviation, deviation)
        cross = (self._with_targets[:-1] - n * np.outer(mean, target_mean)) / deviation[:, None]
        total = self._squares - n * float(target_mean @ target_mean)
        values, vectors = np.linalg.eigh(gram)
        rotated = vectors.T @ cross
        values = np.maximum(values, 0)
        penalty = _best_penalty(values, (rotated**2).sum(axis=1), total, n)
        weight = (vectors @ (rotated / (values + penalty)[:, None])).T / deviation
        bias = target_mean - weight @ (mean + self._shift)
        return Adapter(weight.astype(np.float32), bias.astype(np.float32))


def _best_penalty(values: Float64, energy: Float64, total: float, n: int) -> float:
    """``values``: eigenvalues of Z'Z [H]; ``energy``: squares of V'Z'Y by row [H]; ``total``: squares of Y."""

    def error(penalty: float) -> float:
        shrunk = values + penalty
        residual = total - float((energy * (2 / shrunk - values / shrunk**2)).sum())
        freedom = n - 1 - float((values / shrunk).sum())
        return residual / freedom**2 if freedom > 0 else np.inf

    return float(min(PENALTIES * n, key=error))
