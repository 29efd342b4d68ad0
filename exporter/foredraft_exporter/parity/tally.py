"""The arithmetic of a comparison: by how much two computations of the same rows differ. Knows no models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Difference:
    """One segment over all tokens of one sample, ``length`` being its name (a number of tokens, or ``text``).

    ``*_max``: largest absolute difference; ``*_relative``: of the worst token, RMS of the difference over RMS
    of the reference's values for all tokens (both are NaN where a side is not finite); ``worst_token``: that
    token for the readout, or the first that is not finite; ``agreeing``: for how many of ``rows`` tokens both
    prefer the same next one; ``not_finite``, ``reference_not_finite``: how many values are NaN or infinite.
    """

    length: str
    segment: int
    exit: int
    rows: int
    readout_max: float
    readout_relative: float
    logits_max: float
    logits_relative: float
    agreeing: int
    worst_token: int
    not_finite: int
    reference_not_finite: int

    @property
    def where(self) -> str:
        at = "on the text" if self.length == "text" else f"at length {self.length}"
        return f"segment {self.segment} (exit after layer {self.exit}) {at}"


class Tally:
    """Adds up rows of one segment, chunk by chunk."""

    def __init__(self) -> None:
        self._rows = 0
        self._agreeing = 0
        self._readout, self._logits = _Errors(), _Errors()
        self._first_broken: int | None = None
        self._not_finite = 0
        self._reference_not_finite = 0

    def add(self, start: int, expected: Float32, readout: Float32, expected_logits: Float32, logits: Float32) -> None:
        """Rows of tokens ``start ...``: readouts [rows, hidden_size] and logits [rows, vocab_size] of both
        sides.
        """
        self._rows += len(readout)
        self._agreeing += int((expected_logits.argmax(axis=1) == logits.argmax(axis=1)).sum())
        own, reference = _not_finite(readout, logits), _not_finite(expected, expected_logits)
        self._not_finite += int(own.sum())
        self._reference_not_finite += int(reference.sum())
        broken = np.flatnonzero(own + reference)
        if len(broken):
            self._first_broken = start + int(broken[0]) if self._first_broken is None else self._first_broken
            return
        self._readout.add(start, expected, readout)
        self._logits.add(start, expected_logits, logits)

    def difference(self, length: str, segment: int, exit_: int) -> Difference:
        """What was added up; ``exit_`` is the number of layers up to the segment's end."""
        broken = self._first_broken is not None
        return Difference(
            length=length,
            segment=segment,
            exit=exit_,
            rows=self._rows,
            readout_max=math.nan if broken else self._readout.largest,
            readout_relative=math.nan if broken else self._readout.relative,
            logits_max=math.nan if broken else self._logits.largest,
            logits_relative=math.nan if broken else self._logits.relative,
            agreeing=self._agreeing,
            worst_token=self._readout.worst_token if self._first_broken is None else self._first_broken,
            not_finite=self._not_finite,
            reference_not_finite=self._reference_not_finite,
        )


class _Errors:
    """Differences of one kind of values, row by row."""

    def __init__(self) -> None:
        self.largest = 0.0
        self.worst_token = 0
        self._worst = 0.0  # mean square of the worst row's differences
        self._squares = 0.0  # sum over the reference's values
        self._count = 0

    def add(self, start: int, expected: Float32, got: Float32) -> None:
        difference = got.astype(np.float64) - expected
        rows = np.square(difference).mean(axis=1)
        row = int(rows.argmax())
        if rows[row] > self._worst:
            self._worst, self.worst_token = float(rows[row]), start + row
        self.largest = max(self.largest, float(np.abs(difference).max()))
        self._squares += float(np.square(expected, dtype=np.float64).sum())
        self._count += expected.size

    @property
    def relative(self) -> float:
        """0 if nothing differs, infinite if the reference is all 0."""
        if not self._worst:
            return 0.0
        return math.sqrt(self._worst * self._count / self._squares) if self._squares else math.inf


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Of both sides over the same predictions: sums of negative log-likelihoods, in nats."""

    tokens: int = 0
    bundle_nats: float = 0.0
    reference_nats: float = 0.0

    def add(self, following: Sequence[int], expected_logits: Float32, logits: Float32) -> Perplexity:
        """With more predictions: row i's logits are about ``following[i]``; rows with nothing after them are
        left out.
        """
        return Perplexity(
            self.tokens + len(following),
            self.bundle_nats + _nats(logits[: len(following)], following),
            self.reference_nats + _nats(expected_logits[: len(following)], following),
        )

    @property
    def bundle(self) -> float:
        return _exp(self.bundle_nats / self.tokens) if self.tokens else math.nan

    @property
    def reference(self) -> float:
        return _exp(self.reference_nats / self.tokens) if self.tokens else math.nan

    @property
    def ratio(self) -> float:
        """Bundle over reference; NaN if either is not finite."""
        return _exp((self.bundle_nats - self.reference_nats) / self.tokens) if self.tokens else math.nan


def _not_finite(readout: Float32, logits: Float32) -> NDArray[np.int64]:
    """How many values of each row are NaN or infinite."""
    return np.asarray((~np.isfinite(readout)).sum(axis=1) + (~np.isfinite(logits)).sum(axis=1))


def _nats(logits: Float32, following: Sequence[int]) -> float:
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wide -= wide.max(axis=1, keepdims=True)
        chosen = wide[np.arange(len(following)), np.asarray(following, np.int64)]
        return float((np.log(np.exp(wide).sum(axis=1)) - chosen).sum())


def _exp(nats: float) -> float:
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
