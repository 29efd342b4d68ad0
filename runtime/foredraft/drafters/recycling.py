"""Drafter `recycling`, a baseline: Token Recycling (arXiv 2408.08696), a tree over the model's own latest logits."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from foredraft.databases.database import Database
from foredraft.drafters.levels.recycled import RecycledLevel
from foredraft.loop.tree import TIP, Tree
from foredraft.sampling.logits import Row

RANK_CHANCES = (0.40, 0.12, 0.07, 0.05, 0.03, 0.025, 0.02, 0.015)
"""How often the token of each rank comes next; fixed, which makes the tree the method's static tree."""


class Recycling:
    """The adjacency matrix of token to likely next tokens, grown best first by the fixed chances of the ranks."""

    name = "recycling"
    level_names = ("recycled",)
    wants_logits = True

    def __init__(self, model: Database | None = None) -> None:
        """``model``, if it has a recycled table, is where the matrix starts from."""
        self._recycled = RecycledLevel(model)
        self._text: list[int] = []

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a new text; the matrix stays."""
        self._text = list(map(int, prompt))

    def reset(self) -> None:
        """Forget the matrix."""
        self._recycled.reset()

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """The likeliest nodes by rank."""
        tree = Tree()
        heap: list[tuple[float, int, int, int]] = []
        token, parent, path, serial = (int(context[-1]) if len(context) else -1), TIP, 1.0, 0
        while len(tree) < budget:
            for following, chance in zip(self._recycled.lookup(token), RANK_CHANCES, strict=False):
                serial += 1
                heappush(heap, (-path * chance, serial, following, parent))
            if not heap:
                break
            negative, _, token, above = heappop(heap)
            path = -negative
            if path < minimum:
                break
            parent = tree.add(token, above, path)
        return tree

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """The row ``logits[j]``, which chose ``tokens[j]``, tell what may follow the token before it."""
        for index, token in enumerate(map(int, tokens)):
            if logits is not None and self._text:
                self._recycled.learn(self._text[-1], logits[index])
            self._text.append(token)

    def rewind(self, length: int) -> None:
        """The text is cut back; the matrix is about tokens, not about this text, and stays."""
        del self._text[length:]

    def finish(self) -> None:
        """Nothing is kept."""
