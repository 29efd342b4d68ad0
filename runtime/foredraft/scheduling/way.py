"""One of the ways in which a round may go, and how it has fared. Knows nothing of what a round does."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from foredraft.scheduling.policy import NO_EXIT

LOOKS = 8
"""Rounds in which an exit is only asked what it would have said."""
TRIAL = 8
"""Rounds that a way is then given to show what it is worth."""
WARMING = 4
"""Rounds before the first of these: nodes come in numbers that the engine has not run yet, which takes longer."""
FIRST_PAUSE, LONGEST_PAUSE = 64, 1024
"""Rounds until a way that does not pay is looked at again: at first, and at most."""
_MEMORY = 0.99
"""Weight of a round in a way's running rate after its next round."""
_FADING = 0.997
"""The same, after any round."""
_SPREAD = 0.3
"""Standard deviation of the rate of a round, relative to its mean."""


@dataclass(slots=True)
class Way:
    """Which exit judges, which drafts, and whether the drafter is asked; with decayed rounds, tokens, seconds and layer
    passes.

    ``looks`` and ``trial`` are the rounds that are left of either; ``again`` is the round that ends its pause.
    """

    judge_exit: int = NO_EXIT
    draft_exit: int = NO_EXIT
    asks: bool = True
    looks: int = field(init=False)
    trial: int = WARMING + TRIAL
    pause: int = FIRST_PAUSE
    again: int = 0
    rounds: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    passes: float = 0.0

    def __post_init__(self) -> None:
        self.looks = self._all_looks

    @property
    def looked(self) -> bool:
        """Whether its exit was looked at since the last pause, or need not be."""
        return self.looks < self._all_looks or not self._all_looks

    @property
    def _all_looks(self) -> int:
        """An exit is looked at for the way in which it is alone."""
        return 0 if self.asks or self.draft_exit != NO_EXIT else LOOKS

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def hopeful_rate(self) -> float:
        """A standard error above the rate: the way may be that much better than it was so far."""
        return self.rate * (1.0 + _SPREAD / math.sqrt(self.rounds)) if self.rounds else 0.0

    @property
    def passes_per_token(self) -> float:
        return self.passes / self.tokens if self.tokens else math.inf

    def count(self, tokens: float, seconds: float, passes: int) -> None:
        """Add a round; those before the first trial that only warm up do not count."""
        self.trial = max(self.trial - 1, 0)
        if self.trial >= TRIAL:
            return
        self.rounds = self.rounds * _MEMORY + 1.0
        self.tokens = self.tokens * _MEMORY + tokens
        self.seconds = self.seconds * _MEMORY + seconds
        self.passes = self.passes * _MEMORY + passes

    def fade(self) -> None:
        """Let what is known count a little less: text changes."""
        self.rounds *= _FADING
        self.tokens *= _FADING
        self.seconds *= _FADING
        self.passes *= _FADING

    def rest(self, now: int) -> None:
        """Pause, and begin anew afterwards."""
        self.again, self.pause = now + self.pause, min(4 * self.pause, LONGEST_PAUSE)
        self.looks, self.trial = self._all_looks, TRIAL
        self.rounds = self.tokens = self.seconds = self.passes = 0.0
