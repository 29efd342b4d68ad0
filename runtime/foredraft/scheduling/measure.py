"""What forwards cost on this machine: measured when a bundle is first used with it, and then remembered."""

from __future__ import annotations

import hashlib
import platform
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from foredraft.bundle import Bundle
from foredraft.engines.protocol import WINDOW, Engine
from foredraft.loop.chain import EXIT_HEAD, HEAD, Chain
from foredraft.scheduling.forward_costs import CostCurve, cached_curve
from foredraft.scheduling.parts import ForwardCosts, PartCosts, costs_of

CONTEXT = 128
"""Tokens of text under the forwards that are measured for plans."""
_WARM_UP = 0.1
"""Seconds of forwards before any is timed: a processor that comes from rest is slower."""
_known: dict[str, dict[int, float]] = {}
"""What this process has read or measured, by the curve's key: where the cache folder cannot be written, the sessions of
one process still measure once."""


def measured_costs(bundle: Bundle, engine: Engine) -> ForwardCosts:
    """The costs from the user's cache folder, or measured now, which takes about a second; curves of the caller's own,
    which it may refresh.
    """
    return costs_of(measured_parts(bundle, engine).times, len(bundle.manifest.segments))


def measured_parts(bundle: Bundle, engine: Engine, context: int = CONTEXT) -> PartCosts:
    """As ``measured_costs``, each part by itself, over ``context`` tokens of text."""
    rig, key = _Rig(bundle, engine, context), f"{_key(bundle, engine)}|{context}"

    def curve(name: str, what: int) -> CostCurve:
        return _curve(f"{key}|{name}", partial(rig.seconds, what))

    segments = tuple(curve(f"segment {index}", index) for index in range(len(bundle.manifest.segments)))
    head = curve("head", HEAD)
    return PartCosts(segments, curve("exit head", EXIT_HEAD) if len(segments) > 1 else head, head)


def _curve(key: str, measure: Callable[[int], float]) -> CostCurve:
    if key not in _known:
        _known[key] = cached_curve(key, measure).as_dict()
    return CostCurve(_known[key])


class _Rig:
    """A scratch sequence on the engine, made when something must really be measured.

    A forward measures all its parts at once, in the order and the company in which they run in the loop: a segment
    timed on its own has other caches. Those of one size follow one another, as they mostly do in the loop.
    """

    def __init__(self, bundle: Bundle, engine: Engine, context: int) -> None:
        self._bundle, self._engine = bundle, engine
        self._context = min(context, bundle.manifest.model.context // 2)
        self._chain: Chain | None = None
        self._forwards: dict[int, list[dict[int, float]]] = {}
        self._told: Counter[tuple[int, int]] = Counter()

    def seconds(self, what: int, nodes: int) -> float:
        """Of a segment or head on ``nodes`` nodes; every call is about another forward."""
        forwards = self._forwards.setdefault(nodes, [])
        index = self._told[what, nodes]
        self._told[what, nodes] += 1
        if index == len(forwards):
            forwards.append(self._forward(nodes))
        return forwards[index][what]

    def _forward(self, nodes: int) -> dict[int, float]:
        """The times of one forward of a bush of ``nodes`` nodes, which every exit is asked about."""
        chain, taken = self._opened(), dict[int, float]()
        tip = chain.arena.used
        slots = chain.arena.extend([1] * nodes, [tip - 1, *[tip] * (nodes - 1)])
        rows = np.arange(nodes, dtype=np.int32)
        for segment in range(chain.segments):
            taken[segment] = timed(partial(chain.advance, slots, segment + 1), chain)
            if segment + 1 < chain.segments:
                taken[EXIT_HEAD] = timed(partial(chain.exit_logits, rows), chain)
        taken[HEAD] = timed(partial(chain.logits, rows), chain)
        chain.arena.drop_window()
        return taken

    def _opened(self) -> Chain:
        if self._chain is None:
            manifest = self._bundle.manifest
            layers = [segment.last - segment.first for segment in manifest.segments]
            self._chain = Chain(self._engine.open_sequence(self._context + WINDOW), layers)
            self._chain.prefill([1] * self._context)
            started = time.perf_counter()
            while time.perf_counter() - started < _WARM_UP:
                self._forward(1)
        return self._chain


def timed(work: Callable[[], object], chain: Chain) -> float:
    """Seconds until the work is done, also where a device does it."""
    started = time.perf_counter()
    work()
    chain.wait()
    return time.perf_counter() - started


def _key(bundle: Bundle, engine: Engine) -> str:
    digest = hashlib.sha256(bundle.manifest.to_bytes()).hexdigest()
    return f"{digest}|{engine.name}|{engine.version}|{engine.threads}|{platform.machine()}|{_processor()}"


def _processor() -> str:
    """The processor's model name, where the system says it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    names = [line for line in text.splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()
