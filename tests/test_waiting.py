"""Waiting ends with the condition, or with one line that says what did not happen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import waiting
from tests.waiting import until


def test_the_first_true_value_comes_back() -> None:
    values = iter([0, "", None, "here", "later"])
    assert until(lambda: next(values), "a value", pause=0) == "here"


def test_what_never_happens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LIMIT", 0)
    with pytest.raises(AssertionError, match="not within 0 s: the answer"):
        until(lambda: False, "the answer", pause=0)


def test_patience_makes_every_limit_longer() -> None:
    code = "from tests.waiting import LIMIT, TEST_LIMIT; print(LIMIT, TEST_LIMIT)"
    environment = {**os.environ, "FOREDRAFT_TEST_PATIENCE": "2.5"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["300.0", "1500.0"]
