"""``foredraft export``: a checkpoint becomes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from foredraft_exporter.build import ExportPlan

EXAMPLES = """
Examples:

\b
  foredraft export smollm2-135m --out smollm2-135m.foredraft
  foredraft export llama-7b --out llama-7b.foredraft --precision int8
  foredraft export ./my-model --out my-model.foredraft --exits 4,8 --context 4096
  foredraft export ./my-model --out my-model.foredraft --exits 4,8 --adapters my-exits.safetensors
  foredraft export model.Q4_1.gguf --out model.foredraft
  foredraft export llama-7b --backend tensorrt-rtx --targets sm89,sm120 --precision fp16
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
    type=click.Choice(["auto", "fp32", "fp16", "bf16", "int8", "int4"]),
    help="auto keeps a GGUF's own 4- and 8-bit numbers exactly; anything else becomes int8. TensorRT: auto is fp16.",
)
@click.option(
    "--backend",
    default="onnxruntime",
    show_default=True,
    type=click.Choice(["onnxruntime", "tensorrt-rtx", "tensorrt"]),
    help="Who runs it: ONNX Runtime on the CPU, or engines built now for NVIDIA GPUs.",
)
@click.option("--targets", help="Compute capabilities to build engines for [default for tensorrt-rtx: sm89,sm120].")
@click.option(
    "--attention",
    default="plugin",
    show_default=True,
    type=click.Choice(["plugin", "native"]),
    help="Engines' attention: our kernel, or TensorRT's own layers.",
)
@click.option(
    "--weights",
    default="inputs",
    show_default=True,
    type=click.Choice(["inputs", "constants"]),
    help="Whether engines are code alone, given the weights when they run, or hold them.",
)
@click.option("--context", type=click.IntRange(1), help="Longest text in tokens [default: the model's own].")
@click.option("--adapters", type=click.Path(path_type=Path), help="How exits are read out: a file of 'exits fit'.")
@click.option("--lens", type=click.Path(path_type=Path), help="The same from a tuned lens: a folder of safetensors.")
@click.option(
    "--draft-vocab",
    default="auto",
    show_default=True,
    metavar="N|auto|none",
    help="Exits draft from the N most frequent tokens; auto: where the head would cost more than the exit.",
)
@click.option(
    "--draft-vocab-text",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Count frequencies in this file or folder [default: the tokenizer's own order]; may be repeated.",
)
@click.option("--force", is_flag=True, help="Replace the bundle if it exists.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def export(
    source: str,
    out: Path | None,
    exits: list[int] | None,
    precision: str,
    backend: str,
    targets: str | None,
    attention: str,
    weights: str,
    context: int | None,
    adapters: Path | None,
    lens: Path | None,
    draft_vocab: str,
    draft_vocab_text: tuple[Path, ...],
    force: bool,
    quiet: bool,
) -> None:
    """Turn SOURCE into a bundle that the runtime opens.

    SOURCE is a name of the catalogue (smollm2-135m, llama-7b, ...), a Hugging Face folder or id (org/model, or
    org/model:Q4_K_M for one of its GGUF files), or a .gguf file; a path works wherever a name does.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from foredraft_exporter.build import export as run
    from foredraft_exporter.exits.additions import ExitOptions
    from foredraft_exporter.sources import catalog
    from foredraft_exporter.sources.origin import origin_of
    from foredraft_exporter.tensorrt.build_options import engine_options
    from foredraft_exporter.tensorrt.show import engine_lines, shown

    entry = None if Path(source).expanduser().exists() else catalog.find(source)
    if exits is None:
        exits = list(entry.exits) if entry else []
    target = out or Path("bundles") / f"{origin_of(source).name}.foredraft"
    engines = None if backend == "onnxruntime" else engine_options(backend, targets, attention, weights)
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
            for line in _exit_lines(plan):
                console.print(line)
            for warning in plan.text.warnings:
                console.print(f"warning: {warning}", markup=False)
            console.print(f"needs {_size(plan.disk)} on disk and about {_size(plan.memory)} of memory")

        manifest, report = run(
            source,
            target,
            exits=exits,
            precision=precision,
            context=context,
            exit_options=ExitOptions(adapters, lens, draft_vocab, draft_vocab_text),
            engines=engines,
            replace=force,
            planned=planned,
            building=shown(bar, console),
            progress=lambda done, total, what: bar.update(task, completed=done, total=total, description=what),
        )
    if report.errors:
        worst = max(report.errors, key=lambda name: report.errors[name])
        mean = sum(report.errors.values()) / len(report.errors)
        console.print(
            f"rounding to {manifest.precision}: mean error {mean:.2%}, worst {report.errors[worst]:.2%} ({worst})"
        )
    else:
        console.print(f"weights: the checkpoint's own numbers, bit for bit ({manifest.precision})")
    for line in engine_lines(manifest):
        console.print(line)
    console.print(f"wrote {target} ({_size(sum(f.size for f in manifest.files.values()))})")


def _exit_lines(plan: ExportPlan) -> list[str]:
    from foredraft_graphs.head import DRAFT_IDS

    constants = plan.weights.constants
    adapted = [str(exit_) for exit_ in plan.exits if f"exits.{exit_}.bias" in constants]
    lines = [f"adapters for exits {', '.join(adapted)}"] if adapted else []
    if DRAFT_IDS in constants:
        lines.append(f"exits draft from {len(constants[DRAFT_IDS])} of {plan.decoder.vocab_size} tokens")
    return lines


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
