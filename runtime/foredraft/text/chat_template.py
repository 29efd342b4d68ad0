"""Chat messages to a prompt, through the model's own Jinja template. The template is not trusted.

It runs in Jinja's sandbox with the functions that Hugging Face's ``apply_chat_template`` gives it
(transformers, ``utils/chat_template_utils.py``), in a bounded number of steps, to a bounded length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from foredraft.errors import BundleError, RequestError
from foredraft.text.sandbox import TemplateEnvironment, render_bounded

MAX_SOURCE = 1 << 20
"""Longest template, in characters."""
MAX_MESSAGES = 10_000


class ChatTemplate:
    """A compiled chat template; safe to share by threads. Raises BundleError if ``source`` is no Jinja
    template.
    """

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise BundleError(f"chat template: {len(source)} characters, expected at most {MAX_SOURCE}")
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = TemplateEnvironment().from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            where = f", line {line}" if line else ""
            raise BundleError(f"chat template{where}: {_message(error)}") from error

    def render(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt for ``messages``, each ``{"role": ..., "content": ...}``; ``variables`` are for the
        template to use.

        Raises RequestError for messages of another form, and with the template's own words where it refuses
        them.
        """
        given = {"tools": None, "documents": None, **self._tokens, **variables}
        checked = check_messages(messages)
        named = {"messages": checked, "add_generation_prompt": add_generation_prompt, **given}
        try:
            return render_bounded(self._template, named)
        except Exception as error:  # whatever an expression in an untrusted template can raise
            raise RequestError(f"chat template: {_message(error)}") from error


def check_messages(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The messages as plain dicts; raises RequestError naming the one that is wrong."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise RequestError(f"messages: got {type(messages).__name__}, expected a list of messages")
    if not 0 < len(messages) <= MAX_MESSAGES:
        raise RequestError(f"messages: got {len(messages)}, expected 1 to {MAX_MESSAGES}")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise RequestError(f"{where}: got {type(message).__name__}, expected an object with role and content")
        for key in ("role", "content"):
            if key not in message:
                raise RequestError(f"{where}: {key} is missing")
            if not isinstance(message[key], str):
                raise RequestError(f"{where}.{key}: got {type(message[key]).__name__}, expected a string")
        if not message["role"]:
            raise RequestError(f"{where}.role: empty, expected a name such as 'user'")
        if unknown := sorted(str(key) for key in message if key not in ("role", "content")):
            raise RequestError(f"{where}: unknown key {unknown[0]!r}, expected role and content")
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _message(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "too deeply nested"
    return " ".join(str(error).split()) or type(error).__name__
