"""Levels: what they know, what they forget, and that hashes are the same in numpy and in Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.databases.entry import Entry
from foredraft.databases.hashing import (
    LONGEST,
    ORDERS,
    context_mask,
    ngram_keys,
    order_hashes,
    rest_token,
    token_bits,
    words,
)
from foredraft.drafters.levels.context import ContextLevel
from foredraft.drafters.levels.corpus import CorpusLevel
from foredraft.drafters.levels.model import ModelLevel
from foredraft.drafters.levels.ngram_table import NgramTable
from foredraft.drafters.levels.recycled import RecycledLevel, likeliest
from tests.runtime.databases.made import VOCAB, built, hash_of, markov

TEXTS = st.lists(st.integers(0, 4), max_size=40)
WORDS = words(VOCAB)


def everything(level: ContextLevel, text: list[int]) -> list[tuple[int, list[int], list[int]] | None]:
    found: list[tuple[int, list[int], list[int]] | None] = []
    for end in range(1, len(text) + 1):
        for index, value in enumerate(order_hashes(tuple(text[max(0, end - LONGEST) : end]), WORDS)):
            entry = level.lookup(index, value)
            found.append(None if entry is None else (entry.total, entry.tokens, entry.counts))
    return found


@pytest.mark.parametrize("vocab", [2, 50, 65535, 65536, 262144])
@pytest.mark.parametrize("order", ORDERS)
def test_keys_are_the_hashes_with_the_next_token(vocab: int, order: int) -> None:
    tokens = np.random.default_rng(0).integers(0, vocab, 30).astype(np.uint32)
    keys = ngram_keys(tokens, order, vocab)
    assert len(keys) == 30 - order and rest_token(vocab) >= vocab and 1 << token_bits(vocab) > vocab
    for start, key in enumerate(keys.tolist()):
        context = tuple(tokens[max(0, start + order - LONGEST) : start + order].tolist())
        assert key & context_mask(vocab) == order_hashes(context, words(vocab))[ORDERS.index(order)] & context_mask(
            vocab
        )
        assert key & rest_token(vocab) == tokens[start + order]


@given(tokens=st.lists(st.integers(0, 30), max_size=200))
def test_an_entry_is_sorted_by_count_and_then_by_recency(tokens: list[int]) -> None:
    entry = Entry(0, [], [])
    for token in tokens:
        entry.add(token)
    assert entry.total == len(tokens) and entry.counts == sorted(entry.counts, reverse=True)
    assert len(set(entry.tokens)) == len(entry.tokens) <= 16
    if len(set(tokens)) <= 16:
        assert dict(zip(entry.tokens, entry.counts, strict=True)) == Counter(tokens)
        last = {token: place for place, token in enumerate(tokens)}
        assert entry.tokens == sorted(last, key=lambda token: (-Counter(tokens)[token], -last[token]))


@given(text=TEXTS, more=TEXTS, data=st.data())
def test_a_rewound_context_is_the_one_that_never_went_on(text: list[int], more: list[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(text) + len(more)))
    level, fresh = ContextLevel(WORDS), ContextLevel(WORDS)
    level.begin(text)
    level.append(more)
    level.index()
    level.rewind(length)
    fresh.begin((text + more)[:length])
    assert level.text == fresh.text
    assert everything(level, text + more) == everything(fresh, text + more)
    for either in (level, fresh):
        either.append(more)
        either.index()
    assert everything(level, level.text) == everything(fresh, level.text)


def test_a_new_sequence_knows_nothing_of_the_one_before() -> None:
    level = ContextLevel(WORDS)
    level.begin([1, 2, 3])
    level.begin([4])
    assert level.lookup(0, hash_of([1])) is None


def test_the_model_level_adds_what_was_learned_and_forgets_the_oldest(tmp_path: Path) -> None:
    level = ModelLevel(WORDS, built(tmp_path / "m.fdb", [[1, 2], [1, 2], [1, 3]], "model"), capacity=3)
    for _ in range(2):
        level.learn([1, 3, 4])
    entry = level.lookup(0, hash_of([1]))
    assert entry is not None and (entry.total, entry.tokens, entry.counts) == (5, [3, 2], [3, 2])
    level.learn([5, 6, 7, 8])
    assert level.lookup(0, hash_of([3])) is None  # learned only, and pushed out
    entry = level.lookup(0, hash_of([1]))
    assert entry is not None and entry.total == 3
    level.reset()
    assert level.lookup(0, hash_of([5])) is None


def test_a_corpus_level_uses_the_shortest_orders_without_gaps(tmp_path: Path) -> None:
    level = CorpusLevel(built(tmp_path / "c.fdb", [markov(200)]))
    assert level.orders == 4
    assert CorpusLevel(built(tmp_path / "m.fdb", [markov(200)], "model")).orders == 6
    assert level.lookup(0, 0) is None and level.lookup(0, 0) is None


def test_capacity_counts_contexts_of_each_order() -> None:
    table = NgramTable(WORDS, capacity=5)
    table.extend(list(range(30)), 0)
    assert sum(table.lookup(0, hash_of([token])) is not None for token in range(30)) == 5
    assert table.lookup(0, hash_of([28])) is not None


def test_likeliest_are_the_highest_logits() -> None:
    logits = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    assert likeliest(logits) == np.argsort(-logits)[:8].tolist()
    logits[7] += 100
    assert likeliest(logits) == [7]  # the others are out of question
    level = RecycledLevel(None)
    assert level.lookup(3) == []
    level.learn(3, logits)
    assert level.lookup(3) == [7]
