"""A proxy before a registry that writes down what is asked, and can break off or hold back what is answered."""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tests.waiting import TEST_LIMIT

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: ``start`` is the first byte of a range, 0 for the whole."""

    method: str
    path: str
    start: int


class Proxy:
    """Forwards to ``port`` of this machine from a port of its own.

    Of each blob it sends ``break_after`` bytes and breaks off, ``breaks_left`` times; or it sends whole blocks up to
    ``hold_after`` bytes, and then nothing until it is reset.
    """

    def __init__(self, port: int) -> None:
        self.asked: list[Asked] = []
        self.break_after: int | None = None
        self.breaks_left = 0
        self.hold_after: int | None = None
        self._go_on = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy.forward(self, port)

            do_HEAD = do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port

    def reset(self) -> None:
        """Forget what was asked, and do no harm."""
        self.asked.clear()
        self.break_after, self.breaks_left, self.hold_after = None, 0, None
        self._go_on.set()
        self._go_on = threading.Event()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def uploads(self) -> list[str]:
        """Digests of blobs that were uploaded."""
        return [a.path.rpartition("digest=")[2] for a in self.asked if a.method == "PUT" and "digest=" in a.path]

    def blobs(self) -> list[Asked]:
        """Downloads of blobs."""
        return [a for a in self.asked if a.method == "GET" and "/blobs/" in a.path]

    def forward(self, handler: BaseHTTPRequestHandler, port: int) -> None:
        """Pass one request on and its answer back."""
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.asked.append(Asked(handler.command, handler.path, start))
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in handler.headers.items() if name != "Connection"}
        upstream = http.client.HTTPConnection("127.0.0.1", port)
        try:
            upstream.request(handler.command, handler.path, body, headers)
            answer = upstream.getresponse()
            handler.send_response(answer.status)
            for name, value in answer.getheaders():
                handler.send_header(name, value)
            handler.end_headers()
            self._answer(handler, answer, "/blobs/sha256:" in handler.path and handler.command == "GET")
        except ConnectionError:
            handler.close_connection = True
        finally:
            upstream.close()

    def _answer(self, handler: BaseHTTPRequestHandler, answer: http.client.HTTPResponse, blob: bool) -> None:
        sent = 0
        while block := answer.read(_BLOCK):
            if blob and self.hold_after is not None and sent + len(block) > self.hold_after:
                self._go_on.wait(TEST_LIMIT)
            if blob and self.break_after is not None and self.breaks_left and sent + len(block) > self.break_after:
                handler.wfile.write(block[: self.break_after - sent])
                self.breaks_left -= 1
                handler.close_connection = True
                return
            handler.wfile.write(block)
            sent += len(block)
