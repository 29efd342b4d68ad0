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
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant"]},
        "content": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT_PART}],
            "description": "a string, or a list of text parts",
        },
    },
    "required": ["role", "content"],
}
_SHARED: dict[str, Schema] = {
    "model": {"type": "string"},
    "temperature": {
        "anyOf": [{"type": "number", "enum": [0]}, {"type": "number", "minimum": 0.01, "maximum": 100}],
        "description": "0 (greedy) or a number from 0.01 to 100",
    },
    "top_p": {"type": "number", "minimum": 1e-6, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0, "maximum": 10_000_000},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "repetition_penalty": {"type": "number", "minimum": 0.01, "maximum": 100},
    "seed": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
    "stop": {
        "anyOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}],
        "description": f"a string, or a list of at most {MAX_STOPS} strings, of 1 to {MAX_STOP_LENGTH} characters",
    },
    "max_tokens": {"type": "integer", "minimum": 0, "maximum": _COUNT},
    "n": {"type": "integer", "minimum": 1, "maximum": MAX_CHOICES},
    "stream": {"type": "boolean"},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "user": {"type": "string", "maxLength": 256},
    "foredraft": {"type": "object", "properties": {"trace": {"type": "boolean"}}},
}
CHAT: Schema = {
    "type": "object",
    "properties": {
        **_SHARED,
        "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": 10_000},
        "max_completion_tokens": {"type": "integer", "minimum": 0, "maximum": _COUNT},
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
NEEDS = {"stream_options": "stream", "top_logprobs": "logprobs"}
"""Fields that are only allowed where another one is true."""

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
OFF_IN_MESSAGE = ("annotations", "audio", "function_call", "name", "refusal", "tool_call_id", "tool_calls")
"""What the official client adds, as null or an empty list, to an answer that is sent back as a message."""


def read_fields(body: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The fields that were given, checked. Raises ApiError for one that is unknown, wrong or not supported."""
    wanted = {name: value for name, value in body.items() if not _is_off(name, value, schema)}
    if isinstance(messages := wanted.get("messages"), list):
        wanted["messages"] = [_without_off(message) for message in messages]
    return check_object("", wanted, schema)


def _is_off(name: str, value: Any, schema: Schema) -> bool:
    if name not in OFF or name in schema["properties"]:
        return False
    if value is None or any(value == off and type(value) is type(off) for off in OFF[name]):
        return True
    raise refuse(name, "this server does not support it, and does not ignore it", "unsupported_field")


def _without_off(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {k: v for k, v in message.items() if not (k in OFF_IN_MESSAGE and v in (None, []))}
