"""Level `recycled`: each token's likely next tokens in the model's own latest logits (Token Recycling, 2408.08696)."""

from __future__ import annotations

from foredraft.databases.database import RECYCLED, Database
from foredraft.sampling.filters import largest
from foredraft.sampling.logits import PartialRow, Row

_MARGIN = 12.0
"""Logits further than this below the best are not worth keeping: the token has less than 1/160,000 of its chance."""


class RecycledLevel:
    """{token: next tokens, likeliest first}, started from a model database's table and kept up to date."""

    def __init__(self, file: Database | None) -> None:
        self._file = file if file is not None and file.has_recycled else None
        self._rows: dict[int, list[int]] = {}

    def lookup(self, token: int) -> list[int]:
        """At most 8 likely next tokens of ``token``."""
        row = self._rows.get(token)
        if row is None:
            row = self._rows[token] = self._file.recycled(token) if self._file is not None else []
        return row

    def learn(self, token: int, logits: Row) -> None:
        """``logits`` were the model's for what follows ``token``."""
        self._rows[token] = likeliest(logits)

    def reset(self) -> None:
        """Forget what was learned in this process."""
        self._rows.clear()


def likeliest(row: Row) -> list[int]:
    """The ids of the 8 highest logits, highest first; fewer where the best ones stand alone."""
    ids, logits = (row.ids, row.values) if isinstance(row, PartialRow) else (None, row)
    best = largest(logits, RECYCLED)
    best = best[logits[best] > logits[best[0]] - _MARGIN]
    tokens: list[int] = (best if ids is None else ids[best]).tolist()
    return tokens
