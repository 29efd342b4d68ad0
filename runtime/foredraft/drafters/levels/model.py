"""Level `model`: n-grams that this model wrote before, for other prompts: a mapped file, and what was learned since."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.databases.database import Database
from foredraft.databases.entry import Entry
from foredraft.databases.hashing import ORDERS
from foredraft.drafters.levels.corpus import CorpusLevel
from foredraft.drafters.levels.ngram_table import NgramTable

CAPACITY = 1 << 17
"""Contexts of each order that are learned while running; about 250 bytes each."""


class ModelLevel:
    """A file, if there is one, with the outputs learned in this process on top."""

    orders = len(ORDERS)

    def __init__(self, tables: tuple[memoryview[int], ...], file: Database | None, capacity: int = CAPACITY) -> None:
        self._file = CorpusLevel(file) if file is not None else None
        self._learned = NgramTable(tables, capacity)
        self._any_learned = False

    def lookup(self, index: int, value: int) -> Entry | None:
        """The file's entry and the learned one, added up."""
        stored = self._file.lookup(index, value) if self._file is not None and index < self._file.orders else None
        if not self._any_learned:
            return stored
        learned = self._learned.lookup(index, value)
        if stored is None or learned is None:
            return stored or learned
        return stored.plus(learned)

    def learn(self, output: Sequence[int]) -> None:
        """Count an output; what was added to least recently goes first when the level is full."""
        self._learned.extend(output, 0)
        self._any_learned = True

    def reset(self) -> None:
        """Forget what was learned in this process."""
        self._learned.clear()
        self._any_learned = False
