"""Which exits pay, on this model and this machine: what to run, and the verdicts that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foredraft.bench.comparison import BASELINE, Comparison
from foredraft.errors import RequestError
from foredraft.scheduling.policy import NO_EXIT, Policy, named

DRAFTS = (2, 4, 8)
"""Tokens that an exit drafts alone."""
TENTATIVE = (3, 5, 10)
"""Tokens of a tentative path that an exit judges."""
WORTH = 1.02
"""An exit pays if it makes text so many times as fast as it is without: less is the noise of a measurement."""


def sweep(exits: int) -> list[str]:
    """Policies to compare: none of the exits, each alone as drafter or judge, and each pair. RequestError without any
    exit."""
    if not exits:
        raise RequestError("sweep-exits: this bundle has no exits; export it with --exits")
    alone = [f"self-spec:draft_exit={exit_},draft_tokens={n}" for exit_ in range(exits) for n in DRAFTS]
    judged = [f"echo:judge_exit={exit_},tentative={n}" for exit_ in range(exits) for n in TENTATIVE]
    pairs = [
        f"hispec:draft_exit={drafts},judge_exit={judges},tentative={n}"
        for judges in range(exits)
        for drafts in range(judges)
        for n in TENTATIVE[1:]
    ]
    return ["tree", *alone, *judged, *pairs]


@dataclass(frozen=True, slots=True)
class Verdict:
    """On the exit after ``layer`` of ``layers``.

    ``agreement`` is the share of the ``asked`` tokens in which it was right; ``best`` the fastest policy that uses it,
    and ``over_none`` and ``over_others`` how fast that is compared with the fastest without any exit, and without this.
    """

    layer: int
    layers: int
    asked: int
    agreement: float
    best: str
    over_none: float
    over_others: float

    @property
    def advice(self) -> str:
        """In words."""
        if self.over_none < WORTH:
            return f"leave it off: with it at most {self.over_none:.2f} times as fast as without exits"
        if self.over_others < 1.0:
            return f"pays ({self.over_none:.2f} times as fast as without exits), but another exit pays more"
        return f"use it: {self.over_none:.2f} times as fast as without exits, with {self.best}"

    def __str__(self) -> str:
        return f"exit {self.layer} (of {self.layers} layers) agrees {self.agreement:.0%}: {self.advice}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "advice": self.advice}


def verdicts(comparison: Comparison, layers: Sequence[int]) -> list[Verdict]:
    """On every exit; ``layers`` are those after which the model may be left, the whole model's last."""
    exits = len(layers) - 1
    speed = {name: comparison.summary(name)["tokens_per_second"] for name in comparison.drafters}
    uses = {name: set() if name == BASELINE else _exits_of(named(name, exits)) for name in speed}
    without = max(speed[name] for name in speed if not uses[name])
    found = comparison.agreement()
    result = []
    for exit_ in range(exits):
        best = max((name for name in speed if exit_ in uses[name]), key=lambda name: speed[name])
        others = max(speed[name] for name in speed if exit_ not in uses[name])
        asked, agreed = found.get(exit_, (0, 0))
        share = agreed / asked if asked else 0.0
        over_none = speed[best] / without if without else 0.0
        over_others = speed[best] / others if others else 0.0
        result.append(Verdict(layers[exit_], layers[-1], asked, share, best, over_none, over_others))
    return result


def _exits_of(policy: Policy) -> set[int]:
    return {policy.draft_exit, policy.judge_exit} - {NO_EXIT}
