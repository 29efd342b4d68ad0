"""Drafter `blend`: one best-first tree from all levels of the token hierarchy, with calibrated path probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from foredraft.databases.database import Database
from foredraft.databases.entry import Level
from foredraft.databases.hashing import LONGEST, words
from foredraft.databases.log import LearnLog
from foredraft.drafters.blend.calibration import Calibration
from foredraft.drafters.blend.mixture import Mixture, View, lengthened
from foredraft.drafters.levels.choice import chosen_levels
from foredraft.drafters.levels.context import ContextLevel
from foredraft.drafters.levels.corpus import CorpusLevel
from foredraft.drafters.levels.model import ModelLevel
from foredraft.drafters.levels.recycled import RecycledLevel
from foredraft.loop.tree import TIP, Tree
from foredraft.sampling.logits import Row

PATIENCE = 0.6
"""A node's children are looked up once this share of its own path probability is the best that is left. Below 1 the
order is not strictly best first, but leaves cost no lookup: a quarter less time, and no fewer tokens accepted."""
REACH = 0.04
"""A tree of N nodes seldom takes one whose path probability is below this over N: what lies below is not looked at."""
LEAST = 0.01
"""Path probabilities below this are not believed until they are observed: hopeless paths come true more often."""
_EXPAND = -1


class _Node:
    """A node under construction.

    ``recent`` are its last 8 tokens, itself included, and ``above`` the orders that its parent's context matched;
    ``view`` is what is known about the token after it, once that was looked up; ``path`` its path's estimate.
    """

    __slots__ = ("above", "children", "depth", "index", "parent", "path", "recent", "view")

    def __init__(
        self, recent: tuple[int, ...], above: Sequence[int] | None, path: float, index: int, parent: _Node | None
    ) -> None:
        self.recent, self.above, self.path, self.index, self.parent = recent, above, path, index, parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.view: View | None = None
        self.children: dict[int, _Node] = {}


class Blend:
    """Drafts from the levels named in ``levels``, an ordered subset of context, model, corpus, recycled."""

    name = "blend"

    def __init__(
        self,
        vocab_size: int,
        levels: str | Sequence[str] | None = None,
        model: Database | None = None,
        corpus: Database | None = None,
        learn: bool = False,
        log: LearnLog | None = None,
    ) -> None:
        """``vocab_size`` is the model's. Without ``levels``: all that there is a database for.

        With ``learn`` the outputs of finished sequences join the model level in memory; with a ``log`` they are
        appended to it. Raise RequestError for an unknown level, and for one whose database is missing.
        """
        self.level_names = chosen_levels(levels, model, corpus)
        self._vocab_size = vocab_size
        self._words = words(vocab_size)
        self._context = ContextLevel(self._words)
        self._model = ModelLevel(self._words, model)
        self._recycled = RecycledLevel(model) if "recycled" in self.level_names else None
        self.wants_logits = self._recycled is not None
        tables: dict[str, Level] = {"context": self._context, "model": self._model}
        if corpus is not None:
            tables["corpus"] = CorpusLevel(corpus)
        counted = [name for name in self.level_names if name != "recycled"]
        self._mixture = Mixture(counted, [tables[name] for name in counted], self._recycled, self._words)
        # The mixture numbers the counted levels and then recycled; the user's order may differ.
        self._level_index = [self.level_names.index(name) for name in counted]
        if self._recycled is not None:
            self._level_index.append(self.level_names.index("recycled"))
        self._learn, self._log = learn and "model" in self.level_names, log
        self._prompt_length = 0
        self._root: _Node | None = None
        self._drafted: list[tuple[_Node, float]] = []
        self._tentative: list[_Node] = []
        self._paths = Calibration(LEAST)

    def begin(self, prompt: Sequence[int]) -> None:
        """Finish the sequence before and start one whose committed text is ``prompt``."""
        self.finish()
        self._context.begin(self._known(prompt))
        self._prompt_length = len(prompt)
        self._forget_tree()

    def finish(self) -> None:
        """Learn from the output written so far, if learning is on. ``begin`` does it; call it at the end, too."""
        output = self._context.text[self._prompt_length :]
        self._prompt_length = len(self._context.text)
        if output and self._learn:
            self._model.learn(output)
        if output and self._log is not None:
            self._log.append(output)

    def reset(self) -> None:
        """Forget all that was learned from any sequence: benchmarks call it between runs."""
        self._mixture.reset()
        self._paths = Calibration(LEAST)
        self._model.reset()
        if self._recycled is not None:
            self._recycled.reset()
        self._context.begin([])
        self._prompt_length = 0
        self._forget_tree()

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """A tree of at most ``budget`` nodes, likeliest first, whose path probabilities are at least ``minimum``.

        A prefix of the nodes is the tree of a smaller budget. One plus the sum of the path probabilities is the
        expected number of tokens of the round.
        """
        tree = Tree()
        if budget <= 0:
            return tree
        self._context.index()
        mixture, path_rate = self._mixture, self._paths
        calibrated, level_of, level_index = mixture.calibration, mixture.level_of, self._level_index
        reach = REACH / budget
        root = self._root_of(context)
        # (-estimate of the path, serial number, rank among its siblings or _EXPAND, parent)
        heap: list[tuple[float, int, int, _Node]] = [(-1.0, 0, _EXPAND, root)]
        serial = 0
        while heap:
            negative, _, rank, parent = heappop(heap)
            view = parent.view
            if view is None:
                view = parent.view = mixture.view(parent.recent, parent.above, reach / parent.path)
            if rank >= 0:
                path = path_rate(-negative)
                if path < minimum:
                    break
                token = view.ranked[rank][0]
                index = tree.add(token, parent.index, path, level_index[level_of(view, token)])
                node = _Node(lengthened(parent.recent, token), view.tops, -negative, index, parent)
                parent.children[token] = node
                self._drafted.append((node, -negative))
                if index + 1 == budget:
                    break
                serial += 1
                heappush(heap, (negative * PATIENCE, serial, _EXPAND, node))
            rank += 1
            if rank < len(view.ranked):
                serial += 1
                heappush(heap, (-parent.path * calibrated(1.0 - view.ranked[rank][1]), serial, rank, parent))
        return tree

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """Learn from ``tokens``; ``logits``, a row for each, may be None even if wanted.

        Where nothing was drafted only the text is: what the levels would have said is not looked up for it.
        """
        node = self._tip()
        mixture, recycled = self._mixture, self._recycled
        committed = self._known(tokens)
        path, drafted = [node], node.view is not None or bool(self._tentative)
        for index, token in enumerate(committed):
            if drafted:
                if node.view is None:
                    node.view = mixture.view(node.recent, node.above)
                mixture.learn(node.view, token)
                if recycled is not None and logits is not None and node.recent:
                    recycled.learn(node.recent[-1], logits[index])
            child = node.children.get(token)
            node = child or _Node(lengthened(node.recent, token), node.view.tops if node.view else None, 1.0, TIP, node)
            path.append(node)
        self._learn_paths(path)
        self._context.append(committed)
        self._forget_tree()

    def _learn_paths(self, path: list[_Node]) -> None:
        """Learn what became of every drafted node; ``path`` are the nodes that were committed, the tip first.

        Whether a node below the last committed one, or below a tentative path that was not committed, would have been
        accepted is not known.
        """
        learn = self._paths.learn
        undecided = {id(path[-1])}.union(id(root) for root in self._tentative if root not in path)
        for node, estimate in self._drafted:
            if id(node.parent) in undecided:
                undecided.add(id(node))
            else:
                learn(estimate, node.depth < len(path) and path[node.depth] is node)

    def rewind(self, length: int) -> None:
        """Cut the committed text back to ``length`` tokens. Confidences keep what they learned."""
        self._context.rewind(length)
        self._prompt_length = min(self._prompt_length, length)
        self._forget_tree()

    def _forget_tree(self) -> None:
        self._root = None
        self._drafted, self._tentative = [], []

    def _tip(self) -> _Node:
        """The node of the last committed token, looked up afresh after each commit."""
        if self._root is None:
            recent = tuple(self._context.text[-LONGEST:])
            self._root = _Node(recent, None, 1.0, TIP, None)
        return self._root

    def _root_of(self, context: Sequence[int]) -> _Node:
        """The node of the context's last token, which may lie beyond the committed text, on a tentative path."""
        node = self._tip()
        for token in self._known(context[len(self._context.text) :]):
            following = node.children.get(token)
            if following is None:
                following = node.children[token] = _Node(lengthened(node.recent, token), None, 1.0, TIP, node)
            node = following
        if node is not self._root:
            # What hangs here is a tree of its own: estimates and indices count from this node.
            node.path, node.index = 1.0, TIP
            self._tentative.append(node)
        return node

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Token ids as plain integers; ids outside the vocabulary become 0, which nothing is predicted from."""
        size = self._vocab_size
        return [token if 0 <= token < size else 0 for token in map(int, tokens)]
