"""A drafted tree of tokens under the tip of the text. Knows nothing of models, slots or where drafts come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

TIP = -1
"""Parent of a node that hangs directly under the last committed token."""


@dataclass(slots=True)
class Tree:
    """Drafted tokens; parents come before children, and siblings differ in their token.

    ``tokens[i]`` is node i's token id, ``parents[i]`` its parent's index or ``TIP``, ``probabilities[i]`` the
    drafter's estimate that the whole path down to node i is accepted (never larger than the parent's), and
    ``levels[i]`` an index into the drafter's ``level_names``, saying who proposed it.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: int, parent: int, probability: float = 1.0, level: int = 0) -> int:
        """Append a node and return its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.probabilities.append(probability)
        self.levels.append(level)
        return len(self.tokens) - 1

    @classmethod
    def chain(cls, tokens: Sequence[int], probability: float = 0.5, level: int = 0) -> Tree:
        """One path; ``probability`` is each token's own, given the ones before it."""
        tree, path = cls(), 1.0
        for index, token in enumerate(tokens):
            path *= probability
            tree.add(int(token), index - 1, path, level)
        return tree

    def depths(self) -> list[int]:
        """Depth of each node; a child of the tip has depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == TIP else depths[parent] + 1)
        return depths

    def trimmed(self, nodes: int, depth: int) -> Tree:
        """The same tree without nodes beyond ``depth``, and with at most its first ``nodes`` nodes."""
        if len(self) <= nodes and max(self.depths(), default=0) <= depth:
            return self
        kept, place = Tree(), {TIP: TIP}
        for index, node_depth in enumerate(self.depths()):
            if node_depth <= depth and self.parents[index] in place and len(kept) < nodes:
                place[index] = kept.add(
                    self.tokens[index],
                    place[self.parents[index]],
                    self.probabilities[index],
                    self.levels[index],
                )
        return kept

    def likeliest_path(self) -> Tree:
        """Only the path that follows the likeliest child from the tip down."""
        path, here = Tree(), TIP
        while True:
            children = [node for node, parent in enumerate(self.parents) if parent == here]
            if not children:
                return path
            here = max(children, key=lambda node: self.probabilities[node])
            path.add(self.tokens[here], len(path) - 1, self.probabilities[here], self.levels[here])

    def likeliest_first(self) -> Tree:
        """The same tree depth first, likelier children first: an accepted path then lies closed up more often."""
        children: dict[int, list[int]] = {}
        for index, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(index)
        laid, place = Tree(), {TIP: TIP}
        stack = sorted(children.get(TIP, []), key=lambda i: self.probabilities[i])
        while stack:
            index = stack.pop()
            place[index] = laid.add(
                self.tokens[index], place[self.parents[index]], self.probabilities[index], self.levels[index]
            )
            stack.extend(sorted(children.get(index, []), key=lambda i: self.probabilities[i]))
        return laid
