"""What the loop itself takes on this machine: run on an engine that does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from foredraft.bench.hardware import Host
from foredraft.drafters.none import NoDrafter
from foredraft.engines.protocol import WINDOW, Batch, Float32, Int32
from foredraft.loop.chain import Chain
from foredraft.loop.generate import Writer
from foredraft.loop.rounds import Round
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.picking import make_picker
from foredraft.scheduling.measure import timed
from foredraft.scheduling.policy import FixedPolicy, Policy

_TOKENS, _REPEATS = 150, 3
_PICKS = 200
_PLAIN = Policy(budget=0)
_DRAFTED = Policy(budget=0, draft_exit=0, draft_tokens=4)
_RUNNERS_UP = Policy(budget=0, draft_exit=0, draft_tokens=4, alternatives=3)


def measured_host(vocab_size: int, sampling: SamplingParams) -> Host:
    """Seconds of a round, a pick, an exit's opinion and its runner-up, from logits as spread as a model's are.

    A pick is timed alone. What plain decoding takes besides is a round's; what an exit that drafts takes more is its
    opinions'; and what its runners-up add is theirs. Handing nodes to the engine belongs to none of them: it is part of
    what forwards are measured to take.
    """
    logits = 3.0 * np.random.default_rng(0).standard_normal(vocab_size).astype(np.float32)
    call = _call_seconds(logits)

    def left(known: Host, policy: Policy, count: Callable[[Round], int]) -> float:
        """What a text under this policy takes beyond what is known, for each of the things that ``count`` counts."""
        seconds, rounds, calls = _loop(policy, logits, sampling)
        seconds -= calls * call
        for r in rounds:
            seconds -= known.seconds(len(r.tokens), len(r.opinions), r.runners_up) + r.seconds_draft
        return max(seconds, 0.0) / max(sum(count(r) for r in rounds), 1)

    host = Host(0.0, _pick_seconds(logits, sampling), 0.0)
    host = replace(host, round=left(host, _PLAIN, lambda round_: 1))
    host = replace(host, opinion=left(host, _DRAFTED, lambda round_: len(round_.opinions)))
    return replace(host, runner_up=left(host, _RUNNERS_UP, lambda round_: round_.runners_up))


def _loop(policy: Policy, logits: Float32, sampling: SamplingParams) -> tuple[float, list[Round], int]:
    """The seconds, the rounds and the calls of the engine of a text after its first token: the quickest of some."""
    texts = []
    for _ in range(_REPEATS):
        chain = Chain(_IdleSequence(logits, _TOKENS + 2 * WINDOW), (1, 1))
        text = Writer(chain, NoDrafter(), FixedPolicy(policy), make_picker(sampling), ()).write([0], _TOKENS)
        next(text)
        started = time.perf_counter()
        rounds = list(text)
        texts.append((time.perf_counter() - started, rounds, sum(len(round_.forwards) for round_ in rounds)))
    return min(texts, key=lambda text: text[0])


def _call_seconds(logits: Float32) -> float:
    """What a call of a segment or head takes around the engine, as it is measured with a forward."""
    chain = Chain(_IdleSequence(logits, 2 * WINDOW), (1, 1))
    chain.prefill([0])
    parts: list[float] = []
    for _ in range(_PICKS):
        slots = chain.arena.extend([0], [0])
        parts += [timed(partial(chain.advance, slots, stage), chain) for stage in (1, 2)]
        parts.append(timed(partial(chain.logits, np.zeros(1, np.int32)), chain))
        chain.arena.drop_window()
    return float(np.median(parts))


def _pick_seconds(logits: Float32, sampling: SamplingParams) -> float:
    picker = make_picker(sampling)
    started = time.perf_counter()
    for position in range(_PICKS):
        picker(logits, position, ())
    return (time.perf_counter() - started) / _PICKS


class _IdleSequence:
    """An engine's sequence that computes nothing: exits and model say the same after every token."""

    def __init__(self, logits: Float32, slots: int) -> None:
        self.slots = slots
        self._logits = np.broadcast_to(logits, (WINDOW, len(logits)))

    def run(self, segment: int, batch: Batch) -> None:
        pass

    def logits(self, rows: Int32) -> Float32:
        return self._logits[: len(rows)]

    def draft_logits(self, rows: Int32) -> Float32:
        return self._logits[: len(rows)]

    def readout(self, rows: Int32) -> Float32:
        return self._logits[: len(rows), :1]

    def move(self, source: Int32, target: Int32) -> None:
        pass

    def copy_rows(self, other: _IdleSequence, count: int) -> None:
        pass
