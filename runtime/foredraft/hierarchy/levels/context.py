"""Level `context`: n-grams of this prompt and this output. In memory, private to one sequence."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.hierarchy.ngrams import NgramTable


class ContextLevel:
    """The committed text of one sequence, indexed as it grows. Among equal counts the latest continuation is first."""

    orders = NgramTable.orders

    def __init__(self, tables: tuple[memoryview[int], ...]) -> None:
        self._ngrams = NgramTable(tables)
        self.lookup = self._ngrams.lookup
        self.text: list[int] = []

    def begin(self, prompt: Sequence[int]) -> None:
        """Forget the sequence before and index ``prompt``."""
        self._ngrams.clear()
        self.text = list(prompt)
        self._ngrams.extend(self.text, 0)

    def append(self, tokens: Sequence[int]) -> None:
        """Index what was committed."""
        start = len(self.text)
        self.text.extend(tokens)
        self._ngrams.extend(self.text, start)

    def rewind(self, length: int) -> None:
        """Cut the text back. The index is made anew: it takes a few microseconds a token, and is right."""
        if length < len(self.text):
            self.begin(self.text[:length])
