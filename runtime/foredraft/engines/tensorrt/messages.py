"""What TensorRT says: passed on to our log, and kept while something is tried, to name the cause if it fails."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_log = logging.getLogger("foredraft")
_MOST_LINES = 3
_SILENCE = 1.0
"""Seconds after which something that still goes on is told, and again whenever as many have passed five times."""


@functools.cache
def logger_of(trt: Any) -> Any:
    """The one logger for this TensorRT module: it keeps to the first that it is given."""
    severity = trt.ILogger.Severity
    levels = {severity.WARNING: logging.WARNING, severity.INFO: logging.DEBUG, severity.VERBOSE: logging.DEBUG}

    class Logger(trt.ILogger):  # type: ignore[misc]
        """``errors`` are the texts of errors since it was last emptied."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, level: Any, text: str) -> None:
            if level in levels:
                _log.log(levels[level], "TensorRT: %s", text)
            else:
                self.errors.append(" ".join(text.split()))

    return Logger()


@contextmanager
def errors_of(trt: Any) -> Iterator[list[str]]:
    """Yield the list that errors are collected in while the block runs."""
    errors: list[str] = logger_of(trt).errors
    errors.clear()
    yield errors


def cause(errors: list[str], raised: Exception | None = None) -> str:
    """The first errors in one line; ``raised`` is what the attention plugin knows of it."""
    told = [*errors[:_MOST_LINES], *([f"TreeAttention: {raised}"] if raised else [])]
    return "; ".join(told) or "TensorRT gave no reason"


@contextmanager
def patience(doing: Callable[[], str]) -> Iterator[None]:
    """While the block runs, tell what it is doing: after a second, and then every few seconds."""
    done, started = threading.Event(), time.monotonic()

    def tell() -> None:
        silence = _SILENCE
        while not done.wait(silence):
            # A warning, since a program that set up no logging shows nothing less.
            _log.warning("%s (%.0f s so far)", doing(), time.monotonic() - started)
            silence = 5 * _SILENCE

    thread = threading.Thread(target=tell, name="foredraft-patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
