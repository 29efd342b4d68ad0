"""Logging in by token, as the public registries want it: each challenge names a scope and gets a token of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from foredraft.distribution.registry import Registry
from foredraft.distribution.registry_reference import parse


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        host = f"127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        url = urlparse(self.path)
        if url.path == "/token":
            self._send(200, b'{"token": "%s"}' % parse_qs(url.query)["scope"][0].encode())
            return
        scope = "pull" if self.command == "HEAD" else "pull,push"
        if self.headers.get("Authorization") == f"Bearer repository:name:{scope}":
            self._send(404 if self.command == "HEAD" else 201, location=f"http://{host}/v2/name/there")
            return
        challenge = f'Bearer realm="http://{host}/token",service="test",scope="repository:name:{scope}"'
        self._send(401, challenge=challenge)

    do_GET = do_HEAD = do_PUT = _answer  # noqa: N815

    def _send(self, status: int, body: bytes = b"", location: str = "", challenge: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.shutdown()


def test_a_token_for_each_scope(server: ThreadingHTTPServer) -> None:
    registry = Registry(parse(f"127.0.0.1:{server.server_port}/name:1"))
    assert not registry.has_blob("sha256:" + "0" * 64, "a")
    assert registry.put_manifest("1", "text/plain", b"{}").startswith("sha256:")
    assert not registry.has_blob("sha256:" + "0" * 64, "a")
