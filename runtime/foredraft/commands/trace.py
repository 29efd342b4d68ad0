"""``foredraft trace``: watch an answer being written, with the level that drafted each token."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
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
from foredraft.loop.tree import TIP

if TYPE_CHECKING:
    from foredraft.result import Result
    from foredraft.session import Session
    from foredraft.tracing import RoundTrace, TracedPiece

COLOURS = ("green", "yellow", "blue", "magenta", "cyan", "red")
EPILOG = """
Examples:

\b
  foredraft trace BUNDLE --chat --prompt "List ten facts about the Roman Empire."
  foredraft trace BUNDLE --prompt "1, 2, 3, 4," --max-tokens 40 --tree
  foredraft trace BUNDLE --prompt "1, 2, 3, 4," --json | jq .accepted
"""

Paint = Callable[[str, str | None], str]
"""(text, level) -> the text as it is shown."""


@click.command(short_help="Watch which level drafts which token.", epilog=EPILOG)
@bundle_argument
@click.option("--prompt", metavar="TEXT", required=True, help="The prompt.")
@click.option("--chat", is_flag=True, help="Wrap the prompt in the model's chat template.")
@answer_options
@engine_options
@click.option("--tree", is_flag=True, help="Show each round's drafts, and then the text.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each round, then one with the statistics.")
def trace(
    bundle: Path,
    prompt: str,
    chat: bool,
    answer: AnswerOptions,
    engine: EngineOptions,
    tree: bool,
    as_json: bool,
) -> None:
    """Write an answer and show which level drafted each token; what the model wrote itself is plain.

    Without colours (NO_COLOR, or no terminal) drafted text stands in brackets: [context: like this].
    """
    if tree and as_json:
        raise click.UsageError("--tree and --json contradict each other; the JSON has the trees")
    engine.drafter_name  # noqa: B018 (contradictions are found before anything is read)

    from foredraft import Bundle
    from foredraft.tracing import Tracer

    session = engine.open(Bundle.open(bundle))
    fields = answer.fields()
    if chat:
        fields["messages"] = [{"role": "user", "content": prompt}]
    tracer = Tracer(session.bundle.tokenizer, session.level_names)
    shown = _shown_by(session, tree, as_json)
    result = None
    for chunk in session.stream(None if chat else prompt, **fields):
        shown.show(tracer.describe(chunk))
        result = chunk.result
    if result is not None:
        shown.finish(result)


def _shown_by(session: Session, tree: bool, as_json: bool) -> _Json | _Text | _Trees:
    if as_json:
        return _Json()
    paint = colours(session.level_names) if in_colour() else brackets
    return _Trees(session.level_names, paint) if tree else _Text(session.level_names, paint)


def in_colour() -> bool:
    """True on a terminal whose user did not say NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colours(level_names: Sequence[str]) -> Paint:
    """Each level in its own colour."""
    colour = {level: COLOURS[index % len(COLOURS)] for index, level in enumerate(level_names)}
    return lambda text, level: click.style(text, fg=colour[level], bold=True) if level else text


def brackets(text: str, level: str | None) -> str:
    """Drafted text with its level's name."""
    return f"[{level}: {text}]" if level and text else text


class _Json:
    """Each round as a line."""

    def show(self, round_: RoundTrace) -> None:
        if round_.tokens or round_.text:
            _say(json.dumps(round_.to_json(), ensure_ascii=False) + "\n")

    def finish(self, result: Result) -> None:
        _say(json.dumps({"finish_reason": result.finish_reason, "stats": result.stats.to_json()}) + "\n")


class _Text:
    """The text as it is written."""

    def __init__(self, level_names: Sequence[str], paint: Paint) -> None:
        self._level_names, self._paint = level_names, paint

    def show(self, round_: RoundTrace) -> None:
        _say(_painted(round_.pieces, self._paint))

    def finish(self, result: Result) -> None:
        _say("\n")
        if self._paint is not brackets:  # which name their levels
            drafted = [self._paint(name, name) for name in self._level_names if name in result.stats.levels]
            click.echo(", ".join(["the model itself", *drafted]), err=True)
        click.echo(statistics_line(result.stats), err=True)


class _Trees:
    """Each round's drafts as they are made, then the text."""

    def __init__(self, level_names: Sequence[str], paint: Paint) -> None:
        self._text, self._paint = _Text(level_names, paint), paint
        self._rounds: list[RoundTrace] = []

    def show(self, round_: RoundTrace) -> None:
        self._rounds.append(round_)
        if round_.tokens:
            _say("\n".join(tree_lines(round_, self._paint)) + "\n\n")

    def finish(self, result: Result) -> None:
        for round_ in self._rounds:
            self._text.show(round_)
        self._text.finish(result)


def tree_lines(round_: RoundTrace, paint: Paint) -> list[str]:
    """A round's drafts, children indented under their parents; '+' was accepted, '-' rejected, '=' the model's own."""
    milliseconds = f"{1000 * round_.seconds_draft:.2f} ms drafting, {1000 * round_.seconds_verify:.1f} ms verifying"
    accepted = sum(node.accepted for node in round_.nodes)
    lines = [f"round {round_.number}: {accepted} of {len(round_.nodes)} drafts accepted, {milliseconds}"]
    below: dict[int, list[int]] = {}
    for index, node in enumerate(round_.nodes):
        below.setdefault(node.parent, []).append(index)
    stack = [(index, 1) for index in reversed(below.get(TIP, []))]
    while stack:
        index, depth = stack.pop()
        node = round_.nodes[index]
        mark = "+" if node.accepted else "-"
        text = json.dumps(node.text, ensure_ascii=False)
        drafted = paint(text, node.level) if paint is not brackets else f"{text} {node.level}"
        lines.append(f"{'  ' * depth}{mark} {drafted} {node.probability:.2f}")
        stack.extend((child, depth + 1) for child in reversed(below.get(index, [])))
    if round_.levels[-1] is None:
        lines.append(f"{'  ' * len(round_.path())}= {json.dumps(round_.texts[-1], ensure_ascii=False)}")
    return lines


def _painted(pieces: Sequence[TracedPiece], paint: Paint) -> str:
    """Neighbours of one level are painted together."""
    runs: list[tuple[str | None, str]] = []
    for piece in pieces:
        if runs and runs[-1][0] == piece.level:
            runs[-1] = (piece.level, runs[-1][1] + piece.text)
        elif piece.text:
            runs.append((piece.level, piece.text))
    return "".join(paint(text, level) for level, text in runs)


def _say(text: str) -> None:
    click.echo(text, nl=False)
    sys.stdout.flush()
