"""Drafter `pools`, a baseline: Hierarchy Drafting (arXiv 2502.05609), fixed-length continuations in strict level order.

The context's pool keeps, for each key of 3, 2 and 1 tokens, the 7 latest different continuations of 4 tokens. From the
model and corpus databases the continuations are read off by following the most frequent next token. The tree is filled
level by level, longer keys first, until the budget is used up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foredraft.databases.database import Database
from foredraft.databases.entry import Level
from foredraft.databases.hashing import LONGEST, ORDERS, order_hashes, words
from foredraft.drafters.blend.mixture import lengthened
from foredraft.drafters.levels.choice import chosen_levels
from foredraft.drafters.levels.corpus import CorpusLevel
from foredraft.loop.tree import TIP, Tree
from foredraft.sampling.logits import Row

KEYS = (3, 2, 1)
LENGTH = 4
PER_KEY = 7
_GUESS = 0.5
"""The method has no estimate of its own."""


class Pools:
    """Continuation pools; ``levels`` is an ordered subset of context, model, corpus."""

    name = "pools"
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
        files = {"model": model, "corpus": corpus}
        self._files: list[Level | None] = [
            CorpusLevel(file) if (file := files.get(name)) is not None else None for name in self.level_names
        ]
        self._text: list[int] = []
        self._pool: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
        self._pooled = 0

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a new text."""
        self._text, self._pool, self._pooled = [], {}, 1
        self.commit(prompt, None)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """The continuations of the longest key of the first level, then of shorter keys, then of the next level."""
        tree, children = Tree(), dict[tuple[int, int], int]()
        tail = self._known(context[-LONGEST:])
        for level, file in enumerate(self._files):
            for key in KEYS:
                if key > len(tail):
                    continue
                found = self._own(tail[-key:]) if file is None else self._stored(file, key, tail)
                for continuation in found:
                    parent, probability = TIP, 1.0
                    for token in continuation:
                        probability *= _GUESS
                        node = children.get((parent, token))
                        if node is None:
                            if len(tree) >= budget:
                                return tree
                            if probability < minimum:
                                break
                            node = children[parent, token] = tree.add(token, parent, probability, level)
                        parent = node
        return tree

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        """Pool the continuations that are complete now."""
        self._text.extend(self._known(tokens))
        text = self._text
        complete = max(self._pooled, len(text) - LENGTH + 1)
        for start in range(self._pooled, complete):
            continuation = tuple(text[start : start + LENGTH])
            for key in KEYS:
                if key <= start:
                    pool = self._pool.setdefault(tuple(text[start - key : start]), {})
                    pool.pop(continuation, None)
                    pool[continuation] = None
                    if len(pool) > PER_KEY:
                        del pool[next(iter(pool))]
        self._pooled = complete

    def rewind(self, length: int) -> None:
        """Cut the text back; the pool is made anew."""
        if length < len(self._text):
            self.begin(self._text[:length])

    def finish(self) -> None:
        """Nothing is kept."""

    def _known(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(token if 0 <= token < self._vocab_size else 0 for token in map(int, tokens))

    def _own(self, key: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        return reversed(self._pool.get(key, {}))

    def _stored(self, file: Level, key: int, recent: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """A database's next tokens after the last ``key`` tokens, each followed up greedily."""
        entry = file.lookup(ORDERS.index(key), order_hashes(recent, self._words)[ORDERS.index(key)])
        for first in entry.tokens[:PER_KEY] if entry is not None else ():
            path, tail = [first], lengthened(recent, first)
            while len(path) < LENGTH:
                hashes = order_hashes(tail, self._words)[: min(file.orders, ORDERS.index(KEYS[0]) + 1)]
                known = (file.lookup(order, hashes[order]) for order in reversed(range(len(hashes))))
                following = next((e.tokens[0] for e in known if e is not None), None)
                if following is None:
                    break
                path.append(following)
                tail = lengthened(tail, following)
            yield tuple(path)
