"""Runs the worker: one process per engine, its progress passed on, its end turned into a result or one clear error."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt.job import BuildJob

Tell = Callable[[str, float], None]
"""``(what is being done, seconds so far)``, at least once a second."""
_COMMAND = [sys.executable, "-m", "foredraft_exporter.tensorrt.worker"]


@dataclass(frozen=True, slots=True)
class Built:
    """``nbytes`` of the engine; ``memory`` is the worker's peak in bytes, ``version`` the library's."""

    seconds: float
    nbytes: int
    memory: int
    version: str
    warnings: tuple[str, ...]


def build_engine(job: BuildJob, tell: Tell | None = None) -> Built:
    """Build one engine. Raises ForedraftError naming graph, node and cause; nothing is left behind then."""
    started = time.monotonic()
    name, doing = Path(job.engine).stem, "starting"
    warnings: list[str] = []
    with _worker(job) as (lines, ended):
        while True:
            try:
                event = lines.get(timeout=1.0)
            except queue.Empty:
                event = {"event": "silence"}
            match event.get("event"):
                case "progress":
                    doing = _phase(event)
                case "warning":
                    warnings.append(str(event["text"]))
                case "error":
                    Path(job.engine).unlink(missing_ok=True)
                    raise ForedraftError(str(event["text"]))
                case "done":
                    return Built(event["seconds"], event["bytes"], event["memory"], event["version"], tuple(warnings))
                case "end":
                    Path(job.engine).unlink(missing_ok=True)
                    raise ForedraftError(_death(job, *ended()))
            if tell:
                tell(f"{name}: {doing}", time.monotonic() - started)


def _phase(event: dict[str, Any]) -> str:
    phase, step, steps = str(event["phase"]), event["step"], event["steps"]
    return f"{phase} {step}/{steps}" if steps > 1 else phase


@contextlib.contextmanager
def _worker(job: BuildJob) -> Iterator[tuple[queue.Queue[dict[str, Any]], Callable[[], tuple[int, str]]]]:
    """The worker's lines, ended by ``end``, and how it ended: (exit code, its last words)."""
    process = subprocess.Popen(
        _COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    assert process.stdin and process.stdout and process.stderr
    lines: queue.Queue[dict[str, Any]] = queue.Queue()
    words: list[str] = []
    readers = [
        threading.Thread(target=_read_events, args=(process.stdout, lines), daemon=True),
        threading.Thread(target=lambda: words.extend(process.stderr or ()), daemon=True),
    ]
    for reader in readers:
        reader.start()

    def ended() -> tuple[int, str]:
        readers[1].join(5)
        return process.wait(), " ".join("".join(words).split())[-400:]

    try:
        with contextlib.suppress(BrokenPipeError):  # it died at once, which is told below
            process.stdin.write(job.to_json())
            process.stdin.close()
        yield lines, ended
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for reader in readers:
            reader.join(5)
        for pipe in (process.stdout, process.stderr):
            pipe.close()


def _read_events(pipe: IO[str], lines: queue.Queue[dict[str, Any]]) -> None:
    for line in pipe:
        with contextlib.suppress(ValueError):
            lines.put(json.loads(line))
    lines.put({"event": "end"})


def _death(job: BuildJob, code: int, words: str) -> str:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    hint = ""
    if code == -signal.SIGABRT:
        hint = "; the library aborts when a file of its own is missing: reinstall it, or see docs/tensorrt.md"
    if code == -signal.SIGKILL:
        hint = "; the system may have run out of memory: build fewer targets at once, or with --weights inputs"
    return f"{job.graph}: {job.library}'s builder {how}{hint}{f': {words}' if words else ''}"
