"""``foredraft db``: build, grow and check token databases."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from foredraft.databases.building import Progress

_path = click.Path(path_type=Path)
EPILOG = """
Examples:

\b
  foredraft db build corpus.fdb --tokenizer smollm2.foredraft notes/ wiki.jsonl
  foredraft db build model.fdb --generate smollm2.foredraft --prompts questions.jsonl
  foredraft db add model.fdb accepted.log
  foredraft db merge all.fdb shard-1.fdc shard-2.fdc --max-size 500MB
"""


class _Size(click.ParamType[int]):
    """A number of bytes with an optional unit: 500MB, 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMG]?)(i?)B?", str(value))
        if match is None:
            self.fail(f"{value!r}: expected a size such as 500MB or 2GiB", param, ctx)
        base = 1024 if match[3] else 1000
        return int(float(match[1]) * base ** " kMG".index(match[2] or " "))


_max_size = click.option("--max-size", type=_Size(), help="Prune to about this size: rare n-grams go first.")
_tokenizer = click.option(
    "--tokenizer", type=_path, metavar="BUNDLE", help="A bundle, or a tokenizer.json, whose token ids are counted."
)


@click.group(short_help="Build, grow and check token databases.", epilog=EPILOG)
def db() -> None:
    """Build, grow and check token databases (.fdb): what text usually follows what."""


@db.command(short_help="Build a database from text, or from a model's own answers.", epilog=EPILOG)
@click.argument("out", type=_path)
@click.argument("files", nargs=-1, type=_path)
@_tokenizer
@click.option("--kind", type=click.Choice(("corpus", "model")), help="[default: corpus; model with --generate]")
@click.option("--generate", type=_path, metavar="BUNDLE", help="Count this model's answers to --prompts.")
@click.option("--prompts", type=_path, metavar="FILE", help="Questions, a JSON object a line (prompt, text or turns).")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Tokens of each answer.")
@_max_size
def build(
    out: Path,
    files: tuple[Path, ...],
    tokenizer: Path | None,
    kind: str | None,
    generate: Path | None,
    prompts: Path | None,
    max_tokens: int,
    max_size: int | None,
) -> None:
    """Build OUT from FILES (text, .jsonl, token files .npy and .bin; folders are walked), or with --generate from
    what a model answers to --prompts.
    """
    from foredraft.databases.building import build_database

    if generate is not None:
        if prompts is None or files:
            raise click.UsageError("--generate takes its questions from --prompts, and no FILES")
        _build_from_answers(out, generate, prompts, max_tokens, kind or "model", max_size)
    else:
        identity, documents = _documents(files, tokenizer)
        with _progress() as progress:
            build_database(out, kind or "corpus", documents, identity, max_size=max_size, progress=progress)
    _report(out)


@db.command(short_help="Count a shard of a corpus, to be merged later.")
@click.argument("out", type=_path)
@click.argument("files", nargs=-1, type=_path)
@_tokenizer
@click.option("--kind", type=click.Choice(("corpus", "model")), default="corpus", show_default=True)
def count(out: Path, files: tuple[Path, ...], tokenizer: Path | None, kind: str) -> None:
    """Count the n-grams of FILES into OUT. `db merge` makes a database of such counts, also of many machines'."""
    from foredraft.databases.shards import count_files

    if not files or tokenizer is None:
        raise click.UsageError("give FILES and --tokenizer BUNDLE")
    with _progress() as progress:
        counted = count_files(out, files, tokenizer, kind, progress)
    click.echo(f"{out}: {counted.tokens:,} tokens of {counted.documents:,} documents", err=True)


@db.command(short_help="Add counts and databases up.")
@click.argument("out", type=_path)
@click.argument("sources", nargs=-1, required=True, type=_path)
@click.option("--kind", type=click.Choice(("corpus", "model")), help="[default: that of the first database]")
@_max_size
def merge(out: Path, sources: tuple[Path, ...], kind: str | None, max_size: int | None) -> None:
    """Write the sum of SOURCES (counts or databases of one tokenizer) to OUT."""
    from foredraft.databases.merge import merge_files

    merge_files(out, sources, kind=kind, max_size=max_size)
    _report(out)


@db.command(short_help="Fold learn logs into a model database.")
@click.argument("database", type=_path)
@click.argument("logs", nargs=-1, required=True, type=_path)
@_max_size
def add(database: Path, logs: tuple[Path, ...], max_size: int | None) -> None:
    """Fold the learn LOGS into DATABASE and remove them. Readers keep the version that they have open."""
    from foredraft.databases.merge import add_logs

    added = add_logs(database, logs, max_size=max_size)
    click.echo(f"{database}: {added:,} tokens added", err=True)


@db.command(short_help="Show what a database holds.")
@click.argument("database", type=_path)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def inspect(database: Path, as_json: bool) -> None:
    """Show what DATABASE holds. Only its header is read."""
    from foredraft.databases.file import Container

    header = Container(database).header
    facts = {"kind": header.kind, "tokenizer": header.tokenizer, "vocab_size": header.vocab_size, **header.facts}
    facts["bytes"] = {section.name: section.length for section in header.sections.values()}
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        shown = ", ".join(f"{k}: {v:,}" for k, v in value.items()) if isinstance(value, dict) else value
        click.echo(f"{name:14} {shown}")


@db.command(short_help="Check every byte of a database.")
@click.argument("database", type=_path)
def verify(database: Path) -> None:
    """Check every byte of DATABASE against the hashes in its header."""
    from foredraft.databases.file import Container
    from foredraft.errors import DatabaseError

    if damaged := Container(database).damaged():
        raise DatabaseError(f"{database}: damaged sections: {', '.join(damaged)}; build the database again")
    click.echo(f"{database}: sound", err=True)


def _documents(files: tuple[Path, ...], tokenizer: Path | None) -> tuple[Any, Iterator[Any]]:
    """The identity and the documents that FILES and --tokenizer stand for."""
    from foredraft.databases.identity import open_tokenizer
    from foredraft.databases.sources import expand, read_documents

    if not files or tokenizer is None:
        raise click.UsageError("give FILES and --tokenizer BUNDLE (or --generate BUNDLE --prompts FILE)")
    tool, identity = open_tokenizer(tokenizer)
    return identity, read_documents(expand(files), tool, identity.vocab_size)


def _build_from_answers(
    out: Path, bundle: Path, prompts: Path, max_tokens: int, kind: str, max_size: int | None
) -> None:
    from foredraft.databases.building import build_database, recycled_table
    from foredraft.databases.identity import open_tokenizer
    from foredraft.distribution import open_bundle
    from foredraft.record import Recording

    recording = Recording(open_bundle(bundle), prompts, max_tokens)
    _, identity = open_tokenizer(bundle)
    with _progress() as progress:
        answers = list(recording.answers(progress))
    table = recycled_table(recording.rows, identity.vocab_size) if kind == "model" else None
    build_database(out, kind, answers, identity, max_size=max_size, recycled=table)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Shows on standard error how many tokens there are, and how fast."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} tokens{task.fields[rate]}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task, started = bar.add_task("", total=None, rate=""), time.monotonic()

        def show(tokens: int) -> None:
            bar.advance(task, tokens)
            rate = bar.tasks[0].completed / max(time.monotonic() - started, 1e-3)
            bar.update(task, rate=f", {rate:,.0f} a second")

        yield show


def _report(out: Path) -> None:
    from foredraft.databases.file import Container

    header = Container(out).header
    size = out.stat().st_size
    click.echo(f"{out}: {header.kind}, {header.facts['tokens']:,} tokens, {size / 1e6:,.1f} MB", err=True)
