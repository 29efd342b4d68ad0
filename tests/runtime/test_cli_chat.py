"""``foredraft chat``: the conversation, its commands, and Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from foredraft import cli
from foredraft.commands import chat as chat_module
from foredraft.errors import RequestError
from tests.runtime.cli_fakes import FakeBundle, FakeSession, install


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def run(*args: str) -> int:
    return cli.main(args)


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    """Let ``input`` return these lines, or raise; then end of file."""
    waiting = iter([*lines, EOFError])

    def fake_input(prompt: str) -> str:
        line = next(waiting)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", fake_input)


def test_chat_keeps_the_conversation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed(monkeypatch, "a", "", KeyboardInterrupt, " b ", "/reset", "c", "/what", "/exit", "never")
    assert run("chat", "B", "--system", "S", "--temperature", "0.5", "--stats") == 0
    out, err = capsys.readouterr()
    assert out.count("one two ✓\n") == 3
    assert "no command '/what'" in err and "20.0 tokens/s" in err
    contents = [[m["content"] for m in asked["messages"]] for asked in FakeSession.asked]
    assert contents == [["S", "a"], ["S", "a", "one two ✓", "b"], ["S", "c"]]
    assert FakeSession.asked[0]["sampling"].temperature == 0.5


def test_interrupt_stops_the_answer_and_not_the_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "interrupt", "b")
    before = signal.getsignal(signal.SIGINT)
    assert run("chat", "B") == 0
    assert signal.getsignal(signal.SIGINT) is before
    contents = [[m["content"] for m in asked["messages"]] for asked in FakeSession.asked]
    # The chunk that was under way when Ctrl-C came is the last one.
    assert contents[1][1] in ("one two ✓", "one ")
    assert contents[1][2] == "b"


def test_second_interrupt_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt), chat_module._interrupts() as seen:
        os.kill(os.getpid(), signal.SIGINT)
        assert seen == [signal.SIGINT]
        os.kill(os.getpid(), signal.SIGINT)


def test_an_error_leaves_the_conversation_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: FakeSession, *args: Any, **request: Any) -> Iterator[Any]:
        self.asked.append(request)
        raise RequestError("too long")

    monkeypatch.setattr(FakeSession, "stream", refuse)
    typed(monkeypatch, "a", "b")
    assert run("chat", "B") == 0
    assert "error: too long" in capsys.readouterr().err
    assert [len(asked["messages"]) for asked in FakeSession.asked] == [1, 1]


def test_chat_needs_a_template(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(FakeBundle, "chat_template", None)
    assert run("chat", "B") == 1
    assert "no chat template; use: foredraft generate" in capsys.readouterr().err
