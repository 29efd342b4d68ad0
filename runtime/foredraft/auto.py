"""The policy ``auto``: every round what the measured costs and the learned probabilities say."""

from __future__ import annotations

import hashlib
import platform
import time

import numpy as np

from foredraft.bundle import Bundle
from foredraft.chain import Chain
from foredraft.costs import CostCurve, cached_curve
from foredraft.engines.base import WINDOW, Engine
from foredraft.policy import Policy
from foredraft.rounds import Round
from foredraft.scheduler import Scheduler as TreeScheduler
from foredraft.tree import Tree

CONTEXT = 128
"""Tokens of text under the forwards that are measured."""


class AutoScheduler:
    """Chooses the size of every tree, plain decoding among the choices."""

    def __init__(self, costs: CostCurve) -> None:
        self._trees = TreeScheduler(costs)

    def plan(self) -> Policy:
        plan = self._trees.plan()
        return Policy(budget=plan.budget, minimum=plan.minimum)

    def choose(self, tree: Tree) -> int:
        return self._trees.choose(tree)

    def go_on(self, round_: Round, depth: int) -> bool:
        return False

    def observe(self, round_: Round) -> None:
        drafting = round_.seconds_draft if round_.policy.budget else 0.0
        self._trees.observe(len(round_.tree), len(round_.accepted), round_.seconds_verify, drafting)


def measured_costs(bundle: Bundle, engine: Engine) -> CostCurve:
    """Seconds of a forward of T nodes on this machine: from the user's cache folder, or measured now (about a second)."""
    layers = [segment.last - segment.first for segment in bundle.manifest.segments]
    chain: Chain | None = None

    def measure(nodes: int) -> float:
        nonlocal chain
        if chain is None:
            context = min(CONTEXT, bundle.manifest.model.context // 2)
            chain = Chain(engine.open_sequence(context + WINDOW), layers)
            chain.prefill([1] * context)
        tip = chain.arena.used
        slots = chain.arena.extend([1] * nodes, [tip - 1, *[tip] * (nodes - 1)])
        started = time.perf_counter()
        np.argmax(chain.verify(slots), axis=1)
        seconds = time.perf_counter() - started
        chain.arena.drop_window()
        return seconds

    return cached_curve(_key(bundle, engine), measure)


def _key(bundle: Bundle, engine: Engine) -> str:
    digest = hashlib.sha256(bundle.manifest.to_bytes()).hexdigest()
    return f"{digest}|{engine.name}|{engine.threads}|{platform.machine()}|{_processor()}"


def _processor() -> str:
    """The processor's model name, where the system says it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line for line in file if line.startswith("model name")]
        return names[0].partition(":")[2].strip() if names else platform.processor()
    except OSError:
        return platform.processor()
