"""Drafts from the n-grams of this prompt and this answer: several guesses merged into one tree."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from foredraft.drafters.ngrams import NgramIndex
from foredraft.tree import TIP, Tree

Offers = dict[int, float]
"""Next token -> probability that the model writes it; the sum may be less than 1."""

ORDERS = (1, 2, 3, 4, 6, 8)
CONFIDENCE = {1: 0.2, 2: 0.45, 3: 0.5, 4: 0.6, 6: 0.75, 8: 0.85}
"""How often the next token is among those that followed an n-gram of this order before: 1 - escape in the
terms of PPM (Cleary and Witten 1984).
"""
_MOST = 16
"""Occurrences of an n-gram that are counted, the most recent ones."""
_MATCHES = 2
"""Orders that are blended, the longest ones that match."""


class ContextDrafter:
    """An n-gram model of the text so far, blended as in PPM, and the tree of its likeliest continuations.

    ``floor`` is the smallest path probability of a node that is worth a place in the tree.
    """

    name = "context"
    level_names = ("context",)
    wants_logits = False

    def __init__(self, floor: float = 0.05) -> None:
        self._floor = floor
        self._index = NgramIndex(ORDERS)

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a new text."""
        self._index = NgramIndex(ORDERS)
        self._index.extend(prompt)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """The likeliest continuations, fewer than ``budget`` nodes where the text offers no more."""
        return grow(tuple(context[-ORDERS[-1] :]), self.offers, budget, max(self._floor, minimum))

    def commit(self, tokens: Sequence[int], logits: npt.NDArray[np.float32] | None) -> None:
        """The text goes on."""
        self._index.extend(tokens)

    def rewind(self, length: int) -> None:
        """The text is cut back."""
        self._index.truncate(length)

    def offers(self, tail: tuple[int, ...]) -> Offers:
        """What may follow ``tail``: the longest matching order takes its confidence, and leaves the rest to
        the next.
        """
        offers: Offers = {}
        rest, matches = 1.0, 0
        for order in self._index.orders:
            if order > len(tail):
                continue
            followers = self._index.followers(tail[-order:], _MOST)
            if not followers:
                continue
            share = rest * CONFIDENCE[order] / len(followers)
            for token in followers:
                offers[token] = offers.get(token, 0.0) + share
            rest *= 1.0 - CONFIDENCE[order]
            matches += 1
            if matches == _MATCHES:
                break
        return offers


def grow(
    tail: tuple[int, ...], offers: Callable[[tuple[int, ...]], Offers], budget: int, floor: float
) -> Tree:
    """A tree grown best first by path probability, until ``budget`` nodes or until no path is as likely as
    ``floor``.

    ``tail`` is the end of the text; ``offers`` is asked for the end of each path, of the same length at most.
    """
    tree, length = Tree(), max(len(tail), ORDERS[-1])
    tails = {TIP: tail}
    heap: list[tuple[float, int, int, int]] = []  # (-path probability, order of arrival, parent, token)
    arrivals, node, probability = 0, TIP, 1.0
    while len(tree) < budget:
        for token, share in offers(tails[node]).items():
            if probability * share >= floor:
                heapq.heappush(heap, (-probability * share, arrivals, node, token))
                arrivals += 1
        if not heap:
            break
        negative, _, parent, token = heapq.heappop(heap)
        probability = -negative
        node = tree.add(token, parent, probability)
        tails[node] = (*tails[parent], token)[-length:]
    return tree
