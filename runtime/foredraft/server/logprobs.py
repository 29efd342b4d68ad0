"""Log probabilities of the tokens that were written, from the very logits that chose them.

They are the model's own: at temperature 1, before penalties and filters. Since a token's logits do not depend on
which drafts shared its forward, they do not depend on drafting either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foredraft.result import Chunk
from foredraft.sampling.logits import Float32, whole


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One written token and the likeliest alternatives at its place, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def logprobs_of(chunk: Chunk, top: int) -> tuple[TokenLogprob, ...]:
    """Those of a chunk's tokens, each with ``top`` alternatives; asked for while its round is being observed."""
    if chunk.round is None:
        return ()
    return tuple(rank(whole(row), token, top) for row, token in zip(chunk.round.rows, chunk.tokens, strict=False))


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
