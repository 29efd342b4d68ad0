"""The blend: what all levels say about the token after a context, as one distribution (PPM with learned escapes).

Each level offers its two longest matching contexts. Within a level the longer one takes its confidence and leaves the
rest to the shorter; the levels are combined as a noisy or. Recycled tokens get a confidence by their rank and by how
long a context matched elsewhere. Counts are discounted by one half (absolute discounting, Ney et al. 1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from foredraft.databases.database import RECYCLED
from foredraft.databases.entry import Entry, Level
from foredraft.databases.hashing import LONGEST, order_hashes
from foredraft.drafters.blend.calibration import Calibration
from foredraft.drafters.blend.confidence import LEVEL_STRIDE, Rates, offer_priors, recycled_priors
from foredraft.drafters.levels.recycled import RecycledLevel

CANDIDATES = 12
"""Next tokens that are ranked after a context."""
_FLOOR = 0.003
"""Shares below this are not worth adding up."""
_DISCOUNT = 0.5
_UNMATCHED = -1
_by_miss = itemgetter(1)


class View:
    """What is known about the token after one context.

    ``recent`` its last 8 tokens; ``tops`` for each level the longest order matched, or -1; ``offers`` (kind, entry);
    ``row`` the recycled tokens and ``row_kind`` the kind of the first; ``ranked`` (token, 1 - estimate), best first.
    """

    __slots__ = ("offers", "ranked", "recent", "row", "row_kind", "tops")

    def __init__(self, recent: tuple[int, ...]) -> None:
        self.recent = recent
        self.tops: list[int] = []
        self.offers: list[tuple[int, Entry]] = []
        self.row: list[int] = []
        self.row_kind = 0
        self.ranked: list[tuple[int, float]] = []


class Mixture:
    """Combines levels, and learns how far each can be trusted."""

    def __init__(
        self,
        names: Sequence[str],
        levels: Sequence[Level],
        recycled: RecycledLevel | None,
        words: tuple[memoryview[int], ...],
    ) -> None:
        """``names`` and ``levels`` belong together, in the user's order; ``words`` are the vocabulary's hash words."""
        self._names, self._words = tuple(names), words
        self._levels = [(level.lookup, level.orders - 1, index * LEVEL_STRIDE) for index, level in enumerate(levels)]
        self._recycled = recycled
        self._everything = [level.orders for level in levels]
        self.reset()

    def reset(self) -> None:
        """Forget the learned confidences and the calibration."""
        self._confidence = Rates(offer_priors(self._names))
        self._recycling = Rates(recycled_priors())
        self.calibration = Calibration()

    def view(self, recent: tuple[int, ...], above: Sequence[int] | None, floor: float = _FLOOR) -> View:
        """Look ``recent`` up in all levels and rank what they offer.

        ``above`` are the ``tops`` of the context one token shorter, if they are known: a context can only be known one
        order further than what it grew from, which saves most of the probes. Shares under ``floor`` are left out.
        """
        view = View(recent)
        hashes = order_hashes(recent, self._words)
        longest_hash = len(hashes) - 1
        longest = _UNMATCHED
        offers, tops = view.offers, view.tops
        for (lookup, most, kind), top in zip(self._levels, above or self._everything, strict=True):
            order = min(top + 1, most, longest_hash)
            found = _UNMATCHED
            while order >= 0:
                entry = lookup(order, hashes[order])
                if entry is not None:
                    total = entry.total
                    # Twice the bucket of confidence.BUCKETS.
                    size = 0 if total <= 1 else 2 if total <= 3 else 4 if total <= 10 else 6
                    offer = kind + order * 8 + size
                    if found >= 0:
                        offers.append((offer + 1, entry))
                        break
                    found = order
                    offers.append((offer, entry))
                order -= 1
            tops.append(found)
            if found > longest:
                longest = found
        if self._recycled is not None and recent:
            view.row = self._recycled.lookup(recent[-1])
            view.row_kind = (longest + 1) * RECYCLED
        view.ranked = self._ranked(view, floor if floor > _FLOOR else _FLOOR)
        return view

    def _ranked(self, view: View, floor: float) -> list[tuple[int, float]]:
        miss: dict[int, float] = {}
        confidence = self._confidence.value
        rest = 1.0
        for kind, entry in view.offers:
            if not kind & 1:
                rest = 1.0
            trust = confidence[kind]
            tokens = entry.tokens
            unit = rest * trust / (entry.total - _DISCOUNT * len(tokens))
            rest *= 1.0 - trust
            for token, count in zip(tokens, entry.counts, strict=True):
                share = unit * (count - _DISCOUNT)
                if share < floor:
                    break
                miss[token] = miss[token] * (1.0 - share) if token in miss else 1.0 - share
        if view.row:
            trusts = self._recycling.value
            kind = view.row_kind
            for token in view.row:
                trust = trusts[kind]
                kind += 1
                if token in miss:
                    miss[token] *= 1.0 - trust
                elif trust > floor:
                    miss[token] = 1.0 - trust
        return sorted(miss.items(), key=_by_miss)[:CANDIDATES]

    def learn(self, view: View, token: int) -> None:
        """``token`` came after the context of ``view``: adjust the confidences and the calibration."""
        for kind, entry in view.offers:
            self._confidence.learn(kind, token in entry.tokens)
        for rank, recycled in enumerate(view.row):
            self._recycling.learn(view.row_kind + rank, recycled == token)
        learn = self.calibration.learn
        for candidate, miss in view.ranked:
            learn(1.0 - miss, candidate == token)

    def level_of(self, view: View, token: int) -> int:
        """The first level, in the user's order, that offered ``token``; recycled comes last."""
        for kind, entry in view.offers:
            if token in entry.tokens:
                return kind // LEVEL_STRIDE
        return len(self._names)


def lengthened(recent: tuple[int, ...], token: int) -> tuple[int, ...]:
    """The last 8 tokens after one more."""
    return (*recent[1:], token) if len(recent) == LONGEST else (*recent, token)
