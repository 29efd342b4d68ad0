"""What every request passes: an id, the API key, errors in OpenAI's shape, one log line and one count."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foredraft.server.api_errors import ApiError, ClientGoneError, as_api_error
from foredraft.server.logs import ACCESS
from foredraft.server.metrics import Metrics

_log = logging.getLogger(ACCESS)
_CLIENT_GONE = 499
"""The status that nginx gave to a connection that the client closed before the answer; it is only logged."""
_PROTECTED = "/v1/"


class Edge:
    """ASGI middleware. It leaves ``log`` (a dict for the request's log line) and ``id`` in the request's state."""

    def __init__(self, app: ASGIApp, metrics: Metrics, api_key: str | None, paths: frozenset[str]) -> None:
        """``paths`` are those that the metrics tell apart."""
        self._app = app
        self._metrics = metrics
        self._key = api_key.encode() if api_key is not None else None
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and see to it that it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        log: dict[str, Any] = {}
        request_id = secrets.token_hex(12)
        scope["state"] = {**scope.get("state", {}), "log": log, "id": request_id}
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        try:
            try:
                self._authorize(scope)
                await self._app(scope, receive, send_on)
            except ClientGoneError:
                log["status"] = _CLIENT_GONE
            except (Exception, asyncio.CancelledError) as error:
                if status:
                    raise
                await self._refuse(error, log)(scope, receive, send_on)
        finally:
            self._note(scope, log.pop("status", status or _CLIENT_GONE), time.perf_counter() - started, log, request_id)

    def _authorize(self, scope: Scope) -> None:
        if self._key is None or not scope["path"].startswith(_PROTECTED):
            return
        kind, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        given = key.strip().encode("latin-1")
        if kind.lower() != "bearer" or not hmac.compare_digest(given, self._key):
            message = "no valid API key; send it as: Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def _refuse(self, error: BaseException, log: dict[str, Any]) -> Response:
        known = as_api_error(error)
        log["error"] = known.message
        if known.status >= 500 and not isinstance(error, ApiError | asyncio.CancelledError):
            _log.error("a request failed", exc_info=error)
        return error_response(known)

    def _note(self, scope: Scope, status: int, seconds: float, log: dict[str, Any], request_id: str) -> None:
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.request(path, status)
        fields = {
            "id": request_id,
            "client": (scope.get("client") or ("",))[0],
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "seconds": round(seconds, 4),
        }
        _log.info("request", extra={"fields": fields | log})


def error_response(error: ApiError) -> Response:
    """An error as an HTTP response. ASCII, since it may quote what is not valid Unicode."""
    return Response(json.dumps(error.to_json()), error.status, error.headers, "application/json")
