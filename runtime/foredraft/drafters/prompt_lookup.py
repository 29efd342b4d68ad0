"""Prompt lookup decoding (Saxena 2023): copy what followed the last few tokens where they occurred before.

A baseline: one chain, no probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.drafters.ngram_index import NgramIndex
from foredraft.loop.tree import Tree
from foredraft.sampling.logits import Row

_GUESS = 0.5
"""The method has no estimate of its own; about half of copied tokens are accepted one after the other."""


class PromptLookup:
    """The ``length`` tokens after the most recent earlier occurrence of the last ``longest``, or fewer,
    tokens.
    """

    name = "prompt-lookup"
    level_names = ("prompt-lookup",)
    wants_logits = False

    def __init__(self, longest: int = 3, length: int = 10) -> None:
        self._length = length
        self._index = NgramIndex(range(1, longest + 1))

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a new text."""
        self._index = NgramIndex(self._index.orders)
        self._index.extend(prompt)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """A chain, or the empty tree if not even the last token occurred before."""
        for order in self._index.orders:
            if order > len(context):
                continue
            place = self._index.latest(tuple(context[-order:]))
            if place is not None:
                copied = self._index.text[place : place + min(self._length, max(budget, 0))]
                return Tree.chain(copied, _GUESS)
        return Tree()

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """The text goes on."""
        self._index.extend(tokens)

    def rewind(self, length: int) -> None:
        """The text is cut back."""
        self._index.truncate(length)

    def finish(self) -> None:
        """Nothing is kept."""
