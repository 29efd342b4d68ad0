"""``foredraft chat``: a conversation in the terminal."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from foredraft.commands.generate import statistics_line
from foredraft.commands.options import (
    AnswerOptions,
    EngineOptions,
    answer_options,
    bundle_argument,
    engine_options,
)
from foredraft.errors import ForedraftError, RequestError

if TYPE_CHECKING:
    from foredraft.session import Session

PROMPT = "> "
_HELP = "/exit ends, /reset forgets the conversation; Ctrl-C stops an answer, Ctrl-D ends"
EPILOG = """
Examples:

\b
  foredraft chat BUNDLE
  foredraft chat BUNDLE --system "Answer in one sentence." --temperature 0.7 --seed 1
  foredraft chat BUNDLE --drafter prompt-lookup --stats

In the conversation: /reset forgets it, /exit or Ctrl-D ends, Ctrl-C stops an answer.
"""


@click.command(short_help="Talk with a model in the terminal.", epilog=EPILOG)
@bundle_argument
@click.option("--system", metavar="TEXT", help="System message.")
@answer_options
@engine_options
@click.option("--stats", is_flag=True, help="A line of statistics after each answer.")
def chat(bundle: Path, system: str | None, answer: AnswerOptions, engine: EngineOptions, stats: bool) -> None:
    """Talk with a model in the terminal. The whole conversation is the prompt of the next answer."""
    engine.drafter_name  # noqa: B018 (contradictions are found before anything is read)

    from foredraft import Bundle

    opened = Bundle.open(bundle)
    if opened.chat_template is None:
        raise RequestError(f"{bundle}: this model has no chat template; use: foredraft generate")
    conversation = Conversation(engine.open(opened), answer, system)
    click.echo(_HELP, err=True)
    for line in _lines():
        if line == "/exit":
            return
        if line == "/reset":
            conversation.reset()
        elif line.startswith("/"):
            click.echo(f"no command {line.split()[0]!r}: {_HELP}", err=True)
        elif line:
            try:
                conversation.ask(line, stats)
            except RequestError as error:
                click.echo(f"error: {error}; /reset forgets the conversation", err=True)


class Conversation:
    """The messages so far, and the session that answers them."""

    def __init__(self, session: Session, answer: AnswerOptions, system: str | None) -> None:
        self._session = session
        self._answer = answer
        self._system = [{"role": "system", "content": system}] if system is not None else []
        self.messages = list(self._system)

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = list(self._system)

    def ask(self, text: str, stats: bool) -> None:
        """Print the answer as it is written, and remember question and answer; Ctrl-C ends it early.

        An error leaves the conversation as it was.
        """
        messages = [*self.messages, {"role": "user", "content": text}]
        said: list[str] = []
        result = None
        with _interrupts() as interrupted:
            chunks = self._session.stream(**self._answer.fields() | {"messages": messages})
            for chunk in chunks:
                said.append(chunk.text)
                click.echo(chunk.text, nl=False)
                sys.stdout.flush()
                result = chunk.result
                if interrupted:
                    break
            if close := getattr(chunks, "close", None):
                close()
        click.echo()
        if stats and result is not None:
            click.echo(statistics_line(result.stats), err=True)
        self.messages = [*messages, {"role": "assistant", "content": "".join(said)}]


def _lines() -> Iterator[str]:
    """What the user types, until Ctrl-D; Ctrl-C gives up the line."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (editing and history for input())
    while True:
        try:
            yield input(PROMPT).strip()
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
        except UnicodeDecodeError as error:
            raise ForedraftError(f"standard input: not UTF-8 text ({error.reason})") from error


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collect Ctrl-C instead of raising it, so that an answer ends between two steps of the model.

    A second Ctrl-C, while the first still waits for a step to end, raises KeyboardInterrupt.
    """
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if seen:
            signal.default_int_handler(number, frame)
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
