"""Wraps a drafter and records what the recycled table is made of: each token's likely next tokens."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.drafters.levels.recycled import likeliest
from foredraft.drafters.protocol import Drafter
from foredraft.loop.tree import Tree
from foredraft.sampling.logits import Row


class Recorder:
    """Drafts as ``inner`` does; ``rows`` are {token: the 8 likeliest next tokens in the latest logits after it}."""

    wants_logits = True

    def __init__(self, inner: Drafter) -> None:
        self._inner = inner
        self.name, self.level_names = inner.name, inner.level_names
        self.rows: dict[int, list[int]] = {}
        self._last: int | None = None

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a new text."""
        self._last = int(prompt[-1]) if len(prompt) else None
        self._inner.begin(prompt)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """The inner drafter's tree."""
        return self._inner.propose(context, budget, minimum)

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """Record the rows of ``logits``, each under the token before."""
        for index, token in enumerate(map(int, tokens)):
            if logits is not None and self._last is not None:
                self.rows[self._last] = likeliest(logits[index])
            self._last = token
        self._inner.commit(tokens, logits if self._inner.wants_logits else None)

    def rewind(self, length: int) -> None:
        """The text is cut back; what was recorded stays. The token before the next is not known, so not recorded."""
        self._last = None
        self._inner.rewind(length)

    def finish(self) -> None:
        """The inner drafter may keep what it wants."""
        self._inner.finish()
