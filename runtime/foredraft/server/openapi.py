"""The OpenAPI description, made from the same tables that requests are checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import foredraft
from foredraft.server import answer_schemas, fields
from foredraft.server.schema import Schema
from foredraft.text.template_probe import Traits

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
_KEY: list[dict[str, list[str]]] = [{}, {"key": []}]


def describe(model_name: str, vocab_size: int, traits: Traits | None) -> dict[str, Any]:
    """An OpenAPI 3.1 document; ``traits`` are those of the model's chat template."""
    chat = _post("Answer chat messages.", _body(fields.CHAT, model_name, vocab_size), answer_schemas.CHAT)
    if traits:
        _narrow(chat["requestBody"]["content"]["application/json"]["schema"]["properties"], traits)
    completion = _post("Continue a text.", _body(fields.COMPLETION, model_name, vocab_size), answer_schemas.COMPLETION)
    name = {"name": "name", "in": "path", "required": True, "schema": {"enum": [model_name]}}
    model = _get("A model by its name.", answer_schemas.MODEL, ("401", "404"))
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Foredraft: {model_name}", "version": foredraft.__version__},
        "paths": {
            "/v1/chat/completions": {"post": chat},
            "/v1/completions": {"post": completion},
            "/v1/models": {"get": _get("The model that is served.", answer_schemas.MODELS, ("401",))},
            "/v1/models/{name}": {"get": model, "parameters": [name]},
            "/health": {"get": _get("200 while answers can be written.", answer_schemas.HEALTH, ("503",))},
        },
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _post(summary: str, body: Schema, answer: Schema) -> dict[str, Any]:
    content = _json(answer) | {"text/event-stream": {"schema": answer_schemas.EVENT}}
    return {
        "summary": summary,
        "security": _KEY,
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {"200": {"description": "The answer.", "content": content}, **_errors(tuple(_STATUSES))},
    }


def _get(summary: str, answer: Schema, errors: Sequence[str]) -> dict[str, Any]:
    security = {"security": _KEY} if "401" in errors else {}
    responses = {"200": {"description": "As asked.", "content": _json(answer)}, **_errors(errors)}
    return {"summary": summary, **security, "responses": responses}


def _errors(statuses: Sequence[str]) -> dict[str, Any]:
    return {status: {"description": _STATUSES[status], "content": _json(answer_schemas.ERROR)} for status in statuses}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _body(schema: Schema, model_name: str, vocab_size: int) -> dict[str, Any]:
    """The fields of one endpoint, those that ask for nothing among them, and which go with which."""
    body = _described(schema, vocab_size)
    properties = body["properties"]
    for name, values in fields.OFF.items():
        properties.setdefault(name, {"enum": [None, *values]})
    properties["model"] = {"enum": [model_name]}
    if "messages" in properties:
        message = properties["messages"]["items"]["properties"]
        message |= {name: {"enum": [None, []]} for name in fields.OFF_IN_MESSAGE}
        properties["messages"]["items"]["allOf"] = list(_MESSAGE_RULES)
    return body | {"allOf": _rules(schema["properties"])}


def _described(schema: Schema, vocab_size: int) -> dict[str, Any]:
    """As it is checked: null stands for a field that is not given, and what is not listed is refused."""
    described = dict(schema)
    if schema is fields.TOKEN_IDS:
        return described | {"items": schema["items"] | {"maximum": vocab_size - 1}}
    if "anyOf" in schema:
        described["anyOf"] = [_described(option, vocab_size) for option in schema["anyOf"]]
    if "items" in schema:
        described["items"] = _described(schema["items"], vocab_size)
    if "properties" in schema:
        given = {name: _described(value, vocab_size) for name, value in schema["properties"].items()}
        required = schema.get("required", ())
        described["properties"] = {
            name: value if name in required else {"anyOf": [value, {"type": "null"}]} for name, value in given.items()
        }
        described["additionalProperties"] = False
    return described


def _rules(known: Schema) -> list[dict[str, Any]]:
    rules = [
        {"anyOf": [_none_or(name, *nothing), {"properties": {other: {"const": True}}, "required": [other]}]}
        for name, (other, nothing) in fields.NEEDS.items()
        if name in known
    ]
    without_trace = {"properties": {"foredraft": {"properties": {"trace": {"enum": [False, None]}}}}}
    rules.append({"anyOf": [without_trace, {"properties": {"stream": {"const": True}}, "required": ["stream"]}]})
    return rules


def _narrow(properties: dict[str, Any], traits: Traits) -> None:
    """Leave out what this model's chat template cannot write."""
    message = properties["messages"]["items"]["properties"]
    roles = {"system": traits.system, "developer": traits.system or traits.developer, "tool": traits.tool_results}
    message["role"] = {**message["role"], "enum": [r for r in message["role"]["enum"] if roles.get(r, True)]}
    if not traits.tool_calls:
        message["tool_calls"] = {"enum": [None, []]}
    if not traits.names:
        properties["messages"]["items"]["allOf"].append({"anyOf": [_none_or("name"), _has("role", "tool")]})
    variables: dict[str, Any] = {name: {} for name in sorted(traits.variables)}
    variables_only = {"type": "object", "properties": variables, "additionalProperties": False}
    properties["chat_template_kwargs"] = {"anyOf": [variables_only, {"type": "null"}]}


def _none_or(name: str, *nothing: Any) -> dict[str, Any]:
    return {"properties": {name: {"enum": [None, *nothing]}}}


def _has(name: str, value: str) -> dict[str, Any]:
    return {"properties": {name: {"const": value}}, "required": [name]}


_SAYS = {"properties": {"content": {"type": ["string", "array"]}}, "required": ["content"]}
_CALLS = {"properties": {"tool_calls": {"type": "array", "minItems": 1}}, "required": ["tool_calls"]}
_MESSAGE_RULES: list[dict[str, Any]] = [
    {"anyOf": [_SAYS, _CALLS]},
    {"anyOf": [_none_or("tool_calls", []), _has("role", "assistant")]},
    {"anyOf": [_none_or("tool_call_id"), _has("role", "tool")]},
]
