"""Common beginnings are not run again, which changes no token; the cache has a limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foredraft import Bundle, Session
from foredraft.server import prefix_cache
from foredraft.server.prefix_cache import ENOUGH, CachedSequence, PrefixCache
from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server

COMMON = "You are a helpful assistant who answers in one sentence and never lies about anything at all. " * 4


def cached(reply: object) -> int:
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_usage_shows_what_was_cached_and_the_text_is_the_same(start_server: Serve, tiny: Path) -> None:
    warm, cold = start_server(tiny), start_server(tiny, "--cache-mb", "0")
    questions = ["what is red?", "what is blue?", "why?", "what is red?"]
    for temperature in (0, 1):
        for question in questions:
            fields = {"max_tokens": 20, "temperature": temperature, "seed": 2}
            one, other = warm.complete(COMMON + question, **fields), cold.complete(COMMON + question, **fields)
            assert one.text == other.text
            assert cached(other) == 0
    assert cached(warm.complete(COMMON + "where?", max_tokens=1)) >= len(COMMON)
    assert warm.metric("tokens_total", kind="cached") > 5 * len(COMMON)
    assert warm.metric("prefix_cache_tokens") > len(COMMON)
    cold.stop()
    warm.stop()


def test_a_conversation_goes_on_from_its_cache(server: Server) -> None:
    first = server.complete("Once upon a time there was a model, and it said:", max_tokens=30)
    text = "Once upon a time there was a model, and it said:" + first.text
    again = server.complete(text, max_tokens=5)
    assert cached(again) > 40


def open_cache(tiny: Path, limit: int = 2**30) -> PrefixCache:
    bundle = Bundle.open(tiny)
    engine = Session(bundle).engine
    return PrefixCache(lambda: Session(bundle, "none", engine=engine), bundle.manifest, limit)


def write(sequence: CachedSequence, tokens: list[int], count: int = 8) -> list[int]:
    return sequence.session.generate(tokens, max_tokens=count).tokens


def test_rows_are_copied_so_that_both_texts_stay(tiny: Path) -> None:
    cache = open_cache(tiny)
    shared = list(range(10, 110))
    first = shared + list(range(120, 200))
    second = shared + list(range(30, 90))
    sequence, common = cache.take(first)
    assert common == 0
    alone = write(sequence, first)
    cache.give_back(sequence)
    other, common = cache.take(second)
    assert other is not sequence and common == len(shared)
    drafted = write(other, second)
    fresh = open_cache(tiny).take(second)[0]
    assert drafted == write(fresh, second)
    assert np.array_equal(other.session.chain.arena.token[:100], sequence.session.chain.arena.token[:100])
    cache.give_back(other)
    again, common = cache.take(first)
    assert again is sequence and common == len(first) - 1  # the first text was not lost
    assert write(again, first) == alone


def test_rows_can_be_copied_from_a_text_that_is_being_written(tiny: Path) -> None:
    cache = open_cache(tiny)
    tokens = list(range(10, 90))
    busy, _ = cache.take(tokens)
    chunks = busy.session.stream(tokens, max_tokens=20)
    begun = [token for _ in range(3) for token in next(chunks).tokens]
    second, common = cache.take(tokens)
    assert second is not busy and common == len(tokens) - 1
    rest = [token for chunk in chunks for token in chunk.tokens]
    assert write(second, tokens, 20) == begun + rest


def test_the_cache_has_a_limit(tiny: Path) -> None:
    cache = open_cache(tiny, limit=2**20)
    random = np.random.default_rng(0)
    for _ in range(40):
        tokens = random.integers(0, 256, 60).tolist()
        sequence, _ = cache.take(tokens)
        write(sequence, tokens)
        cache.give_back(sequence)
        assert cache.kept_bytes <= 2**20
    assert cache.kept_tokens > 0
    off = open_cache(tiny, limit=0)
    sequence, _ = off.take([1, 2, 3])
    off.give_back(sequence)
    assert off.kept_tokens == 0 and off.take([1, 2, 3, 4])[1] == 0


def remember(cache: PrefixCache, tokens: list[int]) -> CachedSequence:
    sequence, _ = cache.take(tokens)
    write(sequence, tokens)
    cache.give_back(sequence)
    return sequence


def poison(sequence: CachedSequence) -> None:
    """No row of the sequence may be believed any more: one that were seen would drown all others."""
    cache = sequence.session.chain._sequence._cache  # type: ignore[attr-defined]
    cache.keys[:] = np.nan
    cache.values[:] = 1e30


def test_rows_of_a_text_before_are_never_seen(tiny: Path) -> None:
    """A sequence full of wrong rows is used again, with nothing in common and with copied rows: no token changes."""
    cache = open_cache(tiny)
    shared = list(range(10, 110))
    texts = [*([i] * 150 for i in range(ENOUGH - 1)), [*shared, *[5] * 60]]
    kept = [remember(cache, text) for text in texts]
    unrelated, related = list(range(200, 140, -1)), [*shared, *[77] * 50]
    for oldest, text, common in ((kept[0], unrelated, 0), (kept[1], related, len(shared))):
        poison(oldest)
        sequence, cached_rows = cache.take(text)
        assert sequence is oldest and cached_rows == common == sequence.settled
        assert write(sequence, text, 40) == write(open_cache(tiny).take(text)[0], text, 40)
        cache.give_back(sequence)


def test_memory_is_taken_ahead_for_a_text_as_long_as_those_before(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "_STEP_BYTES", 2**14)
    cache = open_cache(tiny)
    assert not cache.prepare()  # nothing is known yet
    before = remember(cache, [7] * 100)
    bytes_before, steps = cache.kept_bytes, 0
    while cache.prepare():
        steps += 1
    assert steps > 3 and bytes_before < cache.kept_bytes <= 2 * bytes_before
    assert cache.kept_tokens == before.settled
    tokens = list(range(10, 90))
    sequence, common = cache.take(tokens)
    assert sequence is not before and sequence.touched == before.settled and common == 0
    assert cache.kept_bytes == bytes_before
    assert write(sequence, tokens) == write(open_cache(tiny, limit=0).take(tokens)[0], tokens)
    assert cache.prepare()  # for the next one


def test_memory_that_is_taken_ahead_has_a_limit(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, ahead, some in ((2**30, 2**16, True), (2**18, 2**16, False), (0, 2**16, False)):
        monkeypatch.setattr(prefix_cache, "AHEAD_BYTES", ahead)
        cache = open_cache(tiny, limit)
        remember(cache, [7] * 150)
        kept = cache.kept_bytes
        assert cache.prepare() is some
        while cache.prepare():
            pass
        assert kept <= cache.kept_bytes <= min(limit, kept + ahead + 2**17)


def test_an_old_text_gives_way_where_no_memory_was_taken_ahead(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "_STEP_BYTES", 2**16)
    cache = open_cache(tiny)
    kept = [remember(cache, [i] * 150) for i in range(ENOUGH)]
    assert len(set(map(id, kept))) == ENOUGH
    cache.prepare()
    oldest, _ = cache.take([100] * 140)
    assert oldest is kept[0]  # one step is not enough memory for this prompt
    cache.give_back(oldest)
    while cache.prepare():
        pass
    assert cache.take([101] * 140)[0] not in kept
