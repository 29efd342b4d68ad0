"""The file: what is damaged, foreign or cut short is refused, or answers harmlessly; never a crash."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.databases.building import recycled_table
from foredraft.databases.database import Database
from foredraft.databases.file import Container
from foredraft.databases.hashing import ORDERS, order_hashes, words
from foredraft.databases.writer import HEADER_ROOM, writing
from foredraft.drafters.blend.drafter import Blend
from foredraft.errors import DatabaseError
from tests.runtime.databases.made import IDENTITY, VOCAB, built, hash_of, markov

TEXT = markov(600)
quick = settings(max_examples=150)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "a.fdb"
    built(path, [TEXT], "model", recycled=recycled_table({t: [(t + 1) % VOCAB] for t in range(VOCAB)}, VOCAB)).verify()
    return path.read_bytes()


def use(database: Database) -> None:
    """Look everything up and draft: whatever the bytes, entries are well formed and tokens in the vocabulary."""
    for end in range(1, len(TEXT), 7):
        recent = tuple(TEXT[max(0, end - 8) : end])
        for order, value in zip(ORDERS, order_hashes(recent, words(VOCAB)), strict=False):
            entry = database.lookup(order, value)
            if entry is not None:
                assert 1 <= len(set(entry.tokens)) == len(entry.tokens) == len(entry.counts) <= 16
                assert max(entry.tokens) < VOCAB and min(entry.counts) > 0 and entry.total >= sum(entry.counts)
    assert all(max(database.recycled(token), default=0) < VOCAB for token in range(-1, VOCAB + 1))
    blend = Blend(VOCAB, model=database, corpus=database)
    for start in range(0, 60, 6):
        blend.begin(TEXT[start : start + 20])
        tree = blend.propose(TEXT[start : start + 20], 16)
        assert all(0 <= token < VOCAB for token in tree.tokens)
        assert all(0.0 < p <= 1.0 for p in tree.probabilities)
        blend.commit(TEXT[start + 20 : start + 23], None)


def try_to_use(path: Path, data: bytes) -> bool:
    """Whether the bytes open; if so, use them."""
    path.write_bytes(data)
    try:
        database = Database(path, IDENTITY.tokenizer, VOCAB)
    except DatabaseError:
        return False
    use(database)
    return True


def test_a_sound_file_is_used(tmp_path: Path, sound: bytes) -> None:
    assert try_to_use(tmp_path / "a.fdb", sound)


@quick
@given(data=st.data())
def test_byte_flips_are_refused_or_harmless(tmp_path: Path, sound: bytes, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(sound) - 1), min_size=1, max_size=40))
    changed = bytearray(sound)
    for place in places:
        changed[place] ^= data.draw(st.integers(1, 255))
    try_to_use(tmp_path / "a.fdb", bytes(changed))


def test_every_flip_in_the_header_is_refused(tmp_path: Path, sound: bytes) -> None:
    end = sound.index(b"\0" * 64, 64)  # the JSON ends here
    for place in [*range(64), *range(64, end, 9)]:
        changed = bytearray(sound)
        changed[place] ^= 0xFF
        (tmp_path / "a.fdb").write_bytes(changed)
        with pytest.raises(DatabaseError):
            Database(tmp_path / "a.fdb")


def test_whole_sections_of_nonsense_are_harmless(tmp_path: Path, sound: bytes) -> None:
    for filler in (b"\0", b"\xff", b"\x7f", os.urandom(1)):
        assert try_to_use(tmp_path / "a.fdb", sound[:HEADER_ROOM] + filler * (len(sound) - HEADER_ROOM))


def test_verify_finds_a_flip_in_every_section(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.fdb"
    path.write_bytes(sound)
    for section in Container(path).header.sections.values():
        changed = bytearray(sound)
        changed[section.offset] ^= 1
        path.write_bytes(changed)
        with pytest.raises(DatabaseError, match=f"damaged sections: {section.name}"):
            Database(path).verify()


@quick
@given(length=st.floats(0, 1, exclude_max=True))
def test_truncated_files_are_refused(tmp_path: Path, sound: bytes, length: float) -> None:
    assert not try_to_use(tmp_path / "a.fdb", sound[: int(length * len(sound))])
    assert not try_to_use(tmp_path / "a.fdb", sound + b"more")


def test_another_tokenizer_is_refused_with_both_hashes(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.fdb"
    path.write_bytes(sound)
    with pytest.raises(DatabaseError, match="made with tokenizer abababababababab, expected cdcdcdcdcdcdcdcd"):
        Database(path, "cd" * 32)
    with pytest.raises(DatabaseError, match="vocabulary of 50 tokens, the model has 49"):
        Database(path, IDENTITY.tokenizer, 49)


def test_another_version_and_other_files_are_refused(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.fdb"
    newer = bytearray(sound)
    newer[8] = 2
    path.write_bytes(newer)
    with pytest.raises(DatabaseError, match="format version 2, this reader knows 1"):
        Database(path)
    path.write_bytes(b"")
    with pytest.raises(DatabaseError, match="is not a token database"):
        Database(path)
    with pytest.raises(DatabaseError, match="cannot be opened"):
        Database(tmp_path / "missing.fdb")
    with writing(path, tmp_path) as writer:
        writer.finish("counts", IDENTITY.tokenizer, VOCAB, {"orders": [1]})
    with pytest.raises(DatabaseError, match=r"holds .counts.*db merge"):
        Database(path)


def test_a_file_replaced_while_mapped_stays_valid(tmp_path: Path) -> None:
    old = built(tmp_path / "a.fdb", [[1, 2, 3]])
    new = built(tmp_path / "a.fdb", [[1, 4, 5]])
    before, after = old.lookup(1, hash_of([1])), new.lookup(1, hash_of([1]))
    assert before is not None and before.tokens == [2]
    assert after is not None and after.tokens == [4]
    old.verify()
    old.close()
    new.close()


def test_opening_reads_the_header_only(tmp_path: Path) -> None:
    path = tmp_path / "big.fdb"
    built(path, [markov(20_000)]).close()
    database = Database(path)

    def touched() -> int:
        """Bytes of the mapped file that were looked at."""
        return sum(area.rss for area in psutil.Process().memory_maps() if area.path == str(path))

    assert touched() == 0
    database.verify()
    assert touched() > 50_000
