"""What a level knows about a context: which tokens followed it and how often."""

from __future__ import annotations

from typing import Protocol

MAX_ENTRIES = 16
"""Next tokens kept for a context."""


class Entry:
    """``total`` times the context was seen; ``tokens`` (at most 16, distinct) by falling ``counts``."""

    __slots__ = ("counts", "tokens", "total")

    def __init__(self, total: int, tokens: list[int], counts: list[int]) -> None:
        self.total, self.tokens, self.counts = total, tokens, counts

    def __repr__(self) -> str:
        return f"Entry(total={self.total}, tokens={self.tokens}, counts={self.counts})"

    def add(self, token: int) -> None:
        """Count ``token`` once more; among equal counts the latest comes first."""
        tokens, counts = self.tokens, self.counts
        self.total += 1
        if token in tokens:
            place = tokens.index(token)
            count = counts[place] + 1
        else:
            count = 1
            if len(tokens) < MAX_ENTRIES:
                tokens.append(token)
                counts.append(1)
            place = len(tokens) - 1
        while place and counts[place - 1] <= count:
            tokens[place], counts[place] = tokens[place - 1], counts[place - 1]
            place -= 1
        tokens[place], counts[place] = token, count

    def plus(self, other: Entry) -> Entry:
        """The sum of both."""
        sums = dict(zip(self.tokens, self.counts, strict=True))
        for token, count in zip(other.tokens, other.counts, strict=True):
            sums[token] = sums.get(token, 0) + count
        best = sorted(sums.items(), key=lambda pair: -pair[1])[:MAX_ENTRIES]
        return Entry(self.total + other.total, [token for token, _ in best], [count for _, count in best])


class Level(Protocol):
    """A level that is looked up by context: context, model, corpus."""

    orders: int
    """How many of ``ORDERS``, from the shortest, it indexes."""

    def lookup(self, index: int, value: int) -> Entry | None:
        """The entry of the context of ``ORDERS[index]`` tokens with hash ``value``; None if unknown."""
        ...
