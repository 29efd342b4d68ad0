"""Metrics, logs and the description of the API."""

from __future__ import annotations

import json
from pathlib import Path

from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server
from tests.waiting import LIMIT


def test_metrics_count_what_was_done(start_server: Serve, tiny: Path) -> None:
    server = start_server(tiny)
    usage = server.chat("la la la la", max_tokens=100).json["usage"]
    server.chat("x", temperature=-1)
    assert server.metric("tokens_total", kind="completion") == usage["completion_tokens"] == 100
    assert server.metric("tokens_total", kind="prompt") == usage["prompt_tokens"]
    assert server.metric("requests_total", path="/v1/chat/completions", status="200") == 1
    assert server.metric("requests_total", path="/v1/chat/completions", status="400") == 1
    accepted, drafted = server.total("accepted_tokens_total"), server.total("drafted_tokens_total")
    assert 0 < accepted <= drafted and server.metric("drafted_tokens_total", level="context") > 0
    assert server.metric("rounds_total") + accepted + 1 == 100
    assert server.metric("tokens_per_forward_sum") == 99
    assert server.metric("tokens_per_forward_count") == server.metric("rounds_total")
    assert server.metric("time_to_first_token_seconds_count") == 1
    assert server.metric("time_per_token_seconds_count") == server.metric("rounds_total")
    assert server.metric("answers_total", reason="length") == 1
    server.stop()


def test_every_request_is_one_line_of_json_without_its_text(start_server: Serve, tiny: Path) -> None:
    server = start_server(tiny)
    answer = server.chat("a secret question", seed=9, user="ann")
    server.request("GET", "/nothing")
    server.stop()
    for line in server.log.read_text().splitlines():
        assert {"time", "level", "logger", "message"} <= set(json.loads(line))
    assert "secret" not in server.log.read_text()
    first, second = [line for line in server.requests_logged() if line["path"] != "/health"]
    assert first["status"] == 200 and first["seed"] == 9 and first["user"] == "ann"
    assert first["completion_tokens"] == answer.json["usage"]["completion_tokens"]
    assert first["id"] == answer.headers["x-request-id"] and answer.json["id"].endswith(first["id"])
    assert first["seconds_to_first_token"] <= first["seconds"]
    assert second["status"] == 404


def test_the_api_describes_itself(server: Server) -> None:
    document = server.request("GET", "/openapi.json").json
    chat = document["paths"]["/v1/chat/completions"]["post"]
    schema = chat["requestBody"]["content"]["application/json"]["schema"]
    assert schema["additionalProperties"] is False
    assert {"temperature", "top_k", "min_p", "seed", "stop", "n"} <= set(schema["properties"])
    assert {"400", "429", "504"} <= set(chat["responses"])


def test_a_server_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from foredraft.cli import main\n"
        f"sys.exit(main(['serve', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1 and "pip install 'foredraft[serve]'" in done.stderr


def test_the_bare_runtime_imports_no_server() -> None:
    import subprocess
    import sys

    code = (
        "import sys, foredraft, foredraft.cli, foredraft.session, foredraft.async_session, foredraft.commands.serve\n"
        "print(sorted({'starlette', 'uvicorn', 'prometheus_client', 'ray', 'anyio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.strip() == "[]", done.stderr
