"""A bundle and a session that only pretend, for tests of the command line."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import foredraft
from foredraft.errors import BundleError, RequestError


class FakeStatistics(SimpleNamespace):
    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class FakeSession:
    """Answers "one two ", and remembers how it was opened and asked."""

    opened: dict[str, Any]
    asked: list[dict[str, Any]]

    def __init__(self, bundle: Any, drafter: str = "context", **settings: Any) -> None:
        type(self).opened = {"drafter": drafter, **settings}
        type(self).asked = []

    def stream(self, prompt: Any = None, **request: Any) -> Iterator[Any]:
        self.asked.append({"prompt": prompt, **request})
        stats = FakeStatistics(
            tokens=2,
            tokens_per_second=20.0,
            tokens_per_forward=2.0,
            drafter=self.opened["drafter"],
            drafted=3,
            accepted=1,
        )
        result = SimpleNamespace(text="one two ✓", tokens=[5, 6], finish_reason="length", stats=stats)
        if "fail" in (prompt or ""):
            raise RequestError("prompt of 9 tokens:\n  too long")
        if "broken" in (prompt or ""):
            raise BrokenPipeError
        yield SimpleNamespace(text="one ", tokens=(5,), result=None)
        if "interrupt" in str(prompt or request.get("messages", [{}])[-1].get("content")):
            os.kill(os.getpid(), signal.SIGINT)
        yield SimpleNamespace(text="two ✓", tokens=(6,), result=result)

    def generate(self, prompt: Any = None, **request: Any) -> Any:
        return [*self.stream(prompt, **request)][-1].result


class FakeBundle:
    chat_template: Any = "a template"

    @classmethod
    def open(cls, path: Path) -> FakeBundle:
        if "missing" in str(path):
            raise BundleError(f"{path}: not a bundle")
        return cls()


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands find the fakes."""
    monkeypatch.setattr(foredraft, "Session", FakeSession, raising=False)
    monkeypatch.setattr(foredraft, "Bundle", FakeBundle, raising=False)
    monkeypatch.setattr(FakeBundle, "chat_template", "a template")
