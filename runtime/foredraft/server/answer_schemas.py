"""What this server answers, as JSON Schema: the counterpart of ``fields``."""

from __future__ import annotations

from typing import Any

from foredraft.server.schema import Schema


def _object(**properties: Schema) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_LOGPROB: Schema = {"type": "number", "maximum": 0}
_REASON: Schema = {"enum": ["stop", "length"]}

_USAGE = _object(
    prompt_tokens=_COUNT,
    completion_tokens=_COUNT,
    total_tokens=_COUNT,
    prompt_tokens_details=_object(cached_tokens=_COUNT),
)
_RANKED = _object(
    token=_TEXT, logprob=_LOGPROB, bytes=_or_null(_list({"type": "integer", "minimum": 0, "maximum": 255}))
)
_CHAT_LOGPROBS = _object(
    content=_list({"allOf": [_RANKED, _object(top_logprobs=_list(_RANKED))]}), refusal={"type": "null"}
)
_COMPLETION_LOGPROBS = _object(
    tokens=_list(_TEXT),
    token_logprobs=_list(_LOGPROB),
    top_logprobs=_list({"type": "object", "additionalProperties": _LOGPROB}),
    text_offset=_list(_COUNT),
)


def _answer(kind: str, logprobs: Schema, **content: Schema) -> dict[str, Any]:
    choice = _object(index=_COUNT, **content, logprobs=_or_null(logprobs), finish_reason=_REASON)
    head = {"id": _TEXT, "object": {"const": kind}, "created": _COUNT, "model": _TEXT}
    return _object(**head, choices=_list(choice), usage=_USAGE)


CHAT = _answer(
    "chat.completion",
    _CHAT_LOGPROBS,
    message=_object(role={"const": "assistant"}, content=_TEXT, refusal={"type": "null"}),
)
COMPLETION = _answer("text_completion", _COMPLETION_LOGPROBS, text=_TEXT)
EVENT = _object(data=_TEXT)
"""Of a stream: ``data`` is a chunk as JSON, or ``[DONE]``."""
MODEL = _object(
    id=_TEXT,
    object={"const": "model"},
    created=_COUNT,
    owned_by=_TEXT,
    context_length={"type": "integer", "minimum": 1},
)
MODELS = _object(object={"const": "list"}, data=_list(MODEL))
HEALTH = _object(status={"const": "ok"})
ERROR = _object(error=_object(message=_TEXT, type=_TEXT, param=_or_null(_TEXT), code=_or_null(_TEXT)))
