"""The ASGI application: routes, errors and the service's life."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from foredraft.server.api_errors import ApiError
from foredraft.server.edge import Edge, error_response
from foredraft.server.endpoints import ROUTES
from foredraft.server.service import Service
from foredraft.server.settings import ENVIRONMENT, Settings

_ENCODERS = 2
"""Prompts that are turned into tokens at the same time, in threads: long ones take long, and memory."""


def create_app(settings: Settings) -> Starlette:
    """Opens the bundle and loads the engine; raises ForedraftError if that cannot be done."""
    service = Service(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.encoders = anyio.CapacityLimiter(_ENCODERS)
        yield
        await anyio.to_thread.run_sync(service.close)

    paths = frozenset(route.path for route in ROUTES)
    app = Starlette(
        routes=ROUTES,
        lifespan=lifespan,
        middleware=[Middleware(Edge, metrics=service.metrics, api_key=settings.api_key, paths=paths)],
        exception_handlers={HTTPException: _http_error},
    )
    app.state.service = service
    return app


def from_environment() -> Starlette:
    """For worker processes, which get their settings through the environment."""
    return create_app(Settings.from_json(os.environ[ENVIRONMENT]))


def _http_error(request: Request, error: Exception) -> Response:
    """A path or a method that does not exist, in the same shape as every other error."""
    assert isinstance(error, HTTPException)
    texts = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not possible here"}
    message = texts.get(error.status_code, error.detail)
    return error_response(ApiError(error.status_code, message, headers=dict(error.headers or {})))
