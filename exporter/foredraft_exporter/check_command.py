"""``foredraft check``: is a bundle still the model that it was made from?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foredraft.errors import ForedraftError, RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from foredraft_exporter.parity.comparison import ParityReport
    from foredraft_exporter.tensorrt.layer_check import LayerDifference

_LAYER_TOKENS = 48
"""What ``--layers`` reads: enough for every layer to show itself, and soon done without a GPU."""

EXAMPLES = """
Examples:

\b
  foredraft check smollm2-135m.foredraft --against smollm2-135m
  foredraft check my-model.foredraft --against ./my-model --text german.txt
  foredraft check BUNDLE --against model.Q4_1.gguf --lowering portable --json | jq .perplexity
  foredraft check llama-7b.foredraft --layers --save layers
"""


@click.command(short_help="Compare a bundle with the model it was made from.", epilog=EXAMPLES)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--against", "source", metavar="SOURCE", help="The checkpoint, as given to 'export'.")
@click.option("--layers", is_flag=True, help="Check instead the graphs of engines, layer by layer, against float32.")
@click.option(
    "--save", type=click.Path(path_type=Path), help="With --layers: a folder for all outputs, as Polygraphy's files."
)
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    help="UTF-8 text to read [default: a page of English and code].",
)
@click.option(
    "--lowering",
    default="auto",
    type=click.Choice(["auto", "kernels", "portable"]),
    help="Which graphs to run.",
)
@click.option("--threads", type=click.IntRange(1), help="Threads of each side [default: all cores].")
@click.option(
    "--longest",
    type=click.IntRange(1),
    help="Tokens of the longest sequence [default: the context limit, or what takes some seconds].",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of the table.")
def check(
    bundle: Path,
    source: str | None,
    layers: bool,
    save: Path | None,
    text: Path | None,
    lowering: str,
    threads: int | None,
    longest: int | None,
    as_json: bool,
) -> None:
    """Compare every segment of BUNDLE with SOURCE as transformers computes it in float32, on the CPU.

    Both read the same tokens, at lengths 1, 2, 7, 64 and as long as the context allows. Exits with 1 if they
    differ by more than the bundle's precision explains, or if anything is NaN or infinite. Needs the extra
    foredraft[reference].

    With --layers no source is needed: what engines are built from is computed in its own types on the CPU, and
    compared with the portable graphs over the same weights. Needs the extra foredraft[build-engines].
    """
    if layers == (source is not None):
        raise click.UsageError("give either --against SOURCE or --layers")
    if layers:
        _check_layers(bundle, text, save, as_json)
        return
    assert source is not None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from foredraft import Bundle
    from foredraft_exporter.parity.comparison import check as run

    opened = Bundle.open(bundle)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        report = run(
            opened,
            source,
            text=_read(text) if text else None,
            lowering=lowering,
            threads=threads,
            longest=longest,
            progress=lambda done, total, what: bar.update(task, completed=done, total=total, description=what),
        )
    if as_json:
        click.echo(json.dumps(report.to_json(), allow_nan=False, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        console.print(_table(report))
        for line in _summary(report):
            console.print(line, soft_wrap=True)
    if report.failures:
        more = f" (and {len(report.failures) - 1} more)" if len(report.failures) > 1 else ""
        raise ForedraftError(f"{bundle}: check failed: {report.failures[0]}{more}")
    if not as_json:
        click.echo("check passed")


def _check_layers(bundle: Path, text: Path | None, save: Path | None, as_json: bool) -> None:
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from foredraft import Bundle
    from foredraft_exporter.parity.samples import default_text
    from foredraft_exporter.tensorrt.layer_check import check_layers, failures

    opened = Bundle.open(bundle)
    tokens = opened.tokenizer.encode(_read(text) if text else default_text())[:_LAYER_TOKENS]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        differences = check_layers(
            opened,
            tokens,
            save,
            lambda done, total, what: bar.update(task, completed=done, total=total, description=what),
        )
    found = failures(differences, opened.manifest.precision)
    if as_json:
        values = [{**asdict(d), "relative": d.relative if d.finite else None} for d in differences]
        values = [{**v, "largest": v["largest"] if v["finite"] else None} for v in values]
        click.echo(json.dumps({"layers": values, "failures": found}, allow_nan=False))
    else:
        Console(highlight=False).print(_layer_table(str(bundle), opened.manifest.precision, differences))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ForedraftError(f"{bundle}: check failed: {found[0]}{more}")
    if not as_json:
        click.echo("check passed")


def _layer_table(bundle: str, precision: str, differences: Sequence[LayerDifference]) -> RenderableType:
    from rich import box
    from rich.table import Table

    title = f"{bundle}: graphs of the engines ({precision}) against float32"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("segment", "output", "relative", "largest"):
        table.add_column(heading, justify="left" if heading == "output" else "right")
    for d in differences:
        table.add_row(str(d.segment), d.output, f"{d.relative:.2g}", f"{d.largest:.4g}")
    return table


def _table(report: ParityReport) -> RenderableType:
    from rich import box
    from rich.table import Table

    threads = f"{report.threads} thread{'s' if report.threads > 1 else ''}"
    engine = f"{report.engine}, {threads}, {report.precision}"
    last_exit = report.differences[-1].exit
    title = f"{report.bundle} against {report.source}\n{engine}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("tokens", "exit", "readout: max", "relative", "logits: max", "relative", "same argmax"):
        table.add_column(heading, justify="right")
    for d in report.differences:
        values = (d.readout_max, d.readout_relative, d.logits_max, d.logits_relative)
        table.add_row(
            f"text ({d.rows})" if d.length == "text" else d.length,
            str(d.exit),
            *(f"{value:.2g}" for value in values),
            f"{d.agreeing / d.rows:.1%}",
            end_section=report.differences[0].exit < d.exit == last_exit,
        )
    return table


def _summary(report: ParityReport) -> list[str]:
    p, limits = report.perplexity, report.limits
    lines = [
        f"perplexity on {p.tokens} tokens of the text: reference {p.reference:.3f}, bundle {p.bundle:.3f}, "
        f"ratio {p.ratio:.4f}",
        f"expected ({limits.kind}): relative at most {limits.relative:g}, "
        f"same argmax at the last exit at least {limits.argmax:.1%}, "
        f"perplexity ratio 1 within {limits.perplexity:.1%}",
    ]
    return [*lines, *([report.note] if report.note else []), *report.failures]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror})") from error
