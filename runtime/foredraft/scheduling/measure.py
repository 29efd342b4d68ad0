"""What forwards cost on this machine: measured when a bundle is first used with it, and then remembered."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from foredraft.bundle import Bundle
from foredraft.chain import Chain
from foredraft.engines.base import WINDOW, Engine, Float32, Int32
from foredraft.scheduling.costs import CostCurve, cached_curve

CONTEXT = 128
"""Tokens of text under the forwards that are measured."""
_known: dict[str, dict[int, float]] = {}
"""What this process has read or measured, by the curve's key: where the cache folder cannot be written, the sessions of
one process still measure once."""


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """Seconds by number of nodes: through the ``whole`` model with its head; per exit, ``until`` it with the head that
    reads it, and the ``rest`` of the model from there."""

    whole: CostCurve
    until: tuple[CostCurve, ...] = ()
    rest: tuple[CostCurve, ...] = ()


def measured_costs(bundle: Bundle, engine: Engine) -> ForwardCosts:
    """The costs from the user's cache folder, or measured now, which takes about a second; curves of the caller's own,
    which it may refresh.
    """
    rig, key, exits = _Rig(bundle, engine), _key(bundle, engine), len(bundle.manifest.exits)
    return ForwardCosts(
        whole=_curve(f"{key}|whole", rig.whole),
        until=tuple(_curve(f"{key}|until {exit_}", partial(rig.until, exit_ + 1)) for exit_ in range(exits)),
        rest=tuple(_curve(f"{key}|from {exit_}", partial(rig.rest, exit_ + 1)) for exit_ in range(exits)),
    )


def _curve(key: str, measure: Callable[[int], float]) -> CostCurve:
    if key not in _known:
        _known[key] = cached_curve(key, measure).as_dict()
    return CostCurve(_known[key])


class _Rig:
    """A scratch sequence on the engine, made when something must really be measured."""

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        self._bundle, self._engine = bundle, engine
        self._chain: Chain | None = None

    def whole(self, nodes: int) -> float:
        """Seconds of a forward of ``nodes`` nodes through the whole model and its head."""
        return self.rest(0, nodes)

    def rest(self, stage: int, nodes: int) -> float:
        """Seconds of the rest of a forward whose nodes have been through ``stage`` segments."""
        return self._timed(stage, nodes, lambda chain, slots: chain.verify(slots))

    def until(self, stage: int, nodes: int) -> float:
        """Seconds of a forward up to ``stage`` segments, and of the head that reads the exit there."""

        def run(chain: Chain, slots: Int32) -> Float32:
            chain.advance(slots, stage)
            return chain.exit_logits(np.arange(len(slots), dtype=np.int32))

        return self._timed(0, nodes, run)

    def _timed(self, stage: int, nodes: int, run: Callable[[Chain, Int32], Float32]) -> float:
        """The time of ``run`` on a bush of ``nodes`` nodes, the picking of tokens included."""
        chain = self._opened()
        tip = chain.arena.used
        slots = chain.arena.extend([1] * nodes, [tip - 1, *[tip] * (nodes - 1)])
        if stage:
            chain.advance(slots, stage)
            chain.exit_logits(np.zeros(1, np.int32))  # read back, so that no device is still busy with it
        started = time.perf_counter()
        run(chain, slots).argmax(axis=1)
        taken = time.perf_counter() - started
        chain.arena.drop_window()
        return taken

    def _opened(self) -> Chain:
        if self._chain is None:
            manifest = self._bundle.manifest
            context = min(CONTEXT, manifest.model.context // 2)
            layers = [segment.last - segment.first for segment in manifest.segments]
            self._chain = Chain(self._engine.open_sequence(context + WINDOW), layers)
            self._chain.prefill([1] * context)
        return self._chain


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
