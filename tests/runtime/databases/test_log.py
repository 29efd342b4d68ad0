"""The learn log: what was written whole is folded in once, what is torn is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.databases.database import Database
from foredraft.databases.identity import Identity
from foredraft.databases.log import LearnLog, read_log
from foredraft.databases.merge import add_logs
from foredraft.errors import DatabaseError
from tests.full_disk import no_file_beyond
from tests.runtime.databases.made import IDENTITY, VOCAB, assert_holds, built, hash_of

OUTPUTS = [[1, 2, 3, 4], [5], [6, 7, 8]]


def written(path: Path, outputs: list[list[int]] = OUTPUTS) -> Path:
    for output in outputs:
        LearnLog(path, IDENTITY).append(output)
    return path


def read(path: Path) -> list[list[int]]:
    return [document.tolist() for document in read_log(path, IDENTITY)]


def test_round_trip(tmp_path: Path) -> None:
    assert read(written(tmp_path / "a.log")) == OUTPUTS


@settings(max_examples=60)
@given(data=st.data())
def test_torn_and_damaged_logs_give_whole_records_or_none(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.log"
    path.unlink(missing_ok=True)
    whole = written(path).read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(44, len(whole)))])
    found = read(path)
    assert found == OUTPUTS[: len(found)]
    LearnLog(path, IDENTITY).append([9, 9])  # goes on behind the last whole record
    assert read(path) == [*found, [9, 9]]
    changed = bytearray(whole)
    changed[data.draw(st.integers(44, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(changed)
    found = read(path)
    assert found == OUTPUTS[: len(found)]


def test_another_tokenizer_and_other_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.log")
    with pytest.raises(DatabaseError, match="made with tokenizer"):
        LearnLog(path, Identity("cd" * 32, VOCAB))
    path.write_bytes(b"something else entirely, and long enough to be a head")
    with pytest.raises(DatabaseError, match="is not a learn log"):
        LearnLog(path, IDENTITY)


def test_folding_adds_to_the_database_once(tmp_path: Path) -> None:
    path = tmp_path / "model.fdb"
    old = built(path, [[1, 2, 9]], "model")
    log = written(tmp_path / "a.log")
    assert add_logs(path, [log]) == sum(map(len, OUTPUTS))
    assert_holds(Database(path, IDENTITY.tokenizer), [[1, 2, 9], *OUTPUTS], "model")
    assert not log.exists()
    entry = old.lookup(1, hash_of([1]))
    assert entry is not None and entry.total == 1  # who has the old version open keeps it
    with pytest.raises(DatabaseError, match="no such learn log"):
        add_logs(path, [log])


def test_an_interrupted_fold_is_made_good(tmp_path: Path) -> None:
    path = tmp_path / "model.fdb"
    built(path, [[1, 2]], "model")
    written(tmp_path / "a.log").rename(tmp_path / "a.log.folding")
    written(tmp_path / "a.log", [[3, 4]])
    assert add_logs(path, [tmp_path / "a.log"]) == sum(map(len, OUTPUTS)) + 2
    assert [p.name for p in tmp_path.iterdir()] == ["model.fdb"]


def test_logs_go_into_model_databases_only(tmp_path: Path) -> None:
    built(tmp_path / "corpus.fdb", [[1, 2]])
    with pytest.raises(DatabaseError, match="model databases only"):
        add_logs(tmp_path / "corpus.fdb", [written(tmp_path / "a.log")])
    assert (tmp_path / "a.log").exists()


def test_a_full_disk_takes_no_half_record(tmp_path: Path) -> None:
    """The system would take a part of the record, and every later one would be lost behind it."""
    log = written(tmp_path / "a.log")
    with (
        no_file_beyond(log.stat().st_size + 30),
        pytest.raises(DatabaseError, match=r"a\.log: cannot append to the learn log: File too large; .*make room"),
    ):
        written(log, [[9] * 100])
    written(log, [[7, 7]])
    assert read(log) == [*OUTPUTS, [7, 7]]
