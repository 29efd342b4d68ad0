"""Chat messages to a prompt, through the model's own Jinja template. The template is not trusted.

It runs in Jinja's sandbox with the functions that Hugging Face's ``apply_chat_template`` gives it
(transformers, ``utils/chat_template_utils.py``), in a bounded number of steps, to a bounded length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jinja2

from foredraft.errors import BundleError, RequestError
from foredraft.text.messages import Message, check_messages, covered
from foredraft.text.sandbox import TemplateEnvironment, render_bounded, words_of
from foredraft.text.template_probe import RESERVED, Traits, read_traits

MAX_SOURCE = 1 << 20
"""Longest template, in characters."""


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
            raise BundleError(f"chat template{where}: {words_of(error)}") from error

    @cached_property
    def traits(self) -> Traits:
        """What of a conversation reaches the prompt. Raises BundleError for a template that loses its text."""
        return read_traits(self.source)

    def render(
        self,
        messages: Sequence[Message],
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
        cover: Callable[[str], str] | None = None,
    ) -> str:
        """The prompt for ``messages``; ``variables`` are for the template to use, ``cover`` changes users' texts.

        Raises RequestError for messages of another form or that the template would lose, for a variable that it does
        not read, and with its own words where it refuses them; BundleError as ``traits`` does.
        """
        checked = check_messages(messages, self.traits)
        if cover is not None:
            checked = covered(checked, cover)
        given = {"tools": None, "documents": None, **self._checked(variables or {}), **self._tokens}
        named = {"messages": checked, "add_generation_prompt": add_generation_prompt, **given}
        try:
            return render_bounded(self._template, named)
        except Exception as error:  # whatever an expression in an untrusted template can raise
            raise RequestError(f"chat template: {words_of(error)}") from error

    def _checked(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(variables, Mapping):
            raise RequestError(f"chat_template_kwargs: got {type(variables).__name__}, expected an object")
        for name in variables:
            if name in RESERVED:
                raise RequestError(f"chat_template_kwargs.{name}: is not for a request to set")
            if name not in self.traits.variables:
                known = ", ".join(sorted(self.traits.variables)) or "none"
                raise RequestError(
                    f"chat_template_kwargs.{str(name)[:80]}: this model's chat template does not read it; "
                    f"it reads: {known}"
                )
        return variables
