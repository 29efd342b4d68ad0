"""Level `corpus`: a mapped database, read only, with the latest lookups at hand."""

from __future__ import annotations

from foredraft.databases.database import Database
from foredraft.databases.entry import Entry
from foredraft.databases.hashing import ORDERS

KEPT = 1 << 15
"""Lookups of each order that are remembered before all are forgotten."""


class CorpusLevel:
    """Lookups in a file. Its orders must be the shortest of ``ORDERS``, without gaps; others are not used."""

    def __init__(self, file: Database) -> None:
        orders = 0
        while orders < len(ORDERS) and ORDERS[orders] in file.orders:
            orders += 1
        self.orders = orders
        self._tables = [file.table(order).lookup for order in ORDERS[:orders]]
        self._known: list[dict[int, Entry | None]] = [{} for _ in range(orders)]

    def lookup(self, index: int, value: int) -> Entry | None:
        """The entry of the context of ``ORDERS[index]`` tokens with hash ``value``; shared: do not change it."""
        known = self._known[index]
        if value in known:
            return known[value]
        if len(known) >= KEPT:
            known.clear()
        entry = known[value] = self._tables[index](value)
        return entry
