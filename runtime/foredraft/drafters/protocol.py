"""What every drafter is: it proposes a tree under the tip and learns from what was committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foredraft.loop.tree import Tree
from foredraft.sampling.logits import Row


class Drafter(Protocol):
    """Guesses the next tokens of one sequence. A drafter can never change the text, only how fast it is written.

    The context it is given is the whole committed text (prompt and answer), the tip included.
    """

    name: str
    level_names: tuple[str, ...]
    """Names of the levels that ``Tree.levels`` points into."""
    wants_logits: bool
    """True if ``commit`` should be given the logits rows (they may have to be fetched)."""

    def begin(self, prompt: Sequence[int]) -> None:
        """Forget the previous sequence and start one whose committed text is ``prompt``."""
        ...

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """A tree of at most ``budget`` nodes under ``context[-1]``; empty if there is nothing good to say.

        Nodes come likeliest first, so that a prefix is the tree of a smaller budget; none with a path probability under
        ``minimum`` is worth proposing. The context may go on beyond the committed text (a tentative path).
        """
        ...

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """``tokens`` were appended to the text; the row ``logits[j]`` chose ``tokens[j]`` (None unless wanted)."""
        ...

    def rewind(self, length: int) -> None:
        """The text was cut back to its first ``length`` tokens: forget everything learned from beyond."""
        ...

    def finish(self) -> None:
        """The sequence is complete: what is worth keeping from it may be kept."""
        ...
