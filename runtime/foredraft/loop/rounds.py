"""What happened in one round of the loop: all that whoever observes it may want. Values only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from foredraft.loop.chain import Forward
from foredraft.loop.tree import Tree
from foredraft.sampling.logits import Row
from foredraft.scheduling.policy import Policy


class Choice(NamedTuple):
    """A token that an exit would pick: the logarithm of the probability that it gives it, and its score in the pick,
    noise included. How far scores are apart tells better than probabilities whether the whole model, which picks with
    the same noise, will choose the same."""

    token: int
    log_probability: float
    score: float

    @property
    def probability(self) -> float:
        return math.exp(self.log_probability)


@dataclass(frozen=True, slots=True)
class Opinion:
    """What an exit said after a node: its own next token, then its runners-up, if it was asked for any."""

    node: int
    exit: int
    choices: tuple[Choice, ...]

    @property
    def token(self) -> int:
        """The exit's own next token."""
        return self.choices[0].token

    @property
    def confidence(self) -> float:
        """How probable the exit holds its token to be."""
        return self.choices[0].probability

    @property
    def margins(self) -> list[float]:
        """How clearly the first choice won, then how far each runner-up was behind it; infinite where that is not
        known."""
        scores = [choice.score for choice in self.choices]
        behind = [scores[0] - score for score in scores[1:]]
        return [behind[0] if behind else math.inf, *behind]


@dataclass(slots=True)
class Round:
    """What one round added to the text: accepted drafts, then the model's own next token. Times are in seconds."""

    policy: Policy = field(default_factory=Policy)
    prompt: bool = False
    """Whether it is the prompt's own forward, which drafts nothing."""
    tokens: list[int] = field(default_factory=list)
    tree: Tree = field(default_factory=Tree)
    """Everything that was drafted."""
    accepted: list[int] = field(default_factory=list)
    """The tree's accepted nodes, along the path."""
    opinions: list[Opinion] = field(default_factory=list)
    """What exits said on the way."""
    judgements: int = 0
    """How often the judging exit was asked."""
    layer_passes: int = 0
    """How often a layer's weights were read."""
    verified: int = 0
    """Nodes that went through the whole model, the text's last token included."""
    forwards: tuple[Forward, ...] = ()
    """What ran, in this order."""
    rows: Sequence[Row] = field(default=(), repr=False, compare=False)
    """The logits that chose each of the tokens; only while the round is being observed, before the next one begins."""
    seconds_draft: float = 0.0
    """Time in the drafter, drafting."""
    seconds_verify: float = 0.0
    """All other time: the engine, picking tokens, and the drafter's learning."""
    seconds_learn: float = 0.0
    """Of that, the drafter's."""

    @property
    def runners_up(self) -> int:
        """Next choices that exits were asked for."""
        return sum(len(opinion.choices) - 1 for opinion in self.opinions)
