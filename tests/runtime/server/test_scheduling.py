"""Several answers at once: fair, bounded, cancelled within a round, finished at shutdown."""

from __future__ import annotations

import threading
from http.client import HTTPResponse
from pathlib import Path

import pytest

from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server, lines
from tests.waiting import LIMIT, until

pytestmark = pytest.mark.slow


def test_a_client_that_is_gone_frees_its_place(start_server: Serve, slow: Path) -> None:
    server = start_server(slow, "--no-draft", "--sequences", "1", "--queue", "4")
    connection, response = server.open_stream()
    next(lines(response))
    assert server.metric("active_sequences") == 1
    response.close()
    connection.close()
    until(lambda: server.metric("active_sequences") == 0, "the place is free")
    assert server.complete(max_tokens=3).status == 200
    gone = next(line for line in server.requests_logged() if line["status"] == 499)
    assert gone["finish_reasons"] == []


def test_a_client_that_is_gone_before_the_answer_or_in_the_queue(start_server: Serve, slow: Path) -> None:
    server = start_server(slow, "--no-draft", "--sequences", "1", "--queue", "4")
    first = server.open_stream()
    next(lines(first[1]))
    waiting = server.connection()
    body = b'{"model": "tiny", "prompt": "x", "max_tokens": 1000}'
    waiting.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    until(lambda: server.metric("waiting_requests") == 1, "a request waits")
    waiting.close()
    until(lambda: server.metric("waiting_requests") == 0, "the queue is empty")
    first[0].close()
    first[1].close()
    until(lambda: server.metric("active_sequences") == 0, "the place is free")


def test_a_full_queue_says_when_to_come_back(start_server: Serve, slow: Path) -> None:
    server = start_server(slow, "--no-draft", "--sequences", "1", "--queue", "1")
    connection, response = server.open_stream()
    next(lines(response))
    waiting = threading.Thread(target=server.complete, kwargs={"max_tokens": 2})
    waiting.start()
    until(lambda: server.metric("waiting_requests") == 1, "a request waits")
    refused = server.complete(max_tokens=2)
    assert refused.status == 429 and refused.error["code"] == "queue_full"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert server.request("GET", "/health").status == 200
    response.close()
    connection.close()
    waiting.join(LIMIT)
    assert server.complete(max_tokens=2).status == 200
    too_many = server.complete(["a"] * 4, max_tokens=2)
    assert too_many.status == 400 and "at most 2" in too_many.error["message"]


def test_answers_take_turns(start_server: Serve, slow: Path) -> None:
    """A short answer that comes later is finished long before a long one that came first."""
    server = start_server(slow, "--no-draft", "--sequences", "2")
    connection, response = server.open_stream(max_tokens=2000)
    stream = lines(response)
    next(stream)
    assert server.complete(max_tokens=5).status == 200
    assert server.metric("active_sequences") == 1
    connection.close()
    response.close()


def test_a_request_may_take_only_so_long(start_server: Serve, slow: Path) -> None:
    server = start_server(slow, "--no-draft", "--timeout", "0.3", "--sequences", "1")
    late = server.complete(max_tokens=2000)
    assert late.status == 504 and "0.3 s" in late.error["message"]

    def begun() -> HTTPResponse | None:
        """A stream whose first token came in time, as it does not always where a machine is busy."""
        connection, response = server.open_stream(max_tokens=2000)
        if response.status == 200:
            return response
        connection.close()
        return None

    response = until(begun, "a first token in 0.3 s")
    assert response is not None and list(lines(response))[-1]["error"]["code"] == "timeout"
    until(lambda: server.metric("active_sequences") == 0, "the place is free")
    response.close()


def test_a_shutdown_finishes_streams(start_server: Serve, slow: Path) -> None:
    server = start_server(slow, "--no-draft")
    alone = server.complete(max_tokens=500).text
    connection, response = server.open_stream(max_tokens=500)
    stream = lines(response)
    text = next(stream)["choices"][0]["text"]
    server.process.terminate()
    until(lambda: not server.listens(), "nothing new is taken")
    text += "".join(event["choices"][0]["text"] for event in stream)
    assert text == alone
    assert server.process.wait(LIMIT) == 0
    connection.close()


def test_a_shutdown_does_not_wait_for_ever(start_server: Serve, slow: Path) -> None:
    server = start_server(slow, "--no-draft", "--drain", "1")
    connection, response = server.open_stream(n=16)
    stream = lines(response)
    next(stream)
    server.process.terminate()
    assert [*stream][-1]["error"]["code"] == "shutting_down"
    assert server.process.wait(LIMIT) == 0
    cut = server.requests_logged()[-1]
    assert cut["path"] == "/v1/completions" and cut["finish_reasons"] == [] and cut["status"] == 503
    assert "Traceback" not in server.log.read_text()
    connection.close()
    response.close()


def test_processes_share_a_port(start_server: Serve, slow: Path) -> None:
    server = start_server(slow, "--no-draft", "--workers", "2")
    answers = {server.complete(max_tokens=8).text for _ in range(8)}
    assert len(answers) == 1
    assert server.metric("tokens_total", kind="completion") == 64  # of both processes together
    assert server.stop() == 0
    assert server.process.returncode == 0


def test_a_port_that_is_taken(server: Server, slow: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "foredraft.cli", "serve", str(slow), "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1
    assert f"port {server.port}" in done.stderr and "--port" in done.stderr and len(done.stderr.splitlines()) == 1
