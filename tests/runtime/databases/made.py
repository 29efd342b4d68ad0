"""Small texts and the databases of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foredraft.databases.building import KIND_ORDERS, build_database
from foredraft.databases.database import Database
from foredraft.databases.hashing import ORDERS, order_hashes, words
from foredraft.databases.identity import Identity

VOCAB = 50
IDENTITY = Identity("ab" * 32, VOCAB)
Documents = Sequence[Sequence[int]]


def arrays(documents: Documents) -> list[np.ndarray]:
    return [np.array(document, np.uint32) for document in documents]


def markov(length: int, seed: int = 0, vocab: int = VOCAB, choices: int = 3) -> list[int]:
    """A text whose every token has at most ``choices`` likely followers."""
    random = np.random.default_rng(seed)
    followers = np.random.default_rng(1).integers(0, vocab, (vocab, choices))
    weights = np.array([0.6, 0.3, 0.1][:choices])
    text = [int(random.integers(vocab))]
    while len(text) < length:
        text.append(int(random.choice(followers[text[-1]], p=weights / weights.sum())))
    return text


def built(path: Path, documents: Documents, kind: str = "corpus", **options: object) -> Database:
    build_database(path, kind, arrays(documents), IDENTITY, **options)  # type: ignore[arg-type]
    return Database(path, IDENTITY.tokenizer, VOCAB)


def counted(documents: Documents, order: int) -> dict[tuple[int, ...], Counter[int]]:
    """The plain way: what followed every context of ``order`` tokens within a document."""
    found: dict[tuple[int, ...], Counter[int]] = {}
    for document in documents:
        for end in range(order, len(document)):
            found.setdefault(tuple(document[end - order : end]), Counter())[document[end]] += 1
    return found


def hash_of(context: Sequence[int]) -> int:
    return order_hashes(tuple(context), words(VOCAB))[ORDERS.index(len(context))]


def assert_holds(database: Database, documents: Documents, kind: str = "corpus") -> None:
    """Every context is there with its total and its 16 most frequent next tokens, ties by token id; and no other."""
    for order in KIND_ORDERS[kind]:
        expected = counted(documents, order)
        assert database.table(order).contexts == len(expected)
        for context, following in expected.items():
            entry = database.lookup(order, hash_of(context))
            best = sorted(following.items(), key=lambda pair: (-pair[1], pair[0]))[:16]
            assert entry is not None
            assert (entry.total, entry.tokens, entry.counts) == (
                following.total(),
                [token for token, _ in best],
                [count for _, count in best],
            )
