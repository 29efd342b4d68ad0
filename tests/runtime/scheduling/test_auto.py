"""``auto`` in simulation: a useless exit is left alone at once, a useful one is used, runner-ups where they pay."""

from __future__ import annotations

import random

import pytest

from foredraft.loop.rounds import Choice, Opinion, Round
from foredraft.loop.tree import TIP, Tree
from foredraft.scheduling.agreement import RUNNERS_UP, Agreement
from foredraft.scheduling.auto import AutoScheduler
from foredraft.scheduling.forward_costs import SIZES, CostCurve
from foredraft.scheduling.parts import ForwardCosts
from foredraft.scheduling.policy import NO_EXIT, Policy

OWN, WRONG, OTHER = 1, 2, 3
"""The model's own token at every place, what an exit says where it is wrong, and what it says besides."""
LAYERS = 16
EXITS = (2, 4)


def machine(node: float, head: float = 1.0) -> ForwardCosts:
    """A layer takes 1 second for one node, and ``node`` more for each further one; the head as long as a layer."""

    def curve(layers: float) -> CostCurve:
        return CostCurve({nodes: (layers + head) * (1.0 + node * (nodes - 1)) for nodes in SIZES})

    return ForwardCosts(
        curve(LAYERS), tuple(curve(exit_) for exit_ in EXITS), tuple(curve(LAYERS - exit_) for exit_ in EXITS)
    )


class Text:
    """Written by a loop without a model: exits agree with probability ``agrees``, and else their second choice is right
    with probability ``second``. The drafter has nothing."""

    def __init__(self, scheduler: AutoScheduler, node: float, agrees: float, second: float = 0.0) -> None:
        self.scheduler, self.node, self.agrees, self.second = scheduler, node, agrees, second
        self.random = random.Random(0)
        self.policies: list[tuple[int, Policy]] = []
        self.written, self.seconds, self.widths, self.passes = 0, 0.0, 0, 0

    def round(self) -> None:
        round_ = Round(self.scheduler.plan())
        self.policies.append((self.written, round_.policy))
        judge, seconds, self.passes = round_.policy.judge_exit, 0.0, 0
        if round_.policy.budget:
            self.scheduler.choose(Tree())
        if judge != NO_EXIT:
            while True:
                round_.opinions.append(self.opinion(len(round_.opinions) - 1, judge))
                round_.judgements += 1
                seconds += self.taken(EXITS[judge] + 1, 1)
                if not self.scheduler.go_on(round_, len(round_.opinions) - 1):
                    break
                round_.tree.add(round_.opinions[-1].token, len(round_.tree) - 1)
        elif round_.policy.look_exit != NO_EXIT:
            round_.opinions.append(self.opinion(TIP, round_.policy.look_exit))
            seconds += self.taken(1, 1)
        widths = self.scheduler.widths(round_.opinions, judged=True) if judge != NO_EXIT else []
        self.widths += sum(widths)
        self.accept(round_, widths)
        beside = max(sum(widths) - len(round_.tree), 0)
        round_.verified = 1 + len(round_.tree) + beside
        seconds += self.taken(EXITS[judge], beside) if judge != NO_EXIT and beside else 0.0
        seconds += self.taken(LAYERS - (EXITS[judge] if judge != NO_EXIT else 0) + 1, round_.verified)
        round_.seconds_verify, round_.layer_passes = seconds, self.passes
        self.written += len(round_.tokens)
        self.seconds += seconds
        self.scheduler.observe(round_)

    def opinion(self, node: int, exit_: int) -> Opinion:
        right, second = self.random.random() < self.agrees, self.random.random() < self.second
        tokens = [OWN if right else WRONG, OWN if second and not right else OTHER]
        tokens += [OTHER + rank for rank in range(1, RUNNERS_UP)]
        lead = 3.0 * self.random.random()
        scores = [0.0, *[-lead - 0.5 * rank for rank in range(RUNNERS_UP)]]
        choices = [Choice(token, score - 0.1, score) for token, score in zip(tokens, scores, strict=True)]
        return Opinion(node, exit_, tuple(choices))

    def accept(self, round_: Round, widths: list[int]) -> None:
        """The path as far as it is right, then a runner-up, if it was verified."""
        round_.tokens = [OWN]
        for node, token in enumerate(round_.tree.tokens):
            if token != OWN:
                break
            round_.accepted.append(node)
            round_.tokens.append(OWN)
        at = len(round_.accepted)
        if at < len(widths):
            choices = [choice.token for choice in round_.opinions[at].choices]
            if OWN in choices[: widths[at]]:
                round_.accepted.append(round_.tree.add(OWN, at - 1))
                round_.tokens.append(OWN)

    def taken(self, layers: int, nodes: int) -> float:
        self.passes += layers
        return layers * (1.0 + self.node * (nodes - 1))

    def write(self, tokens: int) -> float:
        """How many times as fast as plain decoding."""
        while self.written < tokens:
            self.round()
        return self.written * self.taken(LAYERS + 1, 1) / self.seconds


def text(node: float, agrees: float, second: float = 0.0) -> Text:
    return Text(AutoScheduler(machine(node)), node, agrees, second)


@pytest.mark.parametrize("node", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("agrees", [0.0, 0.1, 0.2])
def test_a_useless_exit_is_left_alone_within_50_tokens(node: float, agrees: float) -> None:
    written = text(node, agrees)
    speed = written.write(2000)
    asked = [at for at, policy in written.policies if policy.uses_exits or policy.look_exit != NO_EXIT]
    assert 0 < sum(at < 50 for at in asked) <= 24
    assert not any(50 <= at < 64 for at in asked)
    assert speed >= 0.98


@pytest.mark.parametrize("node", [0.0, 0.05])
def test_a_useful_exit_is_used(node: float) -> None:
    written = text(node, 0.8)
    assert written.write(2000) > 1.4
    assert sum(policy.uses_exits for _, policy in written.policies) > 0.8 * len(written.policies)


def test_runners_up_are_verified_where_they_are_right_often_enough() -> None:
    without, cheap, dear = text(0.0, 0.6), text(0.0, 0.6, 0.9), text(0.6, 0.6, 0.3)
    slow, fast = without.write(2000), cheap.write(2000)
    assert fast > 1.15 * slow
    dear.write(500)
    judged = [sum(policy.uses_exits for _, policy in each.policies) for each in (cheap, dear)]
    assert cheap.widths / judged[0] > 2 * dear.widths / max(judged[1], 1)


def test_agreement_learns_how_often_each_rank_is_right() -> None:
    agreement, chance = Agreement(), random.Random(1)
    for _ in range(2000):
        own = chance.choices([10, 11, 12, 99], [0.5, 0.3, 0.1, 0.1])[0]
        agreement.learn([0.4] * (1 + RUNNERS_UP), [10, 11, 12, *range(20, 20 + RUNNERS_UP - 2)], own)
    assert [agreement.rate(0.4, rank) for rank in range(3)] == pytest.approx([0.5, 0.3, 0.1], abs=0.05)
    count, together = agreement.runners_up(0.05)
    assert count == 2 and together == pytest.approx(0.4, abs=0.05)
    assert agreement.runners_up(1.0) == (0, 0)
    assert agreement.mean == pytest.approx(0.5, abs=0.05)
