"""N-grams counted in memory, all orders at once, looked up by context hash."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from foredraft.databases.entry import Entry
from foredraft.databases.hashing import LONGEST, ORDERS, order_hashes


class NgramTable:
    """Next tokens of every context of 1, 2, 3, 4, 6 and 8 tokens that was added."""

    orders = len(ORDERS)

    def __init__(self, tables: tuple[memoryview[int], ...], capacity: int | None = None) -> None:
        """``tables`` are the hash words of the vocabulary; with a ``capacity`` each order keeps that many contexts,
        those that were added to least recently go first."""
        self._words = tables
        self._capacity = capacity
        self._tables: list[OrderedDict[int, Entry] | dict[int, Entry]] = []
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._tables = [{} if self._capacity is None else OrderedDict() for _ in ORDERS]

    def lookup(self, index: int, value: int) -> Entry | None:
        """The entry of the context of ``ORDERS[index]`` tokens with hash ``value``."""
        return self._tables[index].get(value)

    def extend(self, text: Sequence[int], start: int) -> None:
        """Count ``text[start:]``, each token as what follows the tokens before it."""
        words, tables = self._words, self._tables
        for position in range(max(start, 1), len(text)):
            token = text[position]
            recent = tuple(text[max(0, position - LONGEST) : position])
            for table, value in zip(tables, order_hashes(recent, words), strict=False):
                entry = table.get(value)
                if entry is None:
                    table[value] = Entry(1, [token], [1])
                else:
                    entry.add(token)
                if self._capacity is not None:
                    self._trim(table, value)

    def _trim(self, table: OrderedDict[int, Entry] | dict[int, Entry], value: int) -> None:
        if isinstance(table, OrderedDict):
            table.move_to_end(value)
            if self._capacity is not None and len(table) > self._capacity:
                table.popitem(last=False)
