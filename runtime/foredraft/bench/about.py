"""Under what circumstances something was measured: machine, versions, date, command line."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def circumstances() -> dict[str, str]:
    """{what: value} in the order to show; no name of a person or a host."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} logical cores, {platform.system()} {platform.machine()}",
        "versions": f"foredraft {version('foredraft')}, onnxruntime {version('onnxruntime')}, "
        f"Python {platform.python_version()}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or "unknown processor"
