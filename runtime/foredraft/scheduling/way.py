"""One of the ways in which a round may go, and how it has fared. Knows nothing of what a round does."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.scheduling.policy import NO_EXIT

LOOKS = 8
"""Rounds in which an exit is only asked what it would have said."""
TRIAL = 16
"""Rounds that a way is then given to show what it is worth."""
FIRST_PAUSE, LONGEST_PAUSE = 64, 1024
"""Rounds until a way that does not pay is looked at again: at first, and at most."""
_MEMORY = 0.99
"""Weight of a round in a way's running rate after its next round."""


@dataclass(slots=True)
class Way:
    """Which exit judges, which drafts, and whether the drafter is asked; with decayed tokens and seconds.

    ``looks`` and ``trial`` are the rounds that are left of either; ``again`` is the round that ends its pause.
    """

    judge_exit: int = NO_EXIT
    draft_exit: int = NO_EXIT
    asks: bool = True
    looks: int = 0
    trial: int = TRIAL
    pause: int = FIRST_PAUSE
    again: int = 0
    tokens: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def count(self, tokens: int, seconds: float) -> None:
        """Add a round."""
        self.tokens = self.tokens * _MEMORY + tokens
        self.seconds = self.seconds * _MEMORY + seconds

    def rest(self, now: int) -> None:
        """Pause, and begin anew afterwards."""
        self.again, self.pause = now + self.pause, min(4 * self.pause, LONGEST_PAUSE)
        self.looks, self.trial, self.tokens, self.seconds = LOOKS, TRIAL, 0.0, 0.0
