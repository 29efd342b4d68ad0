"""What happened in one round of the loop. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from foredraft.scheduling.policy import Policy
from foredraft.tree import Tree


@dataclass(frozen=True, slots=True)
class Opinion:
    """What an exit said after a node: its own next token, and how probable it holds that token to be.

    ``others`` are its next choices with their probabilities, best first, if it was asked for any.
    """

    node: int
    exit: int
    token: int
    confidence: float
    others: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Round:
    """What one round added to the text: accepted drafts, then the model's own next token. Times are in seconds."""

    policy: Policy = field(default_factory=Policy)
    tokens: list[int] = field(default_factory=list)
    tree: Tree = field(default_factory=Tree)
    """Everything that was drafted."""
    accepted: list[int] = field(default_factory=list)
    """The tree's accepted nodes, along the path."""
    opinions: list[Opinion] = field(default_factory=list)
    """What exits said on the way."""
    judgements: int = 0
    """How often the judging exit was asked."""
    verified: int = 0
    """Nodes that went through the whole model, the text's last token included."""
    seconds_draft: float = 0.0
    """Time in the drafter."""
    seconds_verify: float = 0.0
    """All other time: the engine, and picking tokens."""

    @property
    def runners_up(self) -> int:
        """Next choices that exits were asked for."""
        return sum(len(opinion.others) for opinion in self.opinions)
