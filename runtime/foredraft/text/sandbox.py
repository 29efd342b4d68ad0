"""The Jinja environment that chat templates run in: sandboxed, and bounded in steps and in the length of what
it builds.

Every pass of a loop and every call is a step, and the operators that can build long values (``*``, ``**``,
``+``, ``~``) are checked. Known limit: a filter (``center``, ``format``) can still ask for much memory in a
single step.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_STEPS = 200_000
MAX_TEXT = 4 << 20
"""Longest text that a template may build, in characters."""
_MAX_BITS = 4096

_steps_left: ContextVar[int] = ContextVar("steps_left", default=MAX_STEPS)


@contextlib.contextmanager
def budget(steps: int = MAX_STEPS) -> Iterator[None]:
    """What runs inside has this many steps."""
    token = _steps_left.set(steps)
    try:
        yield
    finally:
        _steps_left.reset(token)


def render_bounded(template: jinja2.Template, variables: Mapping[str, Any], steps: int = MAX_STEPS) -> str:
    """What the template writes, within so many steps and ``MAX_TEXT``; raises what it raises."""
    pieces: list[str] = []
    length = 0
    with budget(steps):
        for piece in template.generate(**variables):
            pieces.append(piece)
            length += len(piece)
            if length > MAX_TEXT:
                raise jinja2.TemplateError(f"wrote more than {MAX_TEXT} characters")
    return "".join(pieces)


def words_of(error: BaseException) -> str:
    """What a template's error says, in one line."""
    if isinstance(error, RecursionError):
        return "too deeply nested"
    return " ".join(str(error).split()) or type(error).__name__


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """What Hugging Face's chat templates expect, and nothing more. Exceeded bounds raise
    jinja2.TemplateError.
    """

    intercepted_binops = frozenset(["*", "**", "+"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlock])
        self.filters |= {"tojson": _to_json, "_stepwise": _stepwise, "_sized": _sized}
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _Dict(),
            "namespace": _PlainNamespace,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for loop in list(template.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, "_stepwise", [], [], None, None, lineno=loop.lineno)
        for joined in list(template.find_all(nodes.Concat)):
            inner = nodes.Concat(joined.nodes, lineno=joined.lineno)
            joined.nodes = [nodes.Filter(inner, "_sized", [], [], None, None, lineno=joined.lineno)]
        template.set_environment(self)
        return template

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as in Jinja)
        """A call in a template: one step, with arguments and a result of bounded size."""
        _spend()
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > MAX_TEXT:
                raise jinja2.TemplateError(f"the argument {_short(value)} of a call is too large")
        return _sized(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An arithmetic operator in a template; refuses results that are too large before they are built."""
        if operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, str | list | tuple) and isinstance(times, int) and len(many) * times > MAX_TEXT:
                    raise jinja2.TemplateError(f"a text or list of more than {MAX_TEXT} elements")
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > _MAX_BITS:
                raise jinja2.TemplateError(f"a number of more than {_MAX_BITS} bits")
        return _sized(super().call_binop(context, operator, left, right))


class _GenerationBlock(Extension):
    """``{% generation %}`` marks the assistant's text for training; for inference it is only its content."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own way of declaring them)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Dict:
    """The ``dict`` of templates, without the class behind it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


class _PlainNamespace(Namespace):
    """A namespace that takes no underscored names."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.TemplateError(f"a namespace cannot hold the name {name!r}")
        super().__setitem__(name, value)


def _spend() -> None:
    left = _steps_left.get()
    if left <= 0:
        raise jinja2.TemplateError("did not end within the steps that it has")
    _steps_left.set(left - 1)


def _stepwise(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _spend()
        yield value


def _sized(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and len(value) > MAX_TEXT:
        raise jinja2.TemplateError(f"a text or list of more than {MAX_TEXT} elements")
    return value


def _short(value: int) -> str:
    return str(value) if value.bit_length() < 100 else f"of {value.bit_length()} bits"


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: Jinja's own filter escapes HTML, which a prompt is not."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
