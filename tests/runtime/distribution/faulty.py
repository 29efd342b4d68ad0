"""A small registry in this process that tests tell to refuse: the n-th request of a kind gets the fault they name.

With a login it wants a token, as the public registries do.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlparse

_KINDS = {"/token": "token", "/uploads/": "upload", "/manifests/": "manifest"}


@dataclass(slots=True)
class Fault:
    """``status`` instead of the answer; ``late`` seconds pass first. With ``keep`` the request is carried out."""

    status: int | None
    headers: dict[str, str] = field(default_factory=dict)
    keep: bool = False
    late: float = 0.0


class FaultyRegistry:
    """Blobs and manifests in memory. ``faults``: by "VERB blob" (or upload, manifest, token), taken in turn."""

    def __init__(self, login: str | None = None) -> None:
        self._login = login
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.asked: list[str] = []
        self.paths: list[tuple[str, str | None]] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.answer(self)

            do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultyRegistry:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One request."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        url = urlparse(handler.path)
        kind = next((kind for part, kind in _KINDS.items() if part in url.path), "blob")
        if self._login and kind != "token" and handler.headers.get("Authorization") != "Bearer made":
            challenge = f'Bearer realm="http://{self.address}/token",service="made",scope="repository:made:pull,push"'
            _send(handler, 401, {"Www-Authenticate": challenge})
            return
        self.asked.append(f"{handler.command} {kind}")
        self.paths.append((handler.path, handler.headers.get("Authorization")))
        waiting = self.faults.get(f"{handler.command} {kind}")
        fault = waiting.pop(0) if waiting else None
        if fault is not None and not fault.keep:
            time.sleep(fault.late)
            _send(handler, fault.status or 500, fault.headers)
            return
        status, headers, data = self._carry_out(handler, kind, url.path, parse_qs(url.query), body)
        if fault is not None:
            time.sleep(fault.late)
            status, headers, data = (fault.status or status), {**headers, **fault.headers}, data
        _send(handler, status, headers, data)

    def _carry_out(
        self, handler: BaseHTTPRequestHandler, kind: str, path: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if kind == "token":
            granted = handler.headers.get("Authorization") == f"Basic {self._login}"
            return (200, {}, b'{"token": "made"}') if granted else (401, {}, b"")
        name = path.rpartition("/")[2]
        if kind == "upload":
            if handler.command == "POST":
                return 202, {"Location": f"{path}session"}, b""
            digest = query["digest"][0]
            assert digest == f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.blobs[digest] = body
            return 201, {}, b""
        if handler.command == "PUT":
            found = handler.headers["Content-Type"], body
            self.manifests[name] = self.manifests[f"sha256:{hashlib.sha256(body).hexdigest()}"] = found
            return 201, {}, b""
        if kind == "manifest":
            if name not in self.manifests:
                return 404, {}, b""
            return 200, {"Content-Type": self.manifests[name][0]}, self.manifests[name][1]
        return (200, {}, self.blobs[name]) if name in self.blobs else (404, {}, b"")


def _send(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes = b"") -> None:
    try:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)
    except ConnectionError:
        handler.close_connection = True
