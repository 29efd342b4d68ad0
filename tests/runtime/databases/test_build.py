"""Builders: the same numbers as counting by hand, whole or in shards, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from foredraft.databases import building as build_module
from foredraft.databases import runs as runs_module
from foredraft.databases.building import (
    KIND_ORDERS,
    build_database,
    count_documents,
    recycled_table,
    spool_beside,
    write_counts,
)
from foredraft.databases.database import Database
from foredraft.databases.identity import Identity
from foredraft.databases.merge import merge_files
from foredraft.databases.sources import expand, read_documents, read_prompts
from foredraft.databases.writer import HEADER_ROOM
from foredraft.errors import DatabaseError, ForedraftError
from tests.full_disk import no_file_beyond
from tests.runtime.databases.made import IDENTITY, VOCAB, Documents, arrays, assert_holds, built, hash_of, markov
from tests.runtime.tokenizers_for_tests import byte_level

DOCUMENTS = st.lists(st.lists(st.integers(0, 5), max_size=30), min_size=1, max_size=6).filter(
    lambda documents: any(documents)
)
quick = settings(max_examples=40)


def shard(path: Path, documents: Documents, kind: str = "corpus") -> Path:
    with spool_beside(path) as spool:
        write_counts(path, count_documents(arrays(documents), IDENTITY, KIND_ORDERS[kind], spool), IDENTITY, spool)
    return path


@quick
@given(documents=DOCUMENTS, kind=st.sampled_from(["corpus", "model"]))
def test_counts_are_those_of_counting_by_hand(tmp_path: Path, documents: Documents, kind: str) -> None:
    assert_holds(built(tmp_path / "a.fdb", documents, kind), documents, kind)


def test_many_chunks_and_ranges_count_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [markov(400, seed) for seed in range(8)]
    whole = built(tmp_path / "whole.fdb", documents)
    monkeypatch.setattr(build_module, "CHUNK", 500)
    monkeypatch.setattr(runs_module, "RANGE", 300)
    built(tmp_path / "parts.fdb", documents).verify()
    assert (tmp_path / "parts.fdb").read_bytes() == (tmp_path / "whole.fdb").read_bytes()
    assert_holds(whole, documents)


@pytest.mark.slow
@quick
@given(documents=DOCUMENTS, cut=st.integers(0, 6))
def test_shards_merge_to_the_same_file(tmp_path: Path, documents: Documents, cut: int) -> None:
    built(tmp_path / "whole.fdb", documents)
    shards = [shard(tmp_path / f"{i}.fdc", part) for i, part in enumerate((documents[:cut], documents[cut:]))]
    merge_files(tmp_path / "merged.fdb", shards)
    assert (tmp_path / "merged.fdb").read_bytes() == (tmp_path / "whole.fdb").read_bytes()


def test_databases_merge_with_their_totals(tmp_path: Path) -> None:
    first = [[1, token] for token in range(40)]  # more next tokens than an entry keeps
    second = [[1, 3, 4], [1, 3], [2, 2]]
    built(tmp_path / "a.fdb", first)
    built(tmp_path / "b.fdb", second)
    merge_files(tmp_path / "sum.fdb", [tmp_path / "a.fdb", tmp_path / "b.fdb"])
    entry = Database(tmp_path / "sum.fdb").lookup(1, hash_of([1]))
    assert entry is not None
    assert entry.total == 42 and entry.tokens[0] == 3 and entry.counts[0] == 3


def test_damaged_and_foreign_sources_are_not_merged(tmp_path: Path) -> None:
    built(tmp_path / "a.fdb", [[1, 2, 3]])
    data = bytearray((tmp_path / "a.fdb").read_bytes())
    data[HEADER_ROOM] ^= 1
    (tmp_path / "bad.fdb").write_bytes(data)
    with pytest.raises(DatabaseError, match="damaged sections"):
        merge_files(tmp_path / "sum.fdb", [tmp_path / "a.fdb", tmp_path / "bad.fdb"])
    build_database(tmp_path / "other.fdb", "corpus", arrays([[1, 2]]), Identity("cd" * 32, VOCAB))
    with pytest.raises(DatabaseError, match="made with tokenizer"):
        merge_files(tmp_path / "sum.fdb", [tmp_path / "a.fdb", tmp_path / "other.fdb"])
    assert not (tmp_path / "sum.fdb").exists()


def test_pruning_keeps_to_the_size_and_drops_rare_long_contexts_first(tmp_path: Path) -> None:
    documents = [markov(3000, seed) for seed in range(3)]
    built(tmp_path / "whole.fdb", documents)
    size = (tmp_path / "whole.fdb").stat().st_size
    small = built(tmp_path / "small.fdb", documents, max_size=size // 2)
    assert (tmp_path / "small.fdb").stat().st_size < size // 2 + 32 * 1024  # and the header
    pruned = small.facts["pruned_up_to"]
    assert pruned["4"] >= pruned["3"] >= pruned["2"] >= pruned["1"] and pruned["4"] >= 1
    with pytest.raises(DatabaseError, match="too small"):
        built(tmp_path / "tiny.fdb", documents, max_size=10)


def test_recycled_rows_survive_a_merge_the_latest_first(tmp_path: Path) -> None:
    old, new = recycled_table({1: [2, 3], 4: [5]}, VOCAB), recycled_table({1: [7]}, VOCAB)
    built(tmp_path / "old.fdb", [[1, 2, 3]], "model", recycled=old)
    built(tmp_path / "new.fdb", [[1, 2, 3]], "model", recycled=new)
    merge_files(tmp_path / "sum.fdb", [tmp_path / "old.fdb", tmp_path / "new.fdb"])
    merged = Database(tmp_path / "sum.fdb")
    assert merged.recycled(1) == [7] and merged.recycled(4) == [5] and merged.recycled(9) == []


def test_nothing_to_build_from_is_said(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no tokens"):
        built(tmp_path / "a.fdb", [])
    with pytest.raises(DatabaseError, match="does not exist"):
        built(tmp_path / "missing" / "a.fdb", [[1, 2]])
    assert list(tmp_path.iterdir()) == []


def test_a_killed_build_leaves_nothing_that_opens(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, time
        import numpy as np
        from foredraft.databases import building as build
        from foredraft.databases.identity import Identity
        build.CHUNK = 1000
        def documents():
            while True:
                yield np.arange(500, dtype=np.uint32) % 50
                print("going", flush=True)
        build.build_database(sys.argv[1], "corpus", documents(), Identity("ab" * 32, 50))
    """)
    target = tmp_path / "a.fdb"
    process = subprocess.Popen([sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not target.exists() and list(tmp_path.iterdir()) != []
    built(target, [[1, 2, 3]])
    assert [path.name for path in tmp_path.iterdir()] == ["a.fdb"]  # what the killed one left is gone


def test_sources_of_every_kind(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_buffer(byte_level())
    vocab = tokenizer.get_vocab_size()
    (tmp_path / "a.txt").write_text("the cat\n", encoding="utf-8")
    lines = [{"text": "the"}, {"prompt": "cat"}, {"turns": ["a", "b"]}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    np.save(tmp_path / "c.npy", np.array([1, 2, -1, 3, 4], np.int64))
    np.array([5, 6, 0xFFFFFFFF, 7], "<u4").tofile(tmp_path / "d.bin")
    found = [document.tolist() for document in read_documents(expand([tmp_path]), tokenizer, vocab)]
    texts = ["the cat\n", "the", "cat", "a", "b"]
    tokens = [[1, 2], [3, 4], [5, 6], [7]]
    assert sorted(found) == sorted([tokenizer.encode(text, add_special_tokens=False).ids for text in texts] + tokens)
    assert list(read_prompts(tmp_path / "b.jsonl")) == ["the", "cat", "a"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"other": 1}\n', "a.jsonl:2: expected"),
        ("a.jsonl", b"{nonsense\n", "a.jsonl:1: not a JSON object"),
        ("a.bin", np.array([1, 999], "<u4").tobytes(), "token 999 at position 1"),
        ("a.npy", b"not an array", "is not a token file"),
    ],
)
def test_malformed_sources_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DatabaseError, match=message):
        list(read_documents([tmp_path / name], Tokenizer.from_buffer(byte_level()), 300))
    with pytest.raises(DatabaseError, match="no such file"):
        expand([tmp_path / "missing"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1 << 10, 1 << 13, None])
def test_a_full_disk_is_named_by_the_database(tmp_path: Path, size: int | None) -> None:
    """Whether the runs, the sections or only the finished file do not fit."""
    documents = [markov(6000, seed) for seed in range(2)]
    old, counts = built(tmp_path / "old.fdb", documents), shard(tmp_path / "counts", documents)
    left = set(tmp_path.iterdir())
    attempts: list[tuple[Path, Callable[[], object]]] = [
        (old.path, lambda: built(tmp_path / "new.fdb", documents)),
        (old.path, lambda: merge_files(tmp_path / "new.fdb", [old.path, old.path])),
        (counts, lambda: shard(tmp_path / "new.fdb", documents)),
    ]
    for same, attempt in attempts:
        limit = size or same.stat().st_size - 1
        with (
            no_file_beyond(limit),
            pytest.raises(ForedraftError, match=r"/new\.fdb: could not be written: .*room"),
        ):
            attempt()
        assert set(tmp_path.iterdir()) == left
