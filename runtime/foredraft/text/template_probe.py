"""What a chat template wants ``content`` to be, found by rendering messages with a marked text both ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

import jinja2

from foredraft.errors import BundleError
from foredraft.text.sandbox import TemplateEnvironment, render_bounded

ContentForm = Literal["string", "parts"]
"""How a message's text is given to a template: as it is, or as ``[{"type": "text", "text": ...}]``."""

_FORMS: tuple[ContentForm, ...] = ("string", "parts")
_SYSTEM = ("system", "Xsystemtext7X")
_TURNS = (("user", "Xfirsttext7X"), ("assistant", "Xanswertext7X"), ("user", "Xlasttext7X"))
_CONVERSATIONS = (_TURNS[:1], (_SYSTEM, _TURNS[0]), _TURNS)
"""Tried in order until the template takes one: some want a system message, some a whole conversation."""


class HasSource(Protocol):
    """A chat template, of which the probe needs only its source."""

    @property
    def source(self) -> str: ...


def content_form(template: HasSource) -> ContentForm:
    """The form of ``content`` in which the text of every user and assistant message reaches the prompt.

    ``string`` if both do. Raises BundleError if the text is lost in either form, or if the template refuses every
    conversation that is tried.
    """
    return _form_of(template.source)


def drops_system(template: HasSource) -> bool:
    """Whether a system message's text is lost without a word; a template that refuses one says so itself."""
    form = content_form(template)
    try:
        return _SYSTEM[1] not in _rendered(_compiled(template.source), (_SYSTEM, _TURNS[0]), form)
    except _RefusedError:
        return False


@lru_cache(maxsize=16)
def _form_of(source: str) -> ContentForm:
    compiled = _compiled(source)
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
    prompt = _rendered(compiled, conversation, form)
    for role, text in conversation:
        if role != "system" and (text not in prompt or (form == "parts" and str(_parts(text)[0]) in prompt)):
            return "an assistant" if role == "assistant" else f"a {role}"
    return ""


def _rendered(compiled: jinja2.Template, conversation: Sequence[tuple[str, str]], form: ContentForm) -> str:
    messages = [{"role": role, "content": text if form == "string" else _parts(text)} for role, text in conversation]
    variables = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
    try:
        return render_bounded(compiled, {"messages": messages, "add_generation_prompt": True, **variables})
    except Exception as error:  # whatever an expression in an untrusted template can raise
        raise _RefusedError(" ".join(str(error).split()) or type(error).__name__) from error


def _parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def _compiled(source: str) -> jinja2.Template:
    try:
        return TemplateEnvironment().from_string(source)
    except (jinja2.TemplateError, RecursionError) as error:
        raise BundleError(f"chat template: {' '.join(str(error).split())}") from error
