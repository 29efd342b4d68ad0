"""However a builder's process ends, the user gets one clear line, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import psutil
import pytest

from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt import process
from foredraft_exporter.tensorrt.job import Job
from foredraft_exporter.tensorrt.process import build_engine


def job(folder: Path) -> Job:
    return Job(
        "tensorrt-rtx", str(folder / "segment-0.onnx"), str(folder / "segment-0.engine"), ("sm89",), 64, 256, 528
    )


def worker(code: str) -> mock._patch:
    """The worker replaced by a few lines of Python."""
    return mock.patch.object(process, "_COMMAND", [sys.executable, "-c", code])


def test_an_abort_is_explained(tmp_path: Path) -> None:
    message = r"segment-0.onnx: .*SIGABRT; the library aborts.*terminate called"
    code = "import os, sys; sys.stderr.write('terminate called'); sys.stderr.flush(); os.abort()"
    with worker(code), pytest.raises(ForedraftError, match=message):
        build_engine(job(tmp_path))


def test_a_killed_builder_hints_at_memory(tmp_path: Path) -> None:
    message = "SIGKILL; the system may have run out of memory"
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with worker(code), pytest.raises(ForedraftError, match=message):
        build_engine(job(tmp_path))


def test_a_half_written_engine_is_removed(tmp_path: Path) -> None:
    code = "import json, sys; j = json.load(sys.stdin); open(j['engine'], 'w').write('half'); sys.exit(3)"
    with worker(code), pytest.raises(ForedraftError, match="ended with code 3"):
        build_engine(job(tmp_path))
    assert not (tmp_path / "segment-0.engine").exists()


def test_silence_is_reported_every_second(tmp_path: Path) -> None:
    code = (
        "import json, time\n"
        "def tell(**values): print(json.dumps(values), flush=True)\n"
        "tell(event='progress', phase='kernels', step=1, steps=9)\n"
        "time.sleep(2.5)\n"
        "tell(event='done', seconds=1.0, bytes=2, memory=3, version='1')"
    )
    told: list[str] = []
    with worker(code):
        built = build_engine(job(tmp_path), lambda what, seconds: told.append(what))
    assert built.nbytes == 2
    assert told.count("segment-0: kernels 1/9") >= 2


def test_ctrl_c_ends_the_builder(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    interrupt = threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    with worker(code), pytest.raises(KeyboardInterrupt):
        interrupt.start()
        build_engine(job(tmp_path))
    deadline = time.monotonic() + 10
    while psutil.pid_exists(int(pid_file.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid_file.read_text()))
