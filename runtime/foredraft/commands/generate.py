"""``foredraft generate``: one prompt, one answer, streamed as it is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.commands.options import (
    AnswerOptions,
    EngineOptions,
    answer_options,
    bundle_argument,
    engine_options,
)
from foredraft.errors import RequestError

if TYPE_CHECKING:
    from foredraft.result import Result, Statistics

EPILOG = """
Examples:

\b
  foredraft generate BUNDLE --prompt "Once upon a time" --max-tokens 100
  foredraft generate BUNDLE --chat --system "Be brief." --prompt "What is a KV cache?"
  cat notes.txt | foredraft generate BUNDLE --prompt-file - --temperature 0.8 --top-p 0.95 --seed 7
  foredraft generate BUNDLE --prompt "1, 2, 3," --stop "10" --json
  foredraft generate BUNDLE --chat --prompt "Think hard." --chat-template-kwargs '{"enable_thinking": true}'
"""


@click.command(short_help="Write an answer to one prompt.", epilog=EPILOG)
@bundle_argument
@click.option("--prompt", metavar="TEXT", help="The prompt.")
@click.option("--prompt-file", type=click.Path(allow_dash=True, path_type=Path), help="Read it from here; '-': stdin.")
@click.option("--chat", is_flag=True, help="Wrap the prompt in the model's chat template.")
@click.option("--system", metavar="TEXT", help="System message, with --chat.")
@answer_options
@engine_options
@click.option("--quiet", is_flag=True, help="No line of statistics at the end.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON: text, tokens, finish_reason, stats.")
def generate(
    bundle: Path,
    prompt: str | None,
    prompt_file: Path | None,
    chat: bool,
    system: str | None,
    answer: AnswerOptions,
    engine: EngineOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write an answer to one prompt.

    The text goes to standard output as it is written, a line of statistics to standard error. Drafting
    changes the speed and never the text.
    """
    if (prompt is None) == (prompt_file is None):
        raise click.UsageError("give either --prompt or --prompt-file")
    if system is not None and not chat:
        raise click.UsageError("--system needs --chat")
    engine.drafter_name  # noqa: B018 (contradictions are found before anything is read)
    text = _read(prompt_file) if prompt_file else prompt or ""

    from foredraft import Bundle

    session = engine.open(Bundle.open(bundle))
    fields = answer.fields()
    if chat:
        system_message = [{"role": "system", "content": system}] if system is not None else []
        fields["messages"] = [*system_message, {"role": "user", "content": text}]
    prompted = None if chat else text
    if as_json:
        click.echo(json.dumps(_fields(session.generate(prompted, **fields)), ensure_ascii=False))
        return
    stats = None
    for chunk in session.stream(prompted, **fields):
        click.echo(chunk.text, nl=False)
        sys.stdout.flush()
        stats = chunk.result.stats if chunk.result else None
    click.echo()
    if not quiet and stats:
        click.echo(statistics_line(stats), err=True)


def _fields(result: Result) -> dict[str, Any]:
    return {
        "text": result.text,
        "tokens": result.tokens,
        "finish_reason": result.finish_reason,
        "stats": result.stats.to_json(),
    }


def statistics_line(stats: Statistics) -> str:
    """What an answer cost, in one line."""
    parts = [
        f"{stats.tokens} tokens",
        f"{stats.tokens_per_second:.1f} tokens/s",
        f"{stats.tokens_per_forward:.2f} tokens per forward",
        f"drafter {stats.drafter}",
    ]
    if stats.drafted:
        parts.append(f"{stats.accepted} of {stats.drafted} drafts accepted")
    return ", ".join(parts)


def _read(path: Path) -> str:
    name = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{name}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise RequestError(f"{name}: cannot be read ({error.strerror})") from error
