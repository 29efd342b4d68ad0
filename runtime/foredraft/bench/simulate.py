"""Recorded rounds, with other times: how fast the policies of a comparison would be on other hardware.

What a round drafts and accepts does not depend on the machine, except under ``auto``, which decides by the costs of the
machine that it runs on. So that it can be compared, ``Elsewhere`` lets it decide by another machine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foredraft.bench.comparison import BASELINE, Comparison
from foredraft.bench.hardware import Host
from foredraft.loop.chain import Forward
from foredraft.loop.rounds import Opinion, Round
from foredraft.loop.tree import Tree
from foredraft.scheduling.auto import AutoScheduler
from foredraft.scheduling.parts import Times, costs_of
from foredraft.scheduling.policy import Policy


@dataclass(frozen=True, slots=True)
class Simulation:
    """``rates`` are tokens per second by drafter or policy; ``about`` states the constants."""

    name: str
    about: str
    rates: dict[str, float]

    def ratio(self, name: str) -> float:
        """To plain decoding."""
        plain = self.rates.get(BASELINE, 0.0)
        return self.rates[name] / plain if plain else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        figures = {n: {"tokens_per_second": rate, "ratio": self.ratio(n)} for n, rate in self.rates.items()}
        return {"name": self.name, "about": self.about, "rates": figures}


def simulate(comparison: Comparison, name: str, about: str, times: Times, host: Host) -> Simulation:
    """Every drafter's or policy's rounds with other ``times``. Drafting and learning take what they took here."""
    rates = {}
    for compared in comparison.drafters:
        rounds = [round_ for run in comparison.runs(compared) for round_ in run.rounds]
        seconds = sum(
            engine_seconds(round_.forwards, times)
            + round_.seconds_drafter
            + host.seconds(round_.tokens, round_.opinions, round_.runners_up)
            for round_ in rounds
        )
        rates[compared] = sum(round_.tokens for round_ in rounds) / seconds if seconds else 0.0
    return Simulation(name, about, rates)


def engine_seconds(forwards: Iterable[Forward], times: Times) -> float:
    """Of forwards as a round has them."""
    return sum(times(what, nodes) for what, nodes in forwards)


def calibrated(comparison: Comparison, times: Times, host: Host) -> tuple[Times, Host]:
    """This machine's times in the loop rather than alone: by as much as plain decoding takes longer than its forwards
    and the loop by themselves, so does everything.
    """
    runs = comparison.runs(BASELINE)
    rounds = [round_ for run in runs for round_ in run.rounds]
    alone = sum(
        engine_seconds(round_.forwards, times) + host.seconds(round_.tokens, round_.opinions, round_.runners_up)
        for round_ in rounds
    )
    slower = max(sum(run.seconds for run in runs) / alone, 1.0) if rounds else 1.0
    return (lambda what, nodes: slower * times(what, nodes)), host.scaled(slower)


class Elsewhere:
    """``auto`` as it would decide on a machine with other times, for a model of so many segments."""

    def __init__(self, segments: int, times: Times, host: Host) -> None:
        self._auto = AutoScheduler(costs_of(times, segments))
        self._times, self._host = times, host

    def plan(self) -> Policy:
        return self._auto.plan()

    def choose(self, tree: Tree) -> int:
        return self._auto.choose(tree)

    def go_on(self, round_: Round, depth: int) -> bool:
        return self._auto.go_on(round_, depth)

    def widths(self, path: Sequence[Opinion], judged: bool) -> list[int]:
        return self._auto.widths(path, judged)

    def observe(self, round_: Round) -> None:
        """The round as it would have gone there; drafting takes what it took here."""
        loop = self._host.seconds(len(round_.tokens), len(round_.opinions), round_.runners_up)
        seconds = engine_seconds(round_.forwards, self._times) + loop
        self._auto.observe(replace(round_, seconds_verify=seconds))
