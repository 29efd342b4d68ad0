"""Fit the adapters of a model's exits on text: read states, solve, train, measure on what was held out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import RequestError
from foredraft_exporter.exits import correction
from foredraft_exporter.exits.adapters import Adapter
from foredraft_exporter.exits.agreement import ExitAgreement, choices, measure
from foredraft_exporter.exits.fit_report import ExitReport, FitReport
from foredraft_exporter.exits.ridge import NormalEquations
from foredraft_exporter.exits.source import Source, States
from foredraft_exporter.exits.texts import TextPiece
from foredraft_exporter.exits.verdict import cost_fraction

Float32 = NDArray[np.float32]
Progress = Callable[[float, str], None]
"""``(share done, what)``."""

TOKENS, SECONDS = 40_000, 180.0
KEPT_BYTES = 1 << 30
"""Of states kept for training; the closed form keeps none."""
MEASURED = 4096
"""Held-out tokens that are measured: a share is then right within 1.5 points."""
NOISE = 0.01
"""Differences in agreement below this decide nothing."""
SINKS = 4
"""A text's first tokens, left out: their states are huge, and no draft is made there (arXiv 2309.17453)."""
_READING, _SHORTEST = 0.45, 16


@dataclass(slots=True)
class _Kept:
    """States of some tokens: one list of chunks per exit, and one of the readouts."""

    hidden: list[list[Float32]]
    readout: list[Float32]
    tokens: int = 0

    def add(self, states: States) -> None:
        for chunks, hidden in zip(self.hidden, states.hidden, strict=True):
            chunks.append(hidden)
        self.readout.append(states.readout)
        self.tokens += len(states.readout)

    def joined(self) -> States:
        return States(tuple(np.concatenate(chunks) for chunks in self.hidden), np.concatenate(self.readout))


def fit(
    source: Source,
    pieces: Sequence[TextPiece],
    *,
    tokens: int = TOKENS,
    seconds: float = SECONDS,
    with_correction: bool = True,
    progress: Progress | None = None,
) -> tuple[dict[int, Adapter], FitReport]:
    """The best adapter found for each exit of ``source``, and how often each is right.

    Reading stops after ``tokens``, or after its share of ``seconds`` if the machine is slow; training takes what is
    left. Raises RequestError if the text is too short to fit and measure anything.
    """
    tell = progress or (lambda _share, _what: None)
    begun = time.monotonic()
    equations = [NormalEquations(len(source.norm)) for _ in source.exits]
    fitted, held, counts = _read(source, pieces, tokens, seconds * _READING, equations, tell)
    if fitted.tokens < 10 * _SHORTEST or held.tokens < _SHORTEST:
        raise RequestError(f"{source.name}: only {fitted.tokens + held.tokens} tokens of text; give more of it")
    asked = time.monotonic()
    test = held.joined()
    own = choices(test.readout, source.head)
    measuring = 4 * len(source.exits) * (time.monotonic() - asked)  # three stages each, and the softmax
    training = None
    if with_correction and correction.available():
        left = max(seconds / 10, seconds - (time.monotonic() - begun) - measuring)
        training = _Training(source, fitted.joined(), counts, left / len(source.exits), tell)
    adapters, reports = {}, []
    for i, exit_ in enumerate(source.exits):
        tell(_READING + (1 - _READING) * i / len(source.exits), f"exit {exit_}: closed form")
        candidates = _candidates(equations[i], training, i)
        stages = {name: _measure(source, adapter, test, i, own) for name, adapter in candidates.items()}
        best = _best(stages)
        if (adapter := candidates[best]) is not None:
            adapters[exit_] = adapter
        fraction = cost_fraction(source.sizes, exit_, adapter.elements if adapter else 0)
        reports.append(ExitReport(exit_, stages, best, fraction))
    seconds = time.monotonic() - begun
    corrected = training is not None
    return adapters, FitReport(source.name, source.model, equations[0].tokens, seconds, corrected, tuple(reports))


def _candidates(sums: NormalEquations, training: _Training | None, i: int) -> dict[str, Adapter | None]:
    """Adapters of the i-th exit by the name of their stage; ``raw`` is none."""
    ridge = sums.solve()
    candidates: dict[str, Adapter | None] = {"raw": None, "ridge": ridge}
    if training is not None:
        candidates["corrected"] = training.correct(ridge, sums.statistics(), i)
    return candidates


@dataclass(slots=True)
class _Training:
    """What the corrections of all exits share; ``seconds`` is for each of them."""

    source: Source
    states: States
    counts: NDArray[np.int64]
    seconds: float
    tell: Progress

    def correct(self, ridge: Adapter, statistics: tuple[Float32, Float32], i: int) -> Adapter:
        common = np.sort(np.argsort(-self.counts, kind="stable")[: correction.VOCABULARY])
        exits, rank = self.source.exits, correction.default_rank(len(self.source.norm))

        def told(share: float, loss: float) -> None:
            done = _READING + (1 - _READING) * (i + share) / len(exits)
            self.tell(done, f"exit {exits[i]}: training, loss {loss:.3f}")

        data = self.states.hidden[i], self.states.readout, self.source.head[common], self.source.norm
        return correction.train(ridge, statistics, *data, correction.within(self.seconds), rank, told)


def _read(
    source: Source,
    pieces: Sequence[TextPiece],
    tokens: int,
    seconds: float,
    equations: list[NormalEquations],
    tell: Progress,
) -> tuple[_Kept, _Kept, NDArray[np.int64]]:
    """States of the fitted and of the held-out tokens, and how often each token occurs in the text."""
    fitted, held = (_Kept([[] for _ in source.exits], []) for _ in range(2))
    counts = np.zeros(len(source.head), np.int64)
    scale = source.targets_scale
    room = KEPT_BYTES // (4 * len(source.norm) * (len(source.exits) + 1))
    begun, skip, done = time.monotonic(), len(source.start) + SINKS, 0
    for piece in pieces:
        passed = (time.monotonic() - begun) / seconds
        if done >= tokens or (passed >= 1 and min(fitted.tokens, held.tokens) > 0):
            break
        ids = [*source.start, *source.tokenizer.encode(piece.text, add_bos=False)][: source.window]
        if len(ids) < skip + _SHORTEST or (piece.held_out and held.tokens >= MEASURED):
            continue
        np.add.at(counts, ids, 1)
        states = source.read(ids)
        states = States(tuple(h[skip:] for h in states.hidden), states.readout[skip:])
        done += len(states.readout)
        tell(_READING * max(passed, done / tokens), f"reading {done} of {tokens} tokens")
        if piece.held_out:
            held.add(states)
            continue
        for sums, hidden in zip(equations, states.hidden, strict=True):
            sums.add(hidden, states.readout * scale)
        if fitted.tokens < room:
            fitted.add(states)
    return fitted, held, counts


def _measure(source: Source, adapter: Adapter | None, test: States, i: int, own: NDArray[np.int64]) -> ExitAgreement:
    hidden = test.hidden[i]
    return measure(source.readout(hidden if adapter is None else adapter(hidden)), source.head, own)


def _best(stages: Mapping[str, ExitAgreement]) -> str:
    """The stage that agrees most; of those as good within the noise, the one whose confidence says more."""
    top = max(stage.top1 for stage in stages.values())
    return min((n for n in stages if stages[n].top1 > top - NOISE), key=lambda name: stages[name].surprise)
