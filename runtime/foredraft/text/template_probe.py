"""What a chat template does with a conversation, found by rendering messages with marked texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import jinja2
from jinja2 import meta

from foredraft.errors import BundleError
from foredraft.text.sandbox import TemplateEnvironment, render_bounded, words_of

ContentForm = Literal["string", "parts"]
"""How a message's text is given to a template: as it is, or as ``[{"type": "text", "text": ...}]``."""

RESERVED = frozenset({"messages", "add_generation_prompt", "tools", "bos_token", "eos_token"})
"""Variables of every template, which ``chat_template_kwargs`` may not set."""
_STEPS = 20_000
"""Enough for a few messages of a word each."""
_FORMS: tuple[ContentForm, ...] = ("string", "parts")
_SYSTEM = ("system", "Xsystemtext7X")
_TURNS = (("user", "Xfirsttext7X"), ("assistant", "Xanswertext7X"), ("user", "Xlasttext7X"))
_TOOL, _CALL_ID, _RESULT = "Xtool7X", "a1b2c3d4e", "Xresult7X"  # some templates want ids of nine characters
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": _CALL_ID, "type": "function", "function": {"name": _TOOL, "arguments": {"Xkey7X": "Xvalue7X"}}}
    ],
}
_CONVERSATIONS = (_TURNS[:1], (_SYSTEM, _TURNS[0]), _TURNS)
"""Tried in order until the template takes one: some want a system message, some a whole conversation."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What of a conversation reaches the prompt through a template."""

    content: ContentForm
    system: bool
    """False if a system message's text is lost without a word; a template that refuses one says so itself."""
    developer: bool
    """Whether it knows this role; else it is given ``system``."""
    names: bool
    tool_calls: bool
    tool_results: bool
    variables: frozenset[str]
    """What it reads besides the conversation: what ``chat_template_kwargs`` may set."""


@lru_cache(maxsize=16)
def read_traits(source: str) -> Traits:
    """Raises BundleError if a user's or an assistant's text is lost in either form of content, or if the template
    refuses every conversation that is tried. ``content`` is ``string`` if both forms do.
    """
    environment, compiled = _compiled(source)
    form = _form_of(compiled)
    named = {"role": "user", "content": _TURNS[0][1], "name": "Xname7X"}
    results = [*_messages(_TURNS[:1], form), _CALL, *_messages([("tool", _RESULT)], form)]
    results[-1] |= {"tool_call_id": _CALL_ID, "name": _TOOL}
    system = _writes(compiled, _messages((_SYSTEM, _TURNS[0]), form), _SYSTEM[1])
    return Traits(
        content=form,
        system=system is not False,
        developer="developer" in source,
        names=bool(_writes(compiled, [named], "Xname7X")),
        tool_calls=bool(_writes(compiled, results, _TOOL, "Xkey7X")),
        tool_results=bool(_writes(compiled, results, _RESULT)),
        variables=frozenset(meta.find_undeclared_variables(environment.parse(source)) - RESERVED)
        - environment.globals.keys(),
    )


def _form_of(compiled: jinja2.Template) -> ContentForm:
    refusal: _RefusedError | None = None
    for conversation in _CONVERSATIONS:
        losses = []
        for form in _FORMS:
            try:
                lost = _lost(compiled, conversation, form)
            except _RefusedError as error:
                refusal = refusal or error
                continue
            lost = lost or _lost_later(compiled, form)
            if not lost:
                return form
            losses.append(lost)
        if losses:
            raise BundleError(
                f"chat template: loses the text of {losses[0]} message, as a string and as a list of parts; "
                "correct the template, or remove it if the model is not for chat"
            )
    raise BundleError(f"chat template: refuses a message that only says one word ({refusal}); correct the template")


class _RefusedError(Exception):
    """The template raised; its words are the message."""


def _lost_later(compiled: jinja2.Template, form: ContentForm) -> str:
    """As ``_lost`` for a whole conversation; a template for a single turn may refuse it."""
    try:
        return _lost(compiled, _TURNS, form)
    except _RefusedError:
        return ""


def _lost(compiled: jinja2.Template, conversation: Sequence[tuple[str, str]], form: ContentForm) -> str:
    """The first user or assistant message whose text is not in the prompt (``"a user"``), or an empty string."""
    prompt = _rendered(compiled, _messages(conversation, form))
    for role, text in conversation:
        if role != "system" and (text not in prompt or (form == "parts" and str(_parts(text)[0]) in prompt)):
            return "an assistant" if role == "assistant" else f"a {role}"
    return ""


def _writes(compiled: jinja2.Template, messages: Sequence[Mapping[str, Any]], *texts: str) -> bool | None:
    """Whether all ``texts`` are in the prompt; None if the template refuses the messages."""
    try:
        prompt = _rendered(compiled, messages)
    except _RefusedError:
        return None
    return all(text in prompt for text in texts)


def _rendered(compiled: jinja2.Template, messages: Sequence[Mapping[str, Any]]) -> str:
    variables = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
    try:
        return render_bounded(compiled, {"messages": messages, "add_generation_prompt": True, **variables}, _STEPS)
    except Exception as error:  # whatever an expression in an untrusted template can raise
        raise _RefusedError(words_of(error)) from error


def _messages(conversation: Sequence[tuple[str, str]], form: ContentForm) -> list[dict[str, Any]]:
    return [{"role": role, "content": text if form == "string" else _parts(text)} for role, text in conversation]


def _parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def _compiled(source: str) -> tuple[TemplateEnvironment, jinja2.Template]:
    environment = TemplateEnvironment()
    try:
        return environment, environment.from_string(source)
    except (jinja2.TemplateError, RecursionError) as error:
        raise BundleError(f"chat template: {words_of(error)}") from error
