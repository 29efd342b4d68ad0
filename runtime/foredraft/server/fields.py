"""The fields of the two endpoints, as JSON Schema, and those of OpenAI's API that mean something we do not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foredraft.server.api_errors import refuse
from foredraft.server.schema import Schema, check_object
from foredraft.text.stops import MAX_STOP_LENGTH, MAX_STOPS

MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20
_COUNT = 10**18
"""More than any number of tokens: larger ones are a mistake of the client."""

_STOP = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH}
TOKEN_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}}
_TEXT_PART = {
    "type": "object",
    "properties": {"type": {"type": "string", "enum": ["text"]}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_FUNCTION = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
    "required": ["name", "arguments"],
}
_TOOL_CALL = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "type": {"type": "string", "enum": ["function"]}, "function": _FUNCTION},
    "required": ["function"],
}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT_PART}],
            "description": "a string, or a list of text parts",
        },
        "name": {"type": "string"},
        "tool_call_id": {"type": "string"},
        "tool_calls": {"type": "array", "items": _TOOL_CALL},
    },
    "required": ["role"],
}
"""What of it a model can take depends on its chat template: see ``foredraft.text.messages``."""
_SHARED: dict[str, Schema] = {
    "model": {"type": "string"},
    "temperature": {"type": "number", "minimum": 0, "maximum": 100},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0, "maximum": 10_000_000},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "repetition_penalty": {"type": "number", "minimum": 0.01, "maximum": 100},
    "seed": {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1},
    "stop": {
        "anyOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}],
        "description": f"a string, or a list of at most {MAX_STOPS} strings, of 1 to {MAX_STOP_LENGTH} characters",
    },
    "max_tokens": {"type": "integer", "minimum": 0, "maximum": _COUNT},
    "n": {"type": "integer", "minimum": 1, "maximum": MAX_CHOICES},
    "stream": {"type": "boolean"},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "user": {"type": "string", "maxLength": 256},
    "split_special_tokens": {"type": "boolean"},
    "foredraft": {"type": "object", "properties": {"trace": {"type": "boolean"}}},
}
CHAT: Schema = {
    "type": "object",
    "properties": {
        **_SHARED,
        "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": 10_000},
        "max_completion_tokens": {"type": "integer", "minimum": 0, "maximum": _COUNT},
        "chat_template_kwargs": {"type": "object"},
        "logprobs": {"type": "boolean"},
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": MAX_TOP_LOGPROBS},
    },
    "required": ["model", "messages"],
}
COMPLETION: Schema = {
    "type": "object",
    "properties": {
        **_SHARED,
        "prompt": {
            "anyOf": [
                {"type": "string"},
                TOKEN_IDS,
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_CHOICES},
                {"type": "array", "items": TOKEN_IDS, "minItems": 1, "maxItems": MAX_CHOICES},
            ],
            "description": f"a string, a list of token ids, or a list of at most {MAX_CHOICES} of one of these",
        },
        "logprobs": {"type": "integer", "minimum": 0, "maximum": MAX_TOP_LOGPROBS},
    },
    "required": ["model", "prompt"],
}
NEEDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "stream_options": ("stream", ({}, {"include_usage": False})),
    "top_logprobs": ("logprobs", (0,)),
}
"""Fields that are only allowed where another one is true, or with a value that asks for nothing."""

OFF: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (False,),
    "prediction": (),
    "prompt_cache_key": (),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "safety_identifier": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}
"""OpenAI's fields that are not supported, with the values that ask for nothing and are therefore accepted."""
OFF_IN_MESSAGE = ("annotations", "audio", "function_call", "refusal")
"""What the official client adds, as null or an empty list, to an answer that is sent back as a message."""
_UNSUPPORTED = "this server does not support it, and does not ignore it"


def read_fields(body: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The fields that were given, checked. Raises ApiError for one that is unknown, wrong or not supported."""
    wanted = {name: value for name, value in body.items() if not _is_off(name, value, schema)}
    if isinstance(messages := wanted.get("messages"), list):
        wanted["messages"] = [_without_off(f"messages[{i}]", message) for i, message in enumerate(messages)]
    return check_object("", wanted, schema)


def _is_off(name: str, value: Any, schema: Schema) -> bool:
    if name not in OFF or name in schema["properties"]:
        return False
    if value is None or any(value == off and type(value) is type(off) for off in OFF[name]):
        return True
    raise refuse(name, _UNSUPPORTED, "unsupported_field")


def _without_off(where: str, message: Any) -> Any:
    """The message without what asks for nothing. Raises ApiError for what only other servers can do."""
    if not isinstance(message, dict):
        return message
    for name in OFF_IN_MESSAGE:
        if message.get(name) not in (None, []):
            raise refuse(f"{where}.{name}", _UNSUPPORTED, "unsupported_field")
    parts = message.get("content")
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            what = f"{kind[:40]} is not supported: this model reads text"
            raise refuse(f"{where}.content[{index}]", what, "unsupported_field")
    return {name: value for name, value in message.items() if name not in OFF_IN_MESSAGE}
