"""Options that several commands share, and what they become."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from foredraft import drafters
from foredraft.commands.ship_options import signature_options
from foredraft.errors import RequestError
from foredraft.sampling.params import SamplingParams

if TYPE_CHECKING:
    from foredraft.bundle import Bundle
    from foredraft.request import RequestFields
    from foredraft.session import Session

Command = TypeVar("Command", bound=Callable[..., Any])

_SAMPLING = (
    click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy."),
    click.option("--top-k", type=int, default=0, help="Only the k likeliest tokens; 0 is off."),
    click.option("--top-p", type=float, default=1.0, help="Only the likeliest tokens up to this probability."),
    click.option("--min-p", type=float, default=0.0, help="Only tokens this likely, relative to the likeliest."),
    click.option("--repetition-penalty", type=float, default=1.0, help="Above 1: avoid tokens that occurred."),
    click.option("--presence-penalty", type=float, default=0.0, help="Taken off a token that occurred."),
    click.option("--frequency-penalty", type=float, default=0.0, help="Taken off for each occurrence."),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same text."),
)
_ENGINE = (
    click.option(
        "--drafter",
        metavar="NAME",
        help=f"Where drafts come from: {', '.join(drafters.names())} [default: {drafters.DEFAULT}].",
    ),
    click.option(
        "--db", "databases", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="A token database."
    ),
    click.option("--levels", metavar="NAMES", help="Levels to draft from, in order: context,model,corpus,recycled."),
    click.option("--learn", type=click.Path(path_type=Path), metavar="FILE", help="Append answers here, and learn."),
    click.option("--no-draft", is_flag=True, help="Plain decoding; the text is the same."),
    click.option("--policy", metavar="NAME", help="auto, fixed:N (N nodes), or a scheme's name [default: auto]."),
    click.option("--threads", type=click.IntRange(1), help="Threads of the engine [default: all cores]."),
    click.option(
        "--lowering",
        type=click.Choice(["auto", "kernels", "portable"]),
        default="auto",
        help="Which graphs to run.",
    ),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where to run [default: auto]."),
    click.option(
        "--provider",
        type=click.Choice(["cpu", "cuda", "tensorrt", "tensorrt-rtx"]),
        help="ONNX Runtime's provider for the portable graphs [default: cpu].",
    ),
    click.option("--context", type=click.IntRange(1), help="Limit of prompt and answer together, in tokens."),
)
_PROMPT = (
    click.option(
        "--chat-template-kwargs",
        metavar="JSON",
        callback=lambda _context, _option, value: _json_object(value),
        help="Variables of the model's chat template, such as '{\"enable_thinking\": false}'.",
    ),
    click.option(
        "--split-special-tokens",
        is_flag=True,
        help="Special tokens that users spell (<|im_end|>) are plain text, not control tokens.",
    ),
)
_ANSWER = (
    click.option("--max-tokens", type=click.IntRange(0), help="Longest answer [default: what the context leaves]."),
    click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times."),
)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to open a session; None leaves the choice to it."""

    drafter: str | None
    databases: tuple[Path, ...]
    levels: str | None
    learn: Path | None
    no_draft: bool
    policy: str | None
    threads: int | None
    lowering: str
    device: str | None
    provider: str | None
    context: int | None

    def open(self, bundle: Bundle) -> Session:
        """Open the session that was asked for."""
        from foredraft import Session

        return Session(bundle, **self.session_arguments())

    def session_arguments(self) -> dict[str, Any]:
        """What was asked for, as keyword arguments of ``Session``."""
        names = ("databases", "levels", "learn", "policy", "threads", "device", "provider", "context")
        given = {name: getattr(self, name) for name in names}
        settings = {name: value for name, value in given.items() if value not in (None, ())}
        return {"drafter": self.drafter_name, "lowering": self.lowering, **settings}

    @property
    def drafter_name(self) -> str:
        """Raises click.UsageError where options contradict each other."""
        off = self.no_draft or self.drafter == "none"
        if self.no_draft and self.drafter not in (None, "none"):
            raise click.UsageError(f"--no-draft and --drafter {self.drafter} contradict each other")
        for name in ("policy", "databases", "levels", "learn"):
            if off and getattr(self, name):
                option = "db" if name == "databases" else name
                raise click.UsageError(f"--{option} needs a drafter, and drafting is off")
        return "none" if off else self.drafter or drafters.DEFAULT


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How an answer is written."""

    sampling: SamplingParams
    max_tokens: int | None
    stop: tuple[str, ...]
    chat_template_kwargs: dict[str, Any]
    split_special_tokens: bool

    def fields(self) -> RequestFields:
        """What was asked for, as keyword arguments of ``Session.generate``."""
        return {
            "max_tokens": self.max_tokens,
            "sampling": self.sampling,
            "stop": self.stop,
            "chat_template_kwargs": self.chat_template_kwargs,
            "split_special_tokens": self.split_special_tokens,
        }


class BundlePath(click.Path):
    """A bundle's folder, or a registry reference that was pulled before. Never touches the network."""

    name = "bundle"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from foredraft.distribution import resolve

        return resolve(os.fsdecode(super().convert(value, param, ctx)))


def bundle_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The bundle's folder, as ``bundle``; if a signature is asked for, it is checked before the command runs."""

    @functools.wraps(command)
    def wrapped(*args: Any, bundle: Path, require_signature: bool, key: Path | None, **others: Any) -> Any:
        if require_signature or key is not None:
            from foredraft import Bundle

            Bundle.open(bundle, require_signature=require_signature, key=key)
        return command(*args, bundle=bundle, **others)

    return click.argument("bundle", type=BundlePath(path_type=Path))(signature_options(wrapped))


def answer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Prompt, sampling, length and stop strings, given to the command as one AnswerOptions ``answer``."""
    sampling_names = SamplingParams.__dataclass_fields__
    names = [name for name in AnswerOptions.__dataclass_fields__ if name != "sampling"]

    @functools.wraps(command)
    def wrapped(*args: Any, **others: Any) -> Any:
        values = {name: others.pop(name) for name in sampling_names}
        given = {name: others.pop(name) for name in names}
        try:
            sampling = SamplingParams(**values)
        except RequestError as error:
            raise click.UsageError(f"--{str(error).replace('_', '-', 1)}") from error
        return command(*args, answer=AnswerOptions(sampling, **given), **others)

    return _apply((*_ANSWER, *_SAMPLING, *_PROMPT), wrapped)


def prompt_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How prompts become tokens: ``chat_template_kwargs`` and ``split_special_tokens``."""
    return _apply(_PROMPT, command)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Drafter and engine, given to the command as one EngineOptions ``engine``."""
    names = EngineOptions.__dataclass_fields__

    @functools.wraps(command)
    def wrapped(*args: Any, **others: Any) -> Any:
        values = {name: others.pop(name) for name in names}
        return command(*args, engine=EngineOptions(**values), **others)

    return _apply(_ENGINE, wrapped)


def _apply(options: tuple[Callable[..., Any], ...], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def _json_object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.BadParameter(f"got {type(value).__name__}, expected a JSON object")
    return value
