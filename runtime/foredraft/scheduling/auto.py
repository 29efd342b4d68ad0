"""The policy ``auto``: every round what the measured costs and the learned probabilities say.

Without exits it decides the size of each tree, plain decoding among the choices. With exits it also decides, round by
round, whether one of them judges. It first looks: for some rounds an exit is only asked what it would have said. Where
what it said would pay, it is tried; and which way pays then is measured, each way keeping its own running rate. A way
that does not is looked at again only after a pause that grows fourfold. So a useless exit costs a few readings.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foredraft.rounds import Round
from foredraft.scheduling.agreement import Agreement
from foredraft.scheduling.measure import ForwardCosts
from foredraft.scheduling.policy import NO_EXIT, Policy
from foredraft.scheduling.tree_size import TreeScheduler
from foredraft.tree import TIP, Tree

LONGEST = 24
"""Tokens of a tentative path at most."""
LOOKS = 8
"""Rounds in which an exit is only asked what it would have said."""
TRIAL = 8
"""Rounds that a way is then given to show what it is worth."""
FIRST_PAUSE, LONGEST_PAUSE = 64, 1024
"""Rounds until a way that does not pay is looked at again: at first, and at most."""
_PROMISING = 0.9
"""A way is tried if its expected rate is at least this share of the present one."""
_MEMORY = 0.97
"""Weight of a round in a way's running rate after its next round."""


@dataclass(slots=True)
class _Way:
    """One way to go about a round, and how it has fared: decayed tokens and seconds.

    ``looks`` and ``trial`` are the rounds that are left of either; ``again`` is the round that ends its pause.
    """

    judge_exit: int = NO_EXIT
    draft_exit: int = NO_EXIT
    looks: int = LOOKS
    trial: int = TRIAL
    pause: int = FIRST_PAUSE
    again: int = 0
    tokens: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def count(self, tokens: int, seconds: float) -> None:
        self.tokens = self.tokens * _MEMORY + tokens
        self.seconds = self.seconds * _MEMORY + seconds

    def rest(self, now: int) -> None:
        """Pause, and begin anew afterwards."""
        self.again, self.pause = now + self.pause, min(4 * self.pause, LONGEST_PAUSE)
        self.looks, self.trial, self.tokens, self.seconds = LOOKS, TRIAL, 0.0, 0.0


@dataclass(slots=True)
class AutoScheduler:
    """Plans every round for the most expected tokens per second."""

    costs: ForwardCosts
    _trees: TreeScheduler = field(init=False)
    _agreement: list[Agreement] = field(init=False)
    _plain: _Way = field(init=False)
    _judged: list[_Way] = field(init=False)
    _way: _Way = field(init=False)
    _round: int = 0
    _steps: float = 1.5
    """Running mean of the tokens that one judgement adds to the tentative path."""

    def __post_init__(self) -> None:
        exits = len(self.costs.until)
        self._trees = TreeScheduler(self.costs.whole)
        self._agreement = [Agreement() for _ in range(exits)]
        self._plain = self._way = _Way(looks=0, trial=0)
        # The last exit is right most often: if even that does not pay, the others need not be looked at.
        self._judged = [_Way(judge_exit=exit_) for exit_ in reversed(range(exits))]
        if exits > 1:
            self._judged.append(_Way(judge_exit=exits - 1, draft_exit=0))

    def plan(self) -> Policy:
        self._round += 1
        self._way, look = self._next_way()
        plan = self._trees.plan()
        exit_ = self._way.judge_exit
        if exit_ == NO_EXIT:
            return replace(plan, look_exit=look)
        rate = self._trees.rate
        return Policy(
            budget=plan.budget,
            minimum=0.5 * rate * self.costs.until[exit_].slope(),
            draft_exit=self._way.draft_exit,
            draft_tokens=2,
            judge_exit=exit_,
            tentative=LONGEST,
            keep=min(max(2 * rate * self.costs.rest[exit_].slope(), 0.1), 1.0),
        )

    def choose(self, tree: Tree) -> int:
        """Nodes up to the last whose path probability is worth what it costs, up to the exit and beyond it."""
        exit_ = self._way.judge_exit
        if exit_ == NO_EXIT:
            return self._trees.choose(tree)
        until, rate = self.costs.until[exit_], self._trees.rate
        beyond = rate * self.costs.rest[exit_].slope()
        best, best_worth, gain = 0, 0.0, 0.0
        for count, probability in enumerate(tree.probabilities, 1):
            gain += probability * (1.0 - beyond)
            worth = gain - rate * (until.seconds(count + 1) - until.seconds(1))
            if worth > best_worth:
                best, best_worth = count, worth
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
        seconds = self.costs.until[exit_].seconds(2) + self._steps * self.costs.rest[exit_].slope()
        gain = sure * (1.0 + (self._steps - 1.0) * agreement.mean)
        return gain > max(self._trees.rate, self._way.rate) * seconds

    def observe(self, round_: Round) -> None:
        self._learn_agreement(round_)
        way = self._way
        way.count(len(round_.tokens), round_.seconds_draft + round_.seconds_verify)
        if way.judge_exit == NO_EXIT:
            drafting = round_.seconds_draft if round_.policy.budget else 0.0
            self._trees.observe(len(round_.tree), len(round_.accepted), round_.seconds_verify, drafting)
            return
        steps = sum(opinion.exit == way.judge_exit for opinion in round_.opinions) / round_.judgements
        self._steps += 0.1 * (steps - self._steps)
        way.trial = max(way.trial - 1, 0)
        if not way.trial and way.rate < self._plain.rate:
            way.rest(self._round)

    def _next_way(self) -> tuple[_Way, int]:
        """The way to go now, and an exit to look at on the way (or NO_EXIT)."""
        for way in self._judged:
            if way.again > self._round or self._plain.seconds == 0.0:
                continue
            if way.looks and self._promising(way):
                way.looks -= 1
                return self._plain, way.judge_exit
            if way.trial and self._promising(way):
                return way, NO_EXIT
            if way.looks or way.trial:
                way.rest(self._round)
        tried = [way for way in self._judged if way.again <= self._round and not way.trial]
        return max([self._plain, *tried], key=lambda way: way.rate), NO_EXIT

    def _promising(self, way: _Way) -> bool:
        """Would an exit that agrees as often as this one (or, while it was not looked at, the next later one) pay?

        n judgements one after the other give n - 1 tokens to verify, right with probability a, a^2, ..., and the whole
        model adds one of its own; the best n is taken.
        """
        exit_ = way.judge_exit
        agreement = self._agreement[exit_]
        if way.looks == LOOKS and exit_ + 1 < len(self._agreement):
            agreement = self._agreement[exit_ + 1]
        until, rest = self.costs.until[exit_], self.costs.rest[exit_]
        a, tokens, seconds, best = agreement.optimistic(), 0.0, 0.0, 0.0
        for count in range(1, LONGEST + 1):
            tokens += a ** (count - 1)
            seconds += until.seconds(1)
            best = max(best, tokens / (seconds + rest.seconds(count)))
        return best > _PROMISING * self._plain.rate

    def _learn_agreement(self, round_: Round) -> None:
        """The model's own token is known after every node of the accepted path."""
        own = dict(zip([TIP, *round_.accepted], round_.tokens, strict=True))
        for opinion in round_.opinions:
            if opinion.node in own:
                self._agreement[opinion.exit].learn(opinion.confidence, opinion.token == own[opinion.node])
