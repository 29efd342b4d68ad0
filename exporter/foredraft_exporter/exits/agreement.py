"""How often an exit's first choice is the model's own, by how sure the exit is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
EDGES = (0.0, 0.3, 0.5, 0.7, 0.9, 1.0)
_ROWS = 256
"""Rows of logits held at once."""


@dataclass(frozen=True, slots=True)
class AgreementBucket:
    """Tokens where the exit's own top probability lies in ``low .. high``: their share, and how many agree."""

    low: float
    high: float
    share: float
    agreement: float | None


@dataclass(frozen=True, slots=True)
class ExitAgreement:
    """``top1``: share of ``tokens`` where argmax at the exit is argmax at the last layer; ``surprise``: mean of -log of
    the probability that the exit gives to that choice, in nats.
    """

    tokens: int
    top1: float
    surprise: float
    buckets: tuple[AgreementBucket, ...]


def choices(readout: Float32, head: Float32) -> NDArray[np.int64]:
    """The first choice for each row: ``readout`` [T, H], ``head`` [V, H] -> [T]."""
    return np.concatenate([logits.argmax(axis=1) for logits in _logits(readout, head)])


def measure(readout: Float32, head: Float32, own: NDArray[np.int64]) -> ExitAgreement:
    """An exit's readout [T, H] against the model's own choices [T]."""
    right, sure, surprise = [], [], 0.0
    at = 0
    for logits in _logits(readout, head):
        top, rows = logits.argmax(axis=1), np.arange(len(logits))
        wanted = own[at : at + len(top)]
        right.append(top == wanted)
        logits -= logits[rows, top, None]
        below = logits[rows, wanted]
        total = np.exp(logits, out=logits).sum(axis=1)
        sure.append(1 / total)
        surprise += float((np.log(total) - below).sum())
        at += len(top)
    agrees, confidence = np.concatenate(right), np.concatenate(sure)
    place = np.clip(np.searchsorted(EDGES, confidence, side="right") - 1, 0, len(EDGES) - 2)
    return ExitAgreement(len(agrees), float(agrees.mean()), surprise / at, tuple(_buckets(agrees, place)))


def _buckets(agrees: NDArray[np.bool_], place: NDArray[np.int64]) -> Iterator[AgreementBucket]:
    for i, (low, high) in enumerate(pairwise(EDGES)):
        inside = place == i
        yield AgreementBucket(low, high, float(inside.mean()), float(agrees[inside].mean()) if inside.any() else None)


def _logits(readout: Float32, head: Float32) -> Iterator[Float32]:
    for start in range(0, len(readout), _ROWS):
        yield readout[start : start + _ROWS] @ head.T
