"""Text files become pieces, some of which are held out."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.errors import RequestError
from foredraft_exporter.exits.texts import HELD_OUT, PIECE, read_pieces, read_texts


def lines(start: int, count: int) -> str:
    return "".join(f"line {start + i} of a text that is told apart by its numbers\n" for i in range(count))


def test_the_end_of_a_long_text_is_held_out(tmp_path: Path) -> None:
    text = lines(0, 2000)
    (tmp_path / "a.txt").write_text(text)
    pieces = read_pieces([tmp_path / "a.txt"])
    held = [p for p in pieces if p.held_out]
    assert abs(len(held) / len(pieces) - 1 / HELD_OUT) < 0.05
    assert pieces[0].held_out
    assert "".join(sorted(p.text for p in pieces)) == "".join(sorted(p.text for p in read_pieces([tmp_path])))
    first = min(text.index(p.text) for p in held)
    assert all(text.index(p.text) < first for p in pieces if not p.held_out)
    assert all(PIECE <= len(p.text) < PIECE + 100 for p in pieces if p.text != text[-len(p.text) :])


def test_of_many_short_texts_an_eighth_is_held_out(tmp_path: Path) -> None:
    for i in range(80):
        (tmp_path / f"{i:02}.txt").write_text(lines(1000 * i, 40))
    (tmp_path / "binary").write_bytes(b"\xff\xfe" * 3000)
    pieces = read_pieces([tmp_path])
    assert sum(p.held_out for p in pieces) == pytest.approx(len(pieces) / HELD_OUT, abs=1)


def test_one_endless_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("x" * 100_000)
    assert max(len(p.text) for p in read_pieces([tmp_path])) <= 2 * PIECE


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "short.txt").write_text("short")
    cases = [("binary", "not UTF-8"), ("missing.txt", "cannot be read"), ("short.txt", "too little text")]
    for name, says in cases:
        with pytest.raises(RequestError, match=says):
            read_pieces([tmp_path / name])
    assert [path.name for path, _ in read_texts([tmp_path])] == ["short.txt"]
