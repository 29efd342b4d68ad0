"""``foredraft exits``: adapters for models that were not trained to exit early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from foredraft_exporter.exits.fit_report import FitReport

EXAMPLES = """
Examples:

\b
  foredraft exits fit smollm2-135m --exits 8,15 --text ./docs --out exits.safetensors
  foredraft export smollm2-135m --exits 8,15 --adapters exits.safetensors --out smollm2.foredraft
  foredraft exits fit my-model.foredraft --text notes.txt --text src/ --json | jq .exits[].verdict
"""


@click.group(short_help="Fit the readouts of early exits.")
def exits() -> None:
    """Early exits of a model: how well they guess, and adapters that make them guess better."""


@exits.command(short_help="Fit adapters on text.", epilog=EXAMPLES)
@click.argument("source")
@click.option("--exits", "wanted", metavar="LAYERS", help="Such as 8,15 [default: all that the bundle has].")
@click.option(
    "--text",
    "texts",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="UTF-8 text to fit and measure on, a file or a folder; may be repeated. Best: what will be written.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Where to write the adapters [default: nowhere].")
@click.option("--tokens", type=click.IntRange(1), default=40_000, show_default=True, help="Most tokens to read.")
@click.option(
    "--seconds", type=click.FloatRange(1), default=180.0, show_default=True, help="About how long it may take."
)
@click.option("--no-correction", is_flag=True, help="The closed form only; needs no torch for a bundle.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the model [default: all cores].")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of the table.")
def fit(
    source: str,
    wanted: str | None,
    texts: tuple[Path, ...],
    out: Path | None,
    tokens: int,
    seconds: float,
    no_correction: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Fit adapters for exits of SOURCE, a bundle or anything that 'export' takes, and say whether the exits pay.

    First in closed form (ridge regression), then, if torch is installed, a small trained correction. An eighth of the
    text is held out, and all numbers are measured on it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from foredraft_exporter.exits import correction
    from foredraft_exporter.exits.adapters import write_adapters
    from foredraft_exporter.exits.fit import fit as run
    from foredraft_exporter.exits.source import open_source
    from foredraft_exporter.exits.texts import read_pieces

    if not no_correction and not correction.available():
        click.echo(
            "torch is not installed: closed form only; for the trained part: pip install 'foredraft[fit]'", err=True
        )
    chosen, pieces = _layers(wanted), read_pieces(texts)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("opening the model", total=None)
        opened = open_source(
            source,
            chosen,
            threads,
            lambda done, total, what: bar.update(task, completed=done, total=total, description=what),
        )
        adapters, report = run(
            opened, pieces, tokens=tokens, seconds=seconds, with_correction=not no_correction,
            progress=lambda share, what: bar.update(task, completed=share, total=1, description=what),
        )  # fmt: skip
    if out is not None and adapters:
        write_adapters(out, adapters, opened.model)
    if as_json:
        click.echo(json.dumps(report.to_json(), allow_nan=False, ensure_ascii=False))
    else:
        _show(
            report,
            out if adapters else None,
            f"foredraft export SOURCE --exits {_listed(opened.exits)} --adapters {out}",
        )


def _show(report: FitReport, written: Path | None, use: str) -> None:
    from foredraft_exporter.exits.fit_report import agreement_table

    click.echo(f"{report.name}: fitted on {report.tokens} tokens in {report.seconds:.0f} s")
    for line in agreement_table(report):
        click.echo(line)
    for exit_ in report.exits:
        click.echo(exit_.verdict)
    if written is not None:
        click.echo(f"wrote {written}; use it with: {use}")
    elif all(exit_.best == "raw" for exit_ in report.exits):
        click.echo("the plain readout is best for every exit: no adapters to write")
    else:
        click.echo("not written; give --out FILE.safetensors to keep the adapters")


def _listed(layers: tuple[int, ...]) -> str:
    return ",".join(map(str, layers))


def _layers(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text is not None else []
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: expected layer numbers separated by commas, such as 8,15", param_hint="--exits"
        ) from None
