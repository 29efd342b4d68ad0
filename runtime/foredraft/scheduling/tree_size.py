"""How much to draft: the tree size that gives the most expected tokens per second, plain decoding among the choices.

A node is worth its place if its path probability exceeds the running rate times its marginal cost. What keeps
speculation from ever costing much is a credit, a token bucket in seconds: a drafted round pays in what it saved against
plain decoding, or takes out what it lost; every round pays in a small allowance; and nothing is drafted while it is
empty. So the loss is bounded by the bucket's size and the allowance, whatever the text and however wrong the drafter.
"""

from __future__ import annotations

from foredraft.loop.tree import Tree
from foredraft.scheduling.forward_costs import CostCurve
from foredraft.scheduling.policy import Policy

MOST = 16
"""Nodes of a tree where nodes cost something."""
MOST_FREE = 64
"""Nodes of a tree where they are nearly free."""
NEARLY_FREE = 0.004
"""A node is nearly free if its price, the tokens that plain decoding writes in its time, is below this."""
ALLOWANCE = 0.018
"""Share of all time that may be lost in the long run."""
OPENING_CREDIT, MOST_CREDIT = 2.0, 5.0
"""Credit at the start, and at most, in plain forwards."""
RESUME_CREDIT = 0.3
"""Plain forwards' worth of credit that must have come together before drafting is tried again: a small tree's price."""
STAKE = 0.15
"""Share of the credit that one round's tree may cost."""
_LEAST_BUDGET, _FIRST_BUDGET = 4.0, 8.0
_MEMORY = 0.99
"""Weight of a round in the running rate after the next round."""


class TreeScheduler:
    """Decides the size of each round's tree. Deterministic: the same observations give the same decisions."""

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self._tokens, self._seconds = 1.0, curve.seconds(1)
        self._credit = OPENING_CREDIT * curve.seconds(1)
        self._suspended = False
        self._budget = _FIRST_BUDGET
        self._drafted, self._drafting = 0.0, 0.0
        self.proposed = 0
        """Nodes that the drafter proposed in the round that was planned last."""

    @property
    def rate(self) -> float:
        """Tokens per second of the latest rounds."""
        return self._tokens / self._seconds

    @property
    def credit(self) -> float:
        """Seconds that drafting may lose before it is suspended."""
        return self._credit

    def plan(self) -> Policy:
        """What to draft in the next round; a budget of 0 is plain decoding, and the drafter need not be asked."""
        self.proposed = 0
        if self._suspended:
            return Policy(budget=0, minimum=1.0)
        budget = min(int(self._budget), self._most())
        # Less than the least that a node can cost on average, since the last one may be cheaper than the average:
        # `choose` knows the tree and decides for good, this only spares the drafter what is hopeless.
        minimum = 0.75 * min(map(self._price, range(1, budget + 1)))
        return Policy(budget=budget, minimum=minimum + self.rate * self.drafting)

    @property
    def drafting(self) -> float:
        """Seconds that the drafter takes for a node."""
        return self._drafting / self._drafted if self._drafted else 0.0

    def observe_drafting(self, seconds: float) -> None:
        """What drafting took in the round that was planned last."""
        if self.proposed:
            self._drafted = self._drafted * _MEMORY + self.proposed
            self._drafting = self._drafting * _MEMORY + seconds

    def choose(self, tree: Tree) -> int:
        """How many of the tree's nodes, from the first, to verify; 0 is plain decoding."""
        self.proposed += len(tree)
        rate, plain = self.rate, self.curve.seconds(1)
        best, best_gain, gain = 0, 0.0, 0.0
        affordable = max(STAKE * self._credit, RESUME_CREDIT * plain)
        for count, probability in enumerate(tree.probabilities, 1):
            gain += probability
            extra = self.curve.seconds(count + 1) - plain
            if extra > affordable:
                break
            if gain - rate * extra > best_gain:
                best, best_gain = count, gain - rate * extra
        self._adapt_budget(best, len(tree))
        return best

    def _adapt_budget(self, chosen: int, proposed: int) -> None:
        """Ask for somewhat more than is usually chosen, since each node asked for costs the drafter time."""
        if chosen > 0.75 * proposed and proposed >= int(self._budget):
            self._budget = min(2.0 * self._budget, self._most())
        else:
            self._budget = max(self._budget + 0.15 * (1.25 * chosen + 1.5 - self._budget), _LEAST_BUDGET)

    def _most(self) -> int:
        return MOST_FREE if self._price(MOST_FREE) < NEARLY_FREE else MOST

    def observe(self, nodes: int, accepted: int, seconds_forward: float, seconds_draft: float = 0.0) -> None:
        """A round verified ``nodes`` drafted nodes and accepted ``accepted`` of them (its own token not counted).

        ``seconds_draft`` is what proposing took, also if nothing was kept of it; 0 for a plain round.
        """
        self.curve.refresh(nodes + 1, seconds_forward)
        # The curve's time rather than this forward's own: one hiccup must not pass for an unprofitable draft.
        seconds = self.curve.seconds(nodes + 1) + seconds_draft
        self._tokens = self._tokens * _MEMORY + accepted + 1
        self._seconds = self._seconds * _MEMORY + seconds
        plain = self.curve.seconds(1)
        saved = (accepted + 1) * plain - seconds if nodes or seconds_draft else 0.0
        self._credit = min(self._credit + saved + ALLOWANCE * seconds, MOST_CREDIT * plain)
        self._suspended = self._credit < (RESUME_CREDIT * plain if self._suspended else 0.0)

    def _price(self, nodes: int) -> float:
        """Mean price of a node in a tree of ``nodes`` nodes, in tokens."""
        return self.rate * (self.curve.seconds(nodes + 1) - self.curve.seconds(1)) / nodes
