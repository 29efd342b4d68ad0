"""``foredraft db``: what a user types, from text to a database that was added to, merged, shown and checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foredraft.commands.db import db
from foredraft.databases.database import Database
from foredraft.databases.identity import open_tokenizer
from foredraft.databases.log import LearnLog
from foredraft.errors import DatabaseError
from tests.runtime.tokenizers_for_tests import byte_level


def run(*arguments: object) -> Result:
    return CliRunner().invoke(db, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_bytes(byte_level())
    for name, text in (("a.txt", "the cat stops the cat\n"), ("b.txt", "the cat stops again\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_build_inspect_verify(folder: Path) -> None:
    out = folder / "c.fdb"
    result = run("build", out, folder / "a.txt", folder / "b.txt", "--tokenizer", folder, "--max-size", "1MB")
    assert result.exit_code == 0, result.output
    assert "corpus" in result.output
    shown = json.loads(run("inspect", out, "--json").output)
    assert shown["kind"] == "corpus" and shown["orders"] == [1, 2, 3, 4] and shown["documents"] == 2
    assert "documents" in run("inspect", out).output
    assert "sound" in run("verify", out).output
    data = bytearray(out.read_bytes())
    data[16384] ^= 1
    out.write_bytes(data)
    with pytest.raises(DatabaseError, match="damaged sections"):
        run("verify", out)


def test_count_and_merge_are_build(folder: Path) -> None:
    run("build", folder / "whole.fdb", folder / "a.txt", folder / "b.txt", "--tokenizer", folder / "tokenizer.json")
    for name in ("a", "b"):
        assert run("count", folder / f"{name}.fdc", folder / f"{name}.txt", "--tokenizer", folder).exit_code == 0
    assert run("merge", folder / "sum.fdb", folder / "a.fdc", folder / "b.fdc").exit_code == 0
    assert (folder / "sum.fdb").read_bytes() == (folder / "whole.fdb").read_bytes()


def test_add_folds_a_log_in(folder: Path) -> None:
    run("build", folder / "m.fdb", folder / "a.txt", "--tokenizer", folder, "--kind", "model")
    tokenizer, identity = open_tokenizer(folder)
    LearnLog(folder / "x.log", identity).append(tokenizer.encode("the dog").ids)
    result = run("add", folder / "m.fdb", folder / "x.log")
    assert "tokens added" in result.output
    assert Database(folder / "m.fdb").facts["documents"] == 2


def test_what_cannot_be_is_said(folder: Path) -> None:
    assert "give FILES and --tokenizer" in run("build", folder / "c.fdb").output
    assert "expected a size such as 500MB" in run("merge", "a", "b", "--max-size", "big").output
    assert "--prompts" in run("build", folder / "c.fdb", "--generate", folder).output
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(DatabaseError, match=r"is not a tokenizer\.json"):
        run("build", folder / "c.fdb", folder / "a.txt", "--tokenizer", folder)


def test_a_models_own_answers_become_a_database(folder: Path, tiny_bundle: Callable[..., Path]) -> None:
    prompts = folder / "prompts.jsonl"
    prompts.write_text('{"prompt": "ab"}\n{"turns": ["cd", "no"]}\n', encoding="utf-8")
    bundle = tiny_bundle()
    result = run("build", folder / "m.fdb", "--generate", bundle, "--prompts", prompts, "--max-tokens", 12)
    assert result.exit_code == 0, result.output
    database = Database(folder / "m.fdb", open_tokenizer(bundle)[1].tokenizer)
    assert database.kind == "model" and database.has_recycled
    assert database.facts["documents"] == 2 and 0 < database.facts["tokens"] <= 24
