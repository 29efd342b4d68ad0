"""One round's drafts: a tree in the arena's window, and the tentative path through it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.engines.protocol import WINDOW, Int32
from foredraft.loop.arena import Arena
from foredraft.loop.tree import TIP, Tree


class Draft:
    """The round's tree; node i lies in slot ``root + 1 + i``, and the root (``TIP``) is the text's last token.

    Drafting goes on under ``tip``; ``context`` is the text up to and including it.
    """

    def __init__(self, arena: Arena, text: Sequence[int]) -> None:
        self.tree = Tree()
        self.tip = TIP
        self.context = list(text)
        self._arena = arena
        self._children: dict[tuple[int, int], int] = {}
        self._length = len(text)
        self._root = int(arena.extend([text[-1]], [arena.used - 1])[0])

    @property
    def depth(self) -> int:
        """Nodes from the root to the tip, the root not counted."""
        return len(self.context) - self._length

    @property
    def room(self) -> int:
        """Nodes that the window still holds."""
        return WINDOW - 1 - len(self.tree)  # beside the root

    def add(self, drafted: Tree, under: int | None = None) -> list[int]:
        """Hang a drafted tree under the tip, or another node; returns the new nodes.

        Its probabilities are given that the text gets to that node.
        """
        first, tree = len(self.tree), self.tree
        top = self.tip if under is None else under
        reached = 1.0 if top == TIP else tree.probabilities[top]
        for token, parent, probability, level in zip(
            drafted.tokens, drafted.parents, drafted.probabilities, drafted.levels, strict=True
        ):
            above = top if parent == TIP else first + parent
            self._children[above, token] = tree.add(token, above, reached * probability, level)
        self._arena.extend(drafted.tokens, [self._root + 1 + parent for parent in tree.parents[first:]])
        return list(range(first, len(tree)))

    def child(self, node: int, token: int) -> int | None:
        return self._children.get((node, token))

    def step(self, node: int) -> None:
        """The tip moves down to one of its children."""
        self.tip = node
        self.context.append(self.tree.tokens[node])

    def back(self, node: int) -> None:
        """The tip moves up to an ancestor."""
        while self.tip != node:
            self.tip = self.tree.parents[self.tip]
            self.context.pop()

    def slots(self, nodes: Sequence[int]) -> Int32:
        """The nodes' slots, in the order given."""
        return np.array(nodes, np.int32) + (self._root + 1)
