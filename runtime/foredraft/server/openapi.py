"""The OpenAPI description, made from the same tables that requests are checked against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import foredraft
from foredraft.server import fields

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_STATUSES = {
    "400": "A field is wrong, unknown or not supported.",
    "401": "No valid API key.",
    "404": "Another model.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "429": "The queue is full; Retry-After says when to try again.",
    "500": "The engine failed.",
    "503": "The server is shutting down.",
    "504": "The request took too long.",
}


def describe(model_name: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Foredraft: {model_name}", "version": foredraft.__version__},
        "paths": {
            "/v1/chat/completions": {"post": _post("Answer chat messages.", fields.CHAT, model_name)},
            "/v1/completions": {"post": _post("Continue a text.", fields.COMPLETION, model_name)},
            "/v1/models": {"get": _get("The model that is served.")},
            "/health": {"get": _get("200 while answers can be written.")},
        },
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _post(summary: str, schema: Mapping[str, Any], model_name: str) -> dict[str, Any]:
    properties = schema["properties"] | {"model": {"type": "string", "enum": [model_name]}}
    body = dict(schema) | {"properties": properties, "additionalProperties": False}
    event_stream = {"schema": {"type": "string"}}
    answers = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": event_stream}
    errors = {
        status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in _STATUSES.items()
    }
    return {
        "summary": summary,
        "security": [{}, {"key": []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": {"description": "The answer.", "content": answers}, **errors},
    }


def _get(summary: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {"summary": summary, "responses": {"200": {"description": "As asked.", "content": content}}}
