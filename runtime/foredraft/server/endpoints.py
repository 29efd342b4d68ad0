"""The HTTP endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foredraft.server import fields, openapi, page
from foredraft.server.api_errors import ApiError
from foredraft.server.calls import Call, chat_call, completion_call
from foredraft.server.exchange import Exchange
from foredraft.server.json_body import read_object
from foredraft.server.schema import Schema
from foredraft.server.service import Service


async def chat_completions(request: Request) -> Any:
    """POST /v1/chat/completions"""
    return await _answer(request, fields.CHAT, chat_call)


async def completions(request: Request) -> Any:
    """POST /v1/completions"""
    return await _answer(request, fields.COMPLETION, completion_call)


async def models(request: Request) -> Response:
    """GET /v1/models"""
    return _json({"object": "list", "data": [_model(_service(request))]})


async def model(request: Request) -> Response:
    """GET /v1/models/NAME"""
    service = _service(request)
    service.check_model(request.path_params["name"])
    return _json(_model(service))


async def health(request: Request) -> Response:
    """GET /health: 200 while answers can be written."""
    if not _service(request).scheduler.alive:
        raise ApiError(503, "the scheduler has stopped; restart the server", code="unhealthy")
    return _json({"status": "ok"})


async def metrics(request: Request) -> Response:
    """GET /metrics, for Prometheus"""
    return Response(_service(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def description(request: Request) -> Response:
    """GET /openapi.json"""
    service = _service(request)
    return _json(openapi.describe(service.model_name, service.bundle.manifest.model.vocab_size, service.traits))


async def index(request: Request) -> Response:
    """GET /: a page to chat on"""
    return Response(page.HTML, headers=page.HEADERS, media_type="text/html")


ROUTES = [
    Route("/", index),
    Route("/health", health),
    Route("/metrics", metrics),
    Route("/openapi.json", description),
    Route("/v1/models", models),
    Route("/v1/models/{name:path}", model),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
]


async def _answer(request: Request, schema: Schema, to_call: Callable[[Mapping[str, Any]], Call]) -> Any:
    """An ASGI application: the answer as JSON, or as an event stream."""
    service = _service(request)
    body = await read_object(request, service.settings.max_body)
    given = fields.read_fields(body, schema)
    service.check_model(given["model"])
    call = to_call(given)
    log = request.state.log
    log |= {"stream": call.stream, "answers": len(call.requests) * call.n, "seed": call.seed}
    if call.user is not None:
        log["user"] = call.user
    limiter = request.app.state.encoders
    checked = await anyio.to_thread.run_sync(service.check, call, limiter=limiter)
    exchange = Exchange(service, call, checked, request.state.id, log)
    return exchange if call.stream else _json(await exchange.whole(request.receive))


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _model(service: Service) -> dict[str, Any]:
    return {
        "id": service.model_name,
        "object": "model",
        "created": service.created,
        "owned_by": "foredraft",
        "context_length": service.context,
    }


def _json(value: dict[str, Any]) -> Response:
    return Response(json.dumps(value), media_type="application/json")
