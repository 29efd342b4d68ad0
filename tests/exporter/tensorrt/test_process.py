"""However a builder's process ends, the user gets one clear line, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from unittest import mock

import psutil
import pytest

from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt import process
from foredraft_exporter.tensorrt.job import BuildJob
from foredraft_exporter.tensorrt.process import build_engine
from tests.waiting import until


def job(folder: Path) -> BuildJob:
    return BuildJob(
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


@pytest.mark.slow
def test_silence_is_reported_every_second(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    code = (
        "import json, pathlib, time\n"
        "def tell(**values): print(json.dumps(values), flush=True)\n"
        "tell(event='progress', phase='kernels', step=1, steps=9)\n"
        f"while not pathlib.Path({str(heard)!r}).exists(): time.sleep(0.05)\n"
        "tell(event='done', seconds=1.0, bytes=2, memory=3, version='1')"
    )
    told: list[str] = []

    def listen(what: str, seconds: float) -> None:
        told.append(what)
        if told.count("segment-0: kernels 1/9") == 3:
            heard.touch()

    with worker(code):
        built = build_engine(job(tmp_path), listen)
    assert built.nbytes == 2


def test_ctrl_c_ends_the_builder(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'writing')!r}).write_text(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'writing')!r}, {str(pid_file)!r})\n"
        "time.sleep(3600)"
    )

    def press() -> None:
        until(pid_file.exists, "the builder runs")
        os.kill(os.getpid(), signal.SIGINT)

    with worker(code), pytest.raises(KeyboardInterrupt):
        threading.Thread(target=press).start()
        build_engine(job(tmp_path))
    pid = int(pid_file.read_text())
    until(lambda: not psutil.pid_exists(pid), "the builder has ended")
