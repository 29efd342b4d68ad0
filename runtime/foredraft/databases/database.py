"""A token database: for each known context the next tokens that followed it, looked up by the context's hash.

Sections of each order N (n contexts, e entries, b bits):

    order-N/directory  uint32 [2**b + 1]   first context whose hash begins with these b bits
    order-N/hashes     uint64 [n]          context hashes, ascending; low ``token_bits`` are 0 (see hashing.py)
    order-N/contexts   uint32 [n + 1, 2]   (first entry, how often the context was seen)
    order-N/entries    uint32 [e, 2]       (next token, count), by falling count, at most 16 a context
    recycled           uint32 [vocab, 8]   model databases only: likely next tokens of each token, or 0xFFFFFFFF

A lookup touches four places, however large the file. Everything read is checked against bounds and the vocabulary, so
a damaged body gives "unknown" or a wrong guess, never a crash and never an id outside the vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foredraft.databases.entry import MAX_ENTRIES, Entry
from foredraft.databases.file import Container
from foredraft.databases.hashing import ORDERS, context_mask
from foredraft.errors import DatabaseError

RECYCLED = 8
"""Next tokens kept for a token in the recycled table."""
KINDS = ("corpus", "model")
_MAX_BUCKET = 64


class OrderTable:
    """The mapped arrays of one order."""

    __slots__ = ("_contexts", "_directory", "_entries", "_hashes", "_mask", "_shift", "_vocab", "contexts")

    def __init__(self, file: Container, order: int) -> None:
        """Raise DatabaseError if the sections' sizes contradict each other."""
        self._directory = file.view(f"order-{order}/directory")
        self._hashes = file.view(f"order-{order}/hashes")
        self._contexts = file.view(f"order-{order}/contexts")
        self._entries = file.view(f"order-{order}/entries")
        self._vocab = file.header.vocab_size
        self._mask = context_mask(self._vocab)
        buckets = len(self._directory) - 1
        self.contexts = len(self._hashes)
        views = (self._directory, self._hashes, self._contexts, self._entries)
        whole = buckets > 0 and buckets & (buckets - 1) == 0 and len(self._contexts) == 2 * self.contexts + 2
        if not whole or [view.itemsize for view in views] != [4, 8, 4, 4]:
            raise DatabaseError(f"{file.path}: the sections of order {order} do not fit together; build it again")
        self._shift = 64 - (buckets.bit_length() - 1)

    def lookup(self, value: int) -> Entry | None:
        """The entry of the context with hash ``value``, or None if it is unknown or its bytes make no sense."""
        value &= self._mask
        bucket = value >> self._shift
        low, high = self._directory[bucket : bucket + 2]
        if high - low > _MAX_BUCKET:
            high = low + _MAX_BUCKET
        hashes = self._hashes[low:high].tolist()
        if value not in hashes:
            return None
        index = 2 * (low + hashes.index(value))
        first, total, end, _ = self._contexts[index : index + 4]
        if not 0 < end - first <= MAX_ENTRIES:
            return None
        pairs = self._entries[2 * first : 2 * end].tolist()
        tokens, counts = pairs[::2], pairs[1::2]
        if not tokens or max(tokens) >= self._vocab or min(counts) == 0 or len(set(tokens)) < len(tokens):
            return None
        return Entry(max(total, sum(counts)), tokens, counts)


class Database:
    """An open database file."""

    def __init__(self, path: Path | str, tokenizer: str | None = None, vocab_size: int | None = None) -> None:
        """Open; ``tokenizer`` (sha256 of tokenizer.json) and ``vocab_size`` must be the database's, if they are given.

        Raise DatabaseError for a file that is damaged, of another version, or of another tokenizer.
        """
        self.file = Container(path)
        self.path = self.file.path
        header = self.file.header
        self.kind, self.tokenizer, self.vocab_size = header.kind, header.tokenizer, header.vocab_size
        if self.kind not in KINDS:
            raise DatabaseError(
                f"{self.path}: holds '{self.kind}', expected {' or '.join(KINDS)}; "
                "make a database of it with `foredraft db merge`"
            )
        check_tokenizer(self.path, self.tokenizer, tokenizer)
        if vocab_size is not None and self.vocab_size > vocab_size:
            raise DatabaseError(
                f"{self.path}: vocabulary of {self.vocab_size} tokens, the model has {vocab_size}; build it again"
            )
        orders = header.facts.get("orders")
        if not isinstance(orders, list) or not orders or any(order not in ORDERS for order in orders):
            raise DatabaseError(f"{self.path}: orders {orders}, expected some of {list(ORDERS)}; build it again")
        self.orders: tuple[int, ...] = tuple(orders)
        self._tables = {order: OrderTable(self.file, order) for order in self.orders}
        self._recycled = self.file.view("recycled") if "recycled" in header.sections else None
        if self._recycled is not None and len(self._recycled) != RECYCLED * self.vocab_size:
            raise DatabaseError(f"{self.path}: the recycled table has a wrong size; build it again")

    @property
    def facts(self) -> dict[str, Any]:
        """The header's free entries: orders, tokens, documents, pruning."""
        return self.file.header.facts

    @property
    def has_recycled(self) -> bool:
        """Whether the file carries a recycled table."""
        return self._recycled is not None

    def table(self, order: int) -> OrderTable:
        """The table of one order; KeyError if the database lacks it."""
        return self._tables[order]

    def lookup(self, order: int, value: int) -> Entry | None:
        """The entry of the context of ``order`` tokens with hash ``value``; None if unknown."""
        table = self._tables.get(order)
        return table.lookup(value) if table is not None else None

    def recycled(self, token: int) -> list[int]:
        """Likely next tokens of ``token``, each once, likeliest first; empty if unknown."""
        if self._recycled is None or not 0 <= token < self.vocab_size:
            return []
        row = self._recycled[RECYCLED * token : RECYCLED * (token + 1)].tolist()
        return list(dict.fromkeys(following for following in row if following < self.vocab_size))

    def verify(self) -> None:
        """Hash every section; raise DatabaseError that names the damaged ones. Reads the whole file."""
        damaged = self.file.damaged()
        if damaged:
            raise DatabaseError(f"{self.path}: damaged sections: {', '.join(damaged)}; build the database again")

    def close(self) -> None:
        """Give up the map."""
        self._tables.clear()
        self._recycled = None
        self.file.close()


def check_tokenizer(path: Path, stated: str, wanted: str | None) -> None:
    """Refuse a file that was made with another tokenizer."""
    if wanted is not None and stated != wanted:
        raise DatabaseError(
            f"{path}: made with tokenizer {stated[:16]}, expected {wanted[:16]} (sha256 of tokenizer.json): "
            "its token ids mean other text here; build a database with this tokenizer"
        )
