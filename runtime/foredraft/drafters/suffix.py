"""Drafter `suffix`, a baseline after SuffixDecoding (arXiv 2411.04975): continue the longest match by its frequencies.

Each level's longest match of the text's end roots a trie of what followed; the trie is grown best first with the plain
frequencies as probabilities, and the level whose tree promises the most tokens is taken. Matches reach 8 tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush

from foredraft.databases.database import Database
from foredraft.databases.entry import Level
from foredraft.databases.hashing import LONGEST, ORDERS, order_hashes, words
from foredraft.drafters.blend.mixture import lengthened
from foredraft.drafters.levels.choice import chosen_levels
from foredraft.drafters.levels.context import ContextLevel
from foredraft.drafters.levels.corpus import CorpusLevel
from foredraft.loop.tree import TIP, Tree
from foredraft.sampling.logits import Row

_CERTAIN = 0.98


class Suffix:
    """Longest-match tries; ``levels`` is an ordered subset of context, model, corpus."""

    name = "suffix"
    wants_logits = False

    def __init__(
        self,
        vocab_size: int,
        levels: str | Sequence[str] | None = None,
        model: Database | None = None,
        corpus: Database | None = None,
    ) -> None:
        """RequestError for a level that is unknown or lacks its database."""
        self.level_names = chosen_levels(levels, model, corpus, ("context", "model", "corpus"))
        self._vocab_size, self._words = vocab_size, words(vocab_size)
        self._context = ContextLevel(self._words)
        files = {"model": model, "corpus": corpus}
        self._levels: list[Level] = [
            CorpusLevel(file) if (file := files.get(name)) is not None else self._context for name in self.level_names
        ]

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a new text."""
        self._context.begin(self._known(prompt))

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """The tree of the level that promises the most tokens."""
        self._context.index()
        recent = tuple(self._known(context[-LONGEST:]))
        trees = [self._grown(level, index, recent, budget, minimum) for index, level in enumerate(self._levels)]
        return max(trees, key=lambda tree: sum(tree.probabilities))

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """The text goes on."""
        self._context.append(self._known(tokens))

    def rewind(self, length: int) -> None:
        """The text is cut back."""
        self._context.rewind(length)

    def finish(self) -> None:
        """Nothing is kept."""

    def _known(self, tokens: Sequence[int]) -> list[int]:
        return [token if 0 <= token < self._vocab_size else 0 for token in map(int, tokens)]

    def _grown(self, level: Level, index: int, recent: tuple[int, ...], budget: int, minimum: float) -> Tree:
        """One level's trie below the longest match: a node's context must hold the match and the path below it."""
        tree = Tree()
        hashes = order_hashes(recent, self._words)
        matched = next((o for o in reversed(range(min(level.orders, len(hashes)))) if level.lookup(o, hashes[o])), None)
        if matched is None:
            return tree
        # (-path probability, serial, token, parent, context of the parent, how long a match that context must be)
        heap: list[tuple[float, int, int, int, tuple[int, ...], int]] = []
        parent, path, length, serial = TIP, 1.0, ORDERS[matched], 0
        while len(tree) < budget:
            order = min(bisect_right(ORDERS, length), level.orders) - 1
            entry = level.lookup(order, order_hashes(recent, self._words)[order])
            if entry is not None:
                for token, count in zip(entry.tokens, entry.counts, strict=True):
                    serial += 1
                    share = min(_CERTAIN, count / entry.total)
                    heappush(heap, (-path * share, serial, token, parent, recent, length))
            if not heap:
                break
            negative, _, token, above, context, length = heappop(heap)
            if -negative < minimum:
                break
            parent, path = tree.add(token, above, -negative, index), -negative
            recent = lengthened(context, token)
            length = min(length + 1, len(recent))
        return tree
