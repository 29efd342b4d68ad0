"""A real server in a process of its own, on a free port, and a plain HTTP client for it."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import LIMIT, until


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, after a check that it has OpenAI's shape."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"]
        return error

    @property
    def text(self) -> str:
        choice = self.json["choices"][0]
        return choice["message"]["content"] if "message" in choice else choice["text"]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a stream, after a check that it ends as it should."""
        parts = self.body.decode().split("\n\n")
        assert parts[-2:] == ["data: [DONE]", ""], parts[-2:]
        return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


class Server:
    """``foredraft serve`` on a bundle; ``port`` is known once it listens."""

    def __init__(self, bundle: Path, log: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.log = log
        command = [
            sys.executable,
            "-m",
            "foredraft.cli",
            "serve",
            str(bundle),
            "--port",
            "0",
            "--threads",
            "2",
            *options,
        ]
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **(environment or {})}
            )
        self.port = self._wait_for_port()
        until(self.listens, "the server answers")

    def request(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None, raw: bytes = b""
    ) -> Reply:
        connection = self.connection()
        sent = raw or (json.dumps(body).encode() if body is not None else None)
        kind = {"Content-Type": "application/json"} if sent is not None else {}
        connection.request(method, path, sent, {**kind, **(headers or {})})
        response = connection.getresponse()
        reply = Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return reply

    def complete(self, prompt: object = "hello", **fields: object) -> Reply:
        return self.request("POST", "/v1/completions", {"model": "tiny", "prompt": prompt, "temperature": 0, **fields})

    def chat(self, *contents: str, **fields: object) -> Reply:
        messages = [{"role": "user", "content": content} for content in contents]
        body = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 16, **fields}
        return self.request("POST", "/v1/chat/completions", body)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def open_stream(self, **fields: object) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A streamed completion, not read yet."""
        connection = self.connection()
        body = {"model": "tiny", "prompt": "hello", "temperature": 0, "stream": True, "max_tokens": 2000, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def metric(self, name: str, **labels: str) -> float:
        text = self.request("GET", "/metrics").body.decode()
        wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
        line = re.search(rf"^foredraft_{name}{re.escape('{' + wanted + '}') if labels else ''} (\S+)$", text, re.M)
        return float(line[1]) if line else 0.0

    def total(self, name: str) -> float:
        """A metric, summed over its labels."""
        text = self.request("GET", "/metrics").body.decode()
        return sum(float(value) for value in re.findall(rf"^foredraft_{name}{{.*}} (\S+)$", text, re.M))

    def requests_logged(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["logger"] == "foredraft.access"]

    def listens(self) -> bool:
        """Whether it takes requests."""
        try:
            return self.request("GET", "/health").status == 200
        except OSError:
            return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(LIMIT)

    def _wait_for_port(self) -> int:
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        line = self.process.stdout.readline().decode() if ready else ""
        found = re.search(r":(\d+)$", line.strip())
        if not found:
            self.process.kill()
            raise AssertionError(f"the server did not start: {line}{self.log.read_text()}")
        return int(found[1])


def lines(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a stream, as they come."""
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])
