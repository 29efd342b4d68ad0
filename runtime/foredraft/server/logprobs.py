"""Log probabilities of the tokens that were written, from the very logits that chose them.

They are the model's own: at temperature 1, before penalties and filters. Since a token's logits do not depend on
which drafts shared its forward, they do not depend on drafting either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foredraft.drafters.protocol import Drafter
from foredraft.loop.tree import Tree
from foredraft.sampling.logits import Float32, Row, whole


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One written token and the likeliest alternatives at its place, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class LogitsTap:
    """A drafter that hands everything on to another one, and keeps what ``commit`` shows of the logits."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._top: int | None = None
        self._kept: list[TokenLogprob] = []
        self.name = drafter.name
        self.level_names = drafter.level_names
        self.wants_logits = drafter.wants_logits

    def __getattr__(self, name: str) -> Any:
        """What a drafter has beyond the protocol stays reachable."""
        return getattr(self._drafter, name)

    def listen(self, top: int | None) -> None:
        """Keep this many alternatives to each token from now on; None keeps nothing, and costs nothing."""
        self._top = top
        self._kept.clear()
        self.wants_logits = self._drafter.wants_logits or top is not None

    def begin(self, prompt: Sequence[int]) -> None:
        self._kept.clear()
        self._drafter.begin(prompt)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        return self._drafter.propose(context, budget, minimum)

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        if self._top is not None and logits is not None:
            self._kept += [rank(whole(row), token, self._top) for row, token in zip(logits, tokens, strict=True)]
        self._drafter.commit(tokens, logits if self._drafter.wants_logits else None)

    def rewind(self, length: int) -> None:
        self._drafter.rewind(length)

    def finish(self) -> None:
        """The inner drafter may keep what it wants."""
        self._drafter.finish()

    def drain(self, count: int) -> tuple[TokenLogprob, ...]:
        """Those of the first ``count`` tokens since the last call; what a stop cut off is dropped."""
        taken = tuple(self._kept[:count])
        self._kept.clear()
        return taken


def rank(logits: Float32, token: int, top: int) -> TokenLogprob:
    """log softmax of ``logits`` [vocab] at ``token``, and of its ``top`` largest entries (ties: the lower id first)."""
    row = logits.astype(np.float64)
    row -= row.max()
    row -= np.log(np.exp(row).sum())
    count = min(top, len(row))
    likeliest: list[int] = []
    if count:
        floor = np.partition(row, -count)[-count]
        ids = np.flatnonzero(row >= floor)
        likeliest = ids[np.argsort(-row[ids], kind="stable")][:count].tolist()
    return TokenLogprob(token, float(row[token]), tuple((i, float(row[i])) for i in likeliest))
