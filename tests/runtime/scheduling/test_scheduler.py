"""The scheduler in simulation: near the best fixed size where drafts help, hardly a loss where they do not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from foredraft.loop.tree import TIP, Tree
from foredraft.scheduling.forward_costs import CostCurve
from foredraft.scheduling.tree_size import MOST, MOST_CREDIT, OPENING_CREDIT, TreeScheduler

Text = Callable[[random.Random, int], tuple[list[float], float]]
"""(random, round) -> the path probabilities that the drafter claims, and how often each token of a chain comes true."""

CURVES = {
    "steep": {1: 6.2, 2: 7.3, 4: 8.8, 9: 15.6, 17: 27.0, 33: 49.0, 65: 97.0},
    "gentle": {1: 6.2, 2: 6.5, 4: 7.4, 9: 10.5, 17: 16.0, 33: 30.0, 65: 58.0},
    "flat": {1: 10.0, 65: 11.0},
    "stepped": {1: 5.0, 8: 5.1, 9: 9.0, 16: 9.1, 17: 14.0, 65: 40.0},
}


def curve(name: str) -> CostCurve:
    return CostCurve({nodes: milliseconds / 1000 for nodes, milliseconds in CURVES[name].items()})


def honest(chance: float) -> Text:
    return lambda _random, _round: ([chance ** (depth + 1) for depth in range(64)], chance)


def lying(claimed: float, real: float) -> Text:
    return lambda _random, _round: ([claimed ** (depth + 1) for depth in range(64)], real)


def changing(every: int, good: float, bad: float) -> Text:
    def text(_random: random.Random, round_: int) -> tuple[list[float], float]:
        return [good ** (depth + 1) for depth in range(64)], (good if round_ // every % 2 else bad)

    return text


def chain(probabilities: list[float]) -> Tree:
    return Tree(list(range(len(probabilities))), [TIP, *range(len(probabilities) - 1)], probabilities, [])


def simulate(costs: CostCurve, text: Text, tokens: int, fixed: int | None = None, seed: int = 0) -> float:
    """How many times as fast as plain decoding ``tokens`` tokens are written."""
    scheduler, chance, draft = TreeScheduler(costs), random.Random(seed), 0.0003
    truth = CostCurve(costs.as_dict())
    written, seconds, round_ = 0, 0.0, 0
    while written < tokens:
        claims, real = text(chance, round_)
        plan = scheduler.plan()
        budget = plan.budget if fixed is None else fixed
        tree = chain([claim for claim in claims[:budget] if claim >= plan.minimum or fixed is not None])
        nodes = scheduler.choose(tree) if fixed is None else fixed
        accepted = 0
        while accepted < nodes and chance.random() < real:
            accepted += 1
        forward, drafting = truth.seconds(nodes + 1) * chance.uniform(0.95, 1.05), draft if budget else 0.0
        scheduler.observe(nodes, accepted, forward, drafting)
        written += accepted + 1
        seconds += forward + drafting
        round_ += 1
    return written * truth.seconds(1) / seconds


@pytest.mark.parametrize("costs", CURVES)
@pytest.mark.parametrize("chance", [0.3, 0.5, 0.7, 0.9])
def test_near_the_best_fixed_size_on_predictable_text(costs: str, chance: float) -> None:
    best = max(simulate(curve(costs), honest(chance), 3000, fixed) for fixed in (0, 1, 2, 3, 4, 6, 7, 8, 12, 16))
    assert simulate(curve(costs), honest(chance), 3000) >= 0.94 * best


@pytest.mark.parametrize("costs", CURVES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("claimed", [0.3, 0.6, 0.95])
def test_hardly_a_loss_on_unpredictable_text(costs: str, claimed: float, seed: int) -> None:
    assert simulate(curve(costs), lying(claimed, 0.0), 300, seed=seed) >= 0.97
    assert simulate(curve(costs), lying(claimed, 0.05), 3000, seed=seed) >= 0.975


@pytest.mark.parametrize("costs", CURVES)
def test_a_text_that_turns_costs_little_and_is_noticed(costs: str) -> None:
    assert simulate(curve(costs), changing(100, 0.05, 0.0), 2000) >= 0.97
    assert simulate(curve(costs), changing(150, 0.8, 0.0), 4000) >= 1.1


def test_decisions_depend_on_the_observations_only() -> None:
    assert simulate(curve("gentle"), honest(0.6), 500) == simulate(curve("gentle"), honest(0.6), 500)


def test_a_node_is_kept_if_it_pays() -> None:
    scheduler = TreeScheduler(CostCurve({1: 1.0, 65: 1.0 + 64 * 0.08}))  # what a node costs, in plain tokens
    assert scheduler.choose(chain([0.5, 0.2, 0.11, 0.07, 0.05])) == 3
    assert scheduler.choose(chain([0.07, 0.06])) == 0
    assert scheduler.choose(chain([])) == 0
    plan = scheduler.plan()
    assert 0 < plan.budget <= MOST and 0.0 < plan.minimum < 0.1


def test_sizes_up_to_the_edge_of_a_step_are_taken() -> None:
    scheduler = TreeScheduler(curve("stepped"))
    assert scheduler.choose(chain([0.02] * 40)) == 7  # nodes 2 to 7 are free, the eighth is not


def test_the_budget_grows_while_all_that_is_proposed_is_chosen() -> None:
    scheduler = TreeScheduler(curve("flat"))
    budgets: list[int] = []
    for _ in range(8):
        budgets.append(scheduler.plan().budget)
        nodes = scheduler.choose(chain([0.99**depth for depth in range(budgets[-1])]))
        scheduler.observe(nodes, 1, scheduler.curve.seconds(nodes + 1))
    assert budgets == sorted(budgets) and budgets[0] < MOST and budgets[-1] >= MOST
    for _ in range(40):
        scheduler.choose(chain([0.5, 0.001, 0.001]))
    assert scheduler.plan().budget <= 4


def test_credit_bounds_what_is_lost() -> None:
    scheduler = TreeScheduler(curve("gentle"))
    plain = scheduler.curve.seconds(1)
    assert scheduler.credit == pytest.approx(OPENING_CREDIT * plain)
    for _ in range(30):
        nodes = 4 if scheduler.plan().budget else 0
        scheduler.observe(nodes, 0, scheduler.curve.seconds(nodes + 1))
    assert scheduler.plan().budget == 0
    for _ in range(200):
        scheduler.observe(0, 0, scheduler.curve.seconds(1))
    assert scheduler.plan().budget > 0  # it tries again
    for _ in range(200):
        scheduler.observe(4, 4, scheduler.curve.seconds(5))
    assert scheduler.credit <= MOST_CREDIT * scheduler.curve.seconds(1) * 1.001
