"""The API keeps what its OpenAPI description promises: schemathesis asks whatever the description allows, and more.

Accepted: all that the description allows. Refused in OpenAI's shape: all that it does not. Answers are as described,
and no request makes the server fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.server.conftest import Serve
from tests.waiting import TEST_LIMIT

pytestmark = pytest.mark.slow

_EXAMPLES = 25
_MOST_ANSWERS = 16 * 16
"""To one request: so many prompts, so many times each."""


def test_the_api_is_as_it_is_described(start_server: Serve, tiny: Path, tmp_path: Path) -> None:
    server = start_server(tiny, "--queue", str(_MOST_ANSWERS))
    description = f"http://127.0.0.1:{server.port}/openapi.json"
    options = ["--phases", "coverage,fuzzing", "--max-examples", str(_EXAMPLES), "--generation-deterministic"]
    options += ["--workers", "1", "--no-color", "--report-json-path", "report.json"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", description, *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TEST_LIMIT)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["operations"]["tested"] == 5 and report["test_cases"]["generated"] > 300
    for path in ("chat/completions", "completions"):
        assert report["valid_rates"][f"POST /v1/{path}"]["fuzzing"]["accepted"] > 5
    assert server.complete(max_tokens=2).status == 200
    server.stop()
