"""``foredraft export``: a checkpoint becomes a bundle."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """
Examples:

\b
  foredraft export smollm2-135m --out smollm2-135m.foredraft
  foredraft export llama-7b --out llama-7b.foredraft --precision int8
  foredraft export ./my-model --out my-model.foredraft --exits 4,8 --context 4096
  foredraft export model.Q4_1.gguf --out model.foredraft
"""


def _exits(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    try:
        return [int(part) for part in value.split(",")] if value.strip() not in ("", "none") else []
    except ValueError:
        raise click.BadParameter(f"{value!r}: expected layer numbers separated by commas, such as 4,8") from None


@click.command(short_help="Turn a checkpoint into a bundle.", epilog=EXAMPLES)
@click.argument("source")
@click.option("--out", type=click.Path(path_type=Path), help="The bundle's folder [default: bundles/NAME.foredraft].")
@click.option("--exits", callback=_exits, help="Layers to cut at, e.g. 4,8, or none [default: the catalogue's].")
@click.option(
    "--precision",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "fp32", "int8", "int4"]),
    help="auto keeps a GGUF's own 4- and 8-bit numbers exactly; anything else becomes int8.",
)
@click.option("--context", type=click.IntRange(1), help="Longest text in tokens [default: the model's own].")
@click.option("--force", is_flag=True, help="Replace the bundle if it exists.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def export(
    source: str,
    out: Path | None,
    exits: list[int] | None,
    precision: str,
    context: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Turn SOURCE into a bundle that the runtime opens.

    SOURCE is a name of the catalogue (smollm2-135m, llama-7b, ...), a Hugging Face folder or id, or a .gguf file; a
    path works wherever a name does.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from foredraft_exporter import catalog
    from foredraft_exporter.build import ExportPlan, export as run

    entry = None if Path(source).expanduser().exists() else catalog.find(source)
    if exits is None:
        exits = list(entry.exits) if entry else []
    target = out or Path("bundles") / f"{Path(source).expanduser().absolute().stem if not entry else entry.name}.foredraft"
    console = Console(stderr=True, highlight=False, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def planned(plan: ExportPlan) -> None:
            d = plan.decoder
            console.print(
                f"{plan.checkpoint.info.name}: {d.layers} layers of {d.hidden_size}, vocabulary {d.vocab_size}, "
                f"context {d.context}, exits {list(plan.exits) or 'none'}, {plan.precision}"
            )
            console.print(f"needs {_size(plan.disk)} on disk and about {_size(plan.memory)} of memory")

        manifest, report = run(
            source,
            target,
            exits=exits,
            precision=precision,
            context=context,
            replace=force,
            planned=planned,
            progress=lambda done, total, what: bar.update(task, completed=done, total=total, description=what),
        )
    if report.errors:
        worst = max(report.errors, key=lambda name: report.errors[name])
        mean = sum(report.errors.values()) / len(report.errors)
        console.print(f"rounding to {manifest.precision}: mean error {mean:.2%}, worst {report.errors[worst]:.2%} ({worst})")
    else:
        console.print(f"weights: the checkpoint's own numbers, bit for bit ({manifest.precision})")
    console.print(f"wrote {target} ({_size(sum(f.size for f in manifest.files.values()))})")


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
