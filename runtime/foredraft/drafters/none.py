"""No drafts: plain decoding, one token per forward."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.loop.tree import Tree
from foredraft.sampling.logits import Row


class NoDrafter:
    """Always the empty tree."""

    name = "none"
    level_names: tuple[str, ...] = ()
    wants_logits = False

    def begin(self, prompt: Sequence[int]) -> None:
        """Nothing to learn."""

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """The empty tree."""
        return Tree()

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """Nothing to learn."""

    def rewind(self, length: int) -> None:
        """Nothing to forget."""

    def finish(self) -> None:
        """Nothing is kept."""
