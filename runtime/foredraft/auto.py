"""The policy ``auto``: every round what the measured costs and the learned probabilities say.

Without exits it decides the size of each tree, plain decoding among the choices. With exits it also decides, round by
round, whether one of them judges. Which way pays is measured, not believed: each way keeps its own running rate, and a
way that loses is tried again only after a pause that grows fourfold. So a useless exit costs a few rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from foredraft.agreement import Agreement
from foredraft.measure import ForwardCosts
from foredraft.policy import NO_EXIT, Policy
from foredraft.rounds import Round
from foredraft.scheduler import Scheduler as TreeScheduler
from foredraft.tree import TIP, Tree

LONGEST = 24
"""Tokens of a tentative path at most."""
TRIAL = 3
"""Rounds that a way is given to show what it is worth."""
FIRST_PAUSE, LONGEST_PAUSE = 48, 3072
"""Rounds until a way that lost is tried again: at first, and at most."""
_MEMORY = 0.95
"""Weight of a round in a way's running rate after its next round."""


@dataclass(slots=True)
class _Way:
    """One way to go about a round, and how it has fared: decayed tokens and seconds."""

    judge_exit: int = NO_EXIT
    draft_exit: int = NO_EXIT
    tokens: float = 0.0
    seconds: float = 0.0
    trial: int = TRIAL
    pause: int = FIRST_PAUSE
    again: int = 0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def count(self, tokens: int, seconds: float) -> None:
        self.tokens = self.tokens * _MEMORY + tokens
        self.seconds = self.seconds * _MEMORY + seconds


@dataclass(slots=True)
class AutoScheduler:
    """Plans every round for the most expected tokens per second."""

    costs: ForwardCosts
    _trees: TreeScheduler = field(init=False)
    _agreement: list[Agreement] = field(init=False)
    _ways: list[_Way] = field(init=False)
    _way: _Way = field(init=False)
    _round: int = 0
    _steps: float = 1.5
    """Running mean of the tokens that one judgement adds to the tentative path."""

    def __post_init__(self) -> None:
        exits = len(self.costs.until)
        self._trees = TreeScheduler(self.costs.whole)
        self._agreement = [Agreement() for _ in range(exits)]
        self._ways = [_Way(trial=0), *(_Way(judge_exit=exit_) for exit_ in range(exits))]
        if exits > 1:
            self._ways.append(_Way(judge_exit=exits - 1, draft_exit=0))
        self._way = self._ways[0]

    def plan(self) -> Policy:
        self._round += 1
        self._way = self._next_way()
        plan = self._trees.plan()
        if self._way.judge_exit == NO_EXIT:
            return Policy(budget=plan.budget, minimum=plan.minimum)
        until, rest = self.costs.until[self._way.judge_exit], self.costs.rest[self._way.judge_exit]
        return Policy(
            budget=plan.budget,
            minimum=0.5 * self._trees.rate * (until.seconds(5) - until.seconds(1)) / 4,
            draft_exit=self._way.draft_exit,
            draft_tokens=2,
            judge_exit=self._way.judge_exit,
            tentative=LONGEST,
            keep=min(max(2 * self._trees.rate * (rest.seconds(9) - rest.seconds(1)) / 8, 0.1), 1.0),
        )

    def choose(self, tree: Tree) -> int:
        """Nodes up to the last whose path probability is worth what it costs, up to the exit and beyond it."""
        exit_ = self._way.judge_exit
        if exit_ == NO_EXIT:
            return self._trees.choose(tree)
        until, rest, rate = self.costs.until[exit_], self.costs.rest[exit_], self._trees.rate
        beyond = rate * (rest.seconds(9) - rest.seconds(1)) / 8
        best, best_gain, gain = 0, 0.0, 0.0
        for count, probability in enumerate(tree.probabilities, 1):
            gain += probability * (1.0 - beyond)
            worth = gain - rate * (until.seconds(count + 1) - until.seconds(1))
            if worth > best_gain:
                best, best_gain = count, worth
        return best

    def go_on(self, round_: Round, depth: int) -> bool:
        """Go on while another judgement is expected to add more tokens than its time would bring otherwise."""
        exit_ = round_.policy.judge_exit
        if depth + 1 >= round_.policy.tentative:
            return False
        agreement, sure = self._agreement[exit_], 1.0
        for opinion in round_.opinions:
            if opinion.exit == exit_:
                sure *= agreement.rate(opinion.confidence)
        until, rest = self.costs.until[exit_], self.costs.rest[exit_]
        seconds = until.seconds(2) + self._steps * (rest.seconds(9) - rest.seconds(1)) / 8
        gain = sure * (1.0 + (self._steps - 1.0) * agreement.mean)
        return gain > self._rate() * seconds

    def observe(self, round_: Round) -> None:
        self._learn_agreement(round_)
        seconds = round_.seconds_draft + round_.seconds_verify
        way = self._way
        way.count(len(round_.tokens), seconds)
        drafting = round_.seconds_draft if round_.policy.budget else 0.0
        if way.judge_exit == NO_EXIT:
            self._trees.observe(len(round_.tree), len(round_.accepted), round_.seconds_verify, drafting)
            return
        steps = sum(opinion.exit == way.judge_exit for opinion in round_.opinions) / round_.judgements
        self._steps += 0.1 * (steps - self._steps)
        if way.trial:
            way.trial -= 1
        if not way.trial and way.rate < max(other.rate for other in self._ways):
            way.again, way.pause = self._round + way.pause, min(4 * way.pause, LONGEST_PAUSE)

    def _next_way(self) -> _Way:
        """A way whose trial is due, else the one with the best rate that is not pausing."""
        first = self._ways[0]
        if len(self._ways) == 1 or first.seconds == 0.0:
            return first
        for way in self._ways[1:]:
            if way.again and way.again <= self._round:
                way.again, way.trial, way.tokens, way.seconds = 0, TRIAL, 0.0, 0.0
            if way.trial:
                return way
        return max((way for way in self._ways if not way.again), key=lambda way: way.rate)

    def _rate(self) -> float:
        return max(way.rate for way in self._ways)

    def _learn_agreement(self, round_: Round) -> None:
        """The model's own token is known after every node of the accepted path."""
        own = dict(zip([TIP, *round_.accepted], round_.tokens, strict=True))
        for opinion in round_.opinions:
            if opinion.node in own:
                self._agreement[opinion.exit].learn(opinion.confidence, opinion.token == own[opinion.node])
