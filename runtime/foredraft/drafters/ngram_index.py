"""Where each n-gram of a growing text last occurred. Knows nothing of trees or probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_NONE = -1


class NgramIndex:
    """Places in one text at which the last ``order`` tokens were a given n-gram, for each of ``orders``.

    A place is the position of the token that follows the n-gram. Only the latest place is kept under the
    n-gram's hash; each place leads to the one before it. So a token costs one dict entry per order, and
    cutting the text back restores exactly the index of the shorter text. (Two n-grams with the same 64-bit
    hash would share their places: that could only make a draft worse.)
    """

    def __init__(self, orders: Sequence[int]) -> None:
        self.orders = tuple(sorted(orders, reverse=True))
        """Longest first."""
        self.text: list[int] = []
        self._latest: dict[int, dict[int, int]] = {order: {} for order in self.orders}
        self._before: dict[int, list[int]] = {order: [] for order in self.orders}

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the text."""
        text, longest = self.text, self.orders[0]
        tables = [(order, self._latest[order], self._before[order]) for order in self.orders]
        for token in tokens:
            place = len(text)
            tail = tuple(text[-longest:])
            for order, latest, before in tables:
                if order > place:
                    before.append(_NONE)
                    continue
                key = hash(tail[-order:])
                before.append(latest.get(key, _NONE))
                latest[key] = place
            text.append(token)

    def truncate(self, length: int) -> None:
        """Cut the text back to its first ``length`` tokens."""
        text = self.text
        while len(text) > length:
            text.pop()
            place = len(text)
            for order in self.orders:
                earlier = self._before[order].pop()
                if order > place:
                    continue
                key = hash(tuple(text[place - order :]))
                if earlier == _NONE:
                    del self._latest[order][key]
                else:
                    self._latest[order][key] = earlier

    def latest(self, ngram: tuple[int, ...]) -> int | None:
        """The most recent place of ``ngram``, whose length must be one of the orders; None if it never
        occurred.
        """
        return self._latest[len(ngram)].get(hash(ngram))
