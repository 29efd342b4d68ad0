"""The policy ``auto``: every round what the measured costs and the learned probabilities say.

Without exits it decides the size of each tree, plain decoding among the choices. With exits it also decides, round by
round, whether one of them judges, and what drafts for it. It first looks: for some rounds an exit is only asked what it
would have said. Where that would not pay, it is looked at again only after a pause that grows fourfold. Where it would,
the ways to go with it are tried in turn, and then the best is gone that what is known leaves likely; of ways that are
level the one that reads the weights least often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foredraft.loop.rounds import Opinion, Round
from foredraft.loop.tree import TIP, Tree
from foredraft.scheduling.agreement import RUNNERS_UP, Agreement
from foredraft.scheduling.forecast import Forecast
from foredraft.scheduling.forward_costs import SIZES, CostCurve
from foredraft.scheduling.parts import ForwardCosts
from foredraft.scheduling.policy import NO_EXIT, Policy
from foredraft.scheduling.tree_size import TreeScheduler
from foredraft.scheduling.way import Way

REMEASURE = 256
"""Rounds until what plain rounds are worth is measured anew, the first time."""
LONGEST = 24
"""Tokens of a tentative path at most."""
_LEVEL = 0.05
"""Ways whose rates are this close are as good as one another: then the fewest readings of the weights decide."""


@dataclass(slots=True)
class AutoScheduler:
    """Plans every round for the most expected tokens per second."""

    costs: ForwardCosts
    _alone: float = field(init=False)
    """Seconds of a plain forward as it was measured, before what the loop does around it came to it."""
    _lower: list[CostCurve] = field(init=False)
    """Per exit, the segments before it, without a head."""
    _trees: TreeScheduler = field(init=False)
    _agreement: list[Agreement] = field(init=False)
    _forecasts: dict[int, Forecast] = field(init=False)
    """By judging exit."""
    _expected: float = field(init=False, default=1.0)
    """Tokens of this round."""
    _plain: Way = field(init=False)
    _judged: list[Way] = field(init=False)
    _way: Way = field(init=False)
    _round: int = 0
    _steps: float = 1.5
    """Running mean of the tokens that one judgement adds to the tentative path."""

    def __post_init__(self) -> None:
        exits, whole = len(self.costs.until), self.costs.whole
        self._alone = whole.seconds(1)
        self._lower = [
            CostCurve({nodes: max(whole.seconds(nodes) - rest.seconds(nodes), 1e-9) for nodes in SIZES})
            for rest in self.costs.rest
        ]
        self._trees = TreeScheduler(self.costs.whole)
        self._agreement = [Agreement() for _ in range(exits)]
        self._forecasts = {exit_: Forecast() for exit_ in (NO_EXIT, *range(exits))}
        self._plain = self._way = Way(pause=REMEASURE)
        # The last exit is right most often: if even that does not pay, the others need not be looked at.
        self._judged = []
        for exit_ in reversed(range(exits)):
            self._judged += [Way(exit_, asks=False), Way(exit_)]
            if exit_ and exit_ == exits - 1:
                self._judged += [Way(exit_, draft_exit=0, asks=asks) for asks in (False, True)]

    def plan(self) -> Policy:
        self._round += 1
        self._way, look = self._next_way()
        plan = self._trees.plan()
        exit_ = self._way.judge_exit
        if exit_ == NO_EXIT:
            return replace(plan, look_exit=look, alternatives=RUNNERS_UP)
        rate = self._trees.rate
        return Policy(
            budget=plan.budget if self._way.asks else 0,
            minimum=rate * (0.5 * self.costs.until[exit_].slope() + self._trees.drafting),
            draft_exit=self._way.draft_exit,
            draft_tokens=1,
            judge_exit=exit_,
            tentative=LONGEST,
            keep=min(max(2 * rate * self.costs.rest[exit_].slope(), 0.1), 1.0),
            alternatives=RUNNERS_UP,
        )

    def choose(self, tree: Tree) -> int:
        """Nodes up to the last whose path probability is worth what it costs, up to the exit and beyond it."""
        exit_ = self._way.judge_exit
        if exit_ == NO_EXIT:
            return self._trees.choose(tree)
        self._trees.proposed += len(tree)
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
                sure *= agreement.rate(opinion.margins[0])
        seconds = self.costs.until[exit_].seconds(2) + self._steps * self.costs.rest[exit_].slope()
        gain = sure * (1.0 + (self._steps - 1.0) * agreement.mean)
        return gain > max(self._trees.rate, self._way.rate) * seconds

    def widths(self, path: Sequence[Opinion], judged: bool) -> list[int]:
        """Choices that are right more often than what they cost would bring otherwise.

        What is added to a judged path must still go through the first segments: unless all of it together is worth
        that pass, nothing is.
        """
        agreement, rate, exit_ = self._agreement[path[0].exit], self._trees.rate, self._way.judge_exit
        price = rate * (self.costs.whole if judged else self.costs.until[exit_]).slope()
        widths, expected, reached, gain = [], 0.0, 1.0, 0.0
        for opinion in path:
            chances = [reached * agreement.rate(margin, rank) for rank, margin in enumerate(opinion.margins)]
            worth = [chance for chance in chances if chance > price]
            widths.append(len(worth))
            gain += sum(worth[1:])
            expected += reached  # a token after each node that is verified anyway
            reached = chances[0]
        if judged:
            added = gain + (reached if widths[-1] else 0.0)
            pays = added >= rate * self._lower[exit_].seconds(sum(widths))
            self._expected = expected + (added if pays else 0.0)
            return widths if pays else [0] * len(path)
        return widths

    def observe(self, round_: Round) -> None:
        self._learn_agreement(round_)
        if round_.policy.look_exit != NO_EXIT:
            return  # what looking takes says nothing about any way
        self._trees.observe_drafting(round_.seconds_draft)
        way = self._way
        if way.judge_exit == NO_EXIT:
            self._expected = 1.0 + sum(round_.tree.probabilities)
        tokens = self._forecasts[way.judge_exit].corrected(self._expected, len(round_.tokens))
        for other in self._judged:
            other.fade()
        way.count(tokens, round_.seconds_draft + round_.seconds_verify, round_.layer_passes)
        if way.judge_exit == NO_EXIT:
            drafting = round_.seconds_draft if round_.policy.budget else 0.0
            self._trees.observe(len(round_.tree), len(round_.accepted), round_.seconds_verify, drafting)
            return
        self._refresh_judge(round_)
        steps = sum(opinion.exit == way.judge_exit for opinion in round_.opinions) / round_.judgements
        self._steps += 0.1 * (steps - self._steps)

    def _refresh_judge(self, round_: Round) -> None:
        """What the round took beside its last forward, and beside what plain rounds take beside theirs, was the
        judge's: picking tokens from its logits, too."""
        exit_ = round_.policy.judge_exit
        judged = sum(opinion.exit == exit_ for opinion in round_.opinions)
        verifying = self.costs.rest[exit_].seconds(round_.verified)
        verifying += self._lower[exit_].seconds(max(round_.verified - judged, 0))
        verifying += self.costs.whole.seconds(1) - self._alone
        self.costs.until[exit_].refresh(2, max(round_.seconds_verify - verifying, 0.0) / round_.judgements)

    def _next_way(self) -> tuple[Way, int]:
        """The way to go now, and an exit to look at on the way (or NO_EXIT)."""
        plain = self._plain
        if plain.again <= self._round:
            plain.rest(self._round)  # it begins anew, too: what drafters learn in the meantime is worth something
        fresh: list[Way] = []
        for way in self._judged:
            if way.again > self._round or plain.seconds == 0.0 or not (way.looks or way.trial):
                continue
            if fresh and way.judge_exit != fresh[0].judge_exit:
                break
            if not self._promising(way):
                way.rest(self._round)
            elif way.looks:
                way.looks -= 1
                return plain, way.judge_exit
            else:
                fresh.append(way)
        if fresh:  # in turn, since text is easier in some places than in others
            return plain if plain.trial else max(fresh, key=lambda way: way.trial), NO_EXIT
        tried = [way for way in self._judged if way.again <= self._round and not way.trial and not plain.trial]
        best = max(way.rate for way in [plain, *tried])
        least = max((1.0 - _LEVEL) * best, plain.rate)
        good = [way for way in [plain, *tried] if way.hopeful_rate >= least]
        return min(good, key=lambda way: way.passes_per_token), NO_EXIT

    def _promising(self, way: Way) -> bool:
        """Would an exit that agrees as often as this one (or, while it was not looked at, the next later one) pay?

        n judgements one after the other give n - 1 tokens to verify, right with probability a, a^2, ..., and the whole
        model adds one of its own. Where the path ends a runner-up goes on with probability m, and the last judgement's
        own token with a, for a pass of both through the first segments. The best n is taken, with or without those.
        """
        exit_ = way.judge_exit
        agreement = self._agreement[exit_]
        if not way.looked and exit_ + 1 < len(self._agreement):
            agreement = self._agreement[exit_ + 1]
        until, whole, rest = self.costs.until[exit_], self.costs.whole, self.costs.rest[exit_]
        width, m = agreement.runners_up(self._trees.rate * whole.slope())
        a, tokens, seconds, best = agreement.optimistic(), 0.0, 0.0, 0.0
        for count in range(1, LONGEST + 1):
            tokens += a ** (count - 1)
            seconds += until.seconds(1)
            best = max(best, tokens / (seconds + rest.seconds(count)))
            added = 1 + count * width
            beside = self._lower[exit_].seconds(added) + rest.seconds(count + added)
            best = max(best, ((1.0 + m) * tokens + a**count) / (seconds + beside))
        tried = [(1.0 - _LEVEL) * other.rate for other in self._judged if not other.trial and other.judge_exit > exit_]
        return best > max([self._plain.rate, *tried])

    def _learn_agreement(self, round_: Round) -> None:
        """The model's own token is known after every node of the accepted path."""
        own = dict(zip([TIP, *round_.accepted], round_.tokens, strict=True))
        for opinion in round_.opinions:
            if opinion.node in own:
                tokens = [choice.token for choice in opinion.choices]
                self._agreement[opinion.exit].learn(opinion.margins, tokens, own[opinion.node])
