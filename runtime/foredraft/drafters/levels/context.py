"""Level `context`: n-grams of this prompt and this output. In memory, private to one sequence."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.drafters.levels.ngram_table import NgramTable


class ContextLevel:
    """The committed text of one sequence, indexed when it is asked.

    Among equal counts the latest continuation is first.
    """

    orders = NgramTable.orders

    def __init__(self, tables: tuple[memoryview[int], ...]) -> None:
        self._ngrams = NgramTable(tables)
        self.lookup = self._ngrams.lookup
        self.text: list[int] = []
        self._indexed = 0

    def begin(self, prompt: Sequence[int]) -> None:
        """Forget the sequence before and index ``prompt``."""
        self._ngrams.clear()
        self.text = list(prompt)
        self._indexed = 0
        self.index()

    def append(self, tokens: Sequence[int]) -> None:
        """Take what was committed."""
        self.text.extend(tokens)

    def index(self) -> None:
        """Index what was taken since the last time; to be done before a lookup, and not at all if there is none."""
        self._ngrams.extend(self.text, self._indexed)
        self._indexed = len(self.text)

    def rewind(self, length: int) -> None:
        """Cut the text back. The index is made anew: it takes a few microseconds a token, and is right."""
        if length < len(self.text):
            self.begin(self.text[:length])
