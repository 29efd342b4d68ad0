"""Chat messages, checked and in the form that a template wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foredraft.errors import RequestError
from foredraft.text.template_probe import Traits

MAX_MESSAGES = 10_000
Message = Mapping[str, Any]
"""``role`` and ``content`` (a string, or a list of ``{"type": "text", "text": ...}``), as in OpenAI's API; maybe
``name``, ``tool_call_id`` and, of an assistant, ``tool_calls``, beside which ``content`` may be None."""
_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")


def check_messages(messages: Sequence[Message], traits: Traits) -> list[dict[str, Any]]:
    """The messages for a template. Raises RequestError naming the one that is wrong, or that the template would lose.

    ``developer`` is OpenAI's newer word for ``system``; templates that do not know it are given the older one.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise RequestError(f"messages: got {type(messages).__name__}, expected a list of messages")
    if not 0 < len(messages) <= MAX_MESSAGES:
        raise RequestError(f"messages: got {len(messages)}, expected 1 to {MAX_MESSAGES}")
    return [_checked(f"messages[{index}]", message, traits) for index, message in enumerate(messages)]


def covered(messages: Sequence[dict[str, Any]], cover: Callable[[str], str]) -> list[dict[str, Any]]:
    """Checked messages with every text covered that may be a user's: all but those of the system.

    Parts become one, or halves of a special token could meet in the prompt.
    """
    return [
        message
        if message["role"] in ("system", "developer")
        else {key: value if key == "role" else _covered(value, cover) for key, value in message.items()}
        for message in messages
    ]


def _covered(value: Any, cover: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return cover(value)
    if isinstance(value, list):
        if texts := [item["text"] for item in value if isinstance(item, dict) and item.get("type") == "text"]:
            return [{"type": "text", "text": cover("".join(texts))}]
        return [_covered(item, cover) for item in value]
    if isinstance(value, dict):
        return {key: item if key == "type" else _covered(item, cover) for key, item in value.items()}
    return value


def _checked(where: str, message: Message, traits: Traits) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where}: got {type(message).__name__}, expected an object with role and content")
    if unknown := sorted(str(key) for key in message if key not in _KEYS):
        raise RequestError(f"{where}: unknown key {unknown[0]!r}, expected role and content")
    given = {key: value for key, value in message.items() if value is not None and (key != "tool_calls" or value)}
    role = _role(where, given, traits)
    if "content" not in given and "tool_calls" not in given:
        raise RequestError(f"{where}.content: missing")
    result: dict[str, Any] = {"role": role, "content": _content(where, given.get("content", ""), traits)}
    if "name" in given:
        result["name"] = _name(f"{where}.name", given["name"], role, traits)
    if "tool_call_id" in given:
        result["tool_call_id"] = _text(f"{where}.tool_call_id", given["tool_call_id"])
        if role != "tool":
            raise RequestError(f"{where}.tool_call_id: only a message of role 'tool' answers a call")
    if "tool_calls" in given:
        result["tool_calls"] = _tool_calls(f"{where}.tool_calls", given["tool_calls"], role, traits)
    return result


def _role(where: str, given: Message, traits: Traits) -> str:
    if "role" not in given:
        raise RequestError(f"{where}.role: missing")
    role = _text(f"{where}.role", given["role"])
    if not role:
        raise RequestError(f"{where}.role: empty, expected a name such as 'user'")
    if role == "developer" and not traits.developer:
        role = "system"
    if role == "system" and not traits.system:
        raise RequestError(
            f"{where}.role: {role!r} is not supported: this model's chat template leaves out what a system message "
            "says; put it into a user's message"
        )
    if role == "tool" and not traits.tool_results:
        raise RequestError(f"{where}.role: 'tool' is not supported: this model's chat template has no tool results")
    return role


def _content(where: str, content: Any, traits: Traits) -> str | list[dict[str, str]]:
    texts = [content] if isinstance(content, str) else _texts(f"{where}.content", content)
    if traits.content == "string":
        return "".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _texts(where: str, content: Any) -> list[str]:
    if not isinstance(content, list | tuple):
        raise RequestError(f"{where}: got {type(content).__name__}, expected a string, or a list of text parts")
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and kind != "text":
            raise RequestError(f"{where}[{index}]: {kind[:40]} is not supported: this model reads text")
        if kind is None or set(part) != {"type", "text"}:
            raise RequestError(f'{where}[{index}]: expected {{"type": "text", "text": ...}}')
        texts.append(_text(f"{where}[{index}].text", part["text"]))
    return texts


def _name(where: str, name: Any, role: str, traits: Traits) -> str:
    if not traits.names and role != "tool":
        raise RequestError(f"{where}: not supported: this model's chat template leaves out names")
    return _text(where, name)


def _tool_calls(where: str, calls: Any, role: str, traits: Traits) -> list[dict[str, Any]]:
    if role != "assistant":
        raise RequestError(f"{where}: only an assistant calls tools, this is a message of role {role!r}")
    if not traits.tool_calls:
        raise RequestError(f"{where}: not supported: this model's chat template leaves out calls of tools")
    if not isinstance(calls, list | tuple):
        raise RequestError(f"{where}: got {type(calls).__name__}, expected a list of calls")
    return [_tool_call(f"{where}[{index}]", call) for index, call in enumerate(calls)]


def _tool_call(where: str, call: Any) -> dict[str, Any]:
    """Templates are given the arguments as an object; OpenAI's API writes them as JSON."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or call.get("type", "function") != "function":
        raise RequestError(f'{where}: expected {{"type": "function", "function": {{"name", "arguments"}}}}')
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except ValueError:
            read = None
        arguments = read if isinstance(read, dict) else arguments
    elif not isinstance(arguments, Mapping):
        raise RequestError(f"{where}.function.arguments: expected JSON, as a string or as an object")
    name = _text(f"{where}.function.name", function.get("name"))
    identity = {"id": _text(f"{where}.id", call["id"])} if call.get("id") is not None else {}
    return {**identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where}: got {type(value).__name__}, expected a string")
    return value
