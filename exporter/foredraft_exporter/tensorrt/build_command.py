"""``foredraft build``: engines for a bundle that is there already."""

from __future__ import annotations

from pathlib import Path

import click

EXAMPLES = """
Examples:

\b
  foredraft build llama-7b.foredraft --backend tensorrt-rtx --targets sm86
  foredraft build llama-7b.foredraft --backend tensorrt
  foredraft build segment-0.onnx --backend tensorrt-rtx --targets sm89
"""


@click.command(short_help="Build a bundle's engines for another device.", epilog=EXAMPLES)
@click.argument("source", metavar="BUNDLE|GRAPH.onnx", type=click.Path(path_type=Path))
@click.option(
    "--backend",
    required=True,
    type=click.Choice(["tensorrt-rtx", "tensorrt"]),
    help="tensorrt-rtx builds for any of its targets on any machine, tensorrt for the GPU that it runs on.",
)
@click.option("--targets", help="Compute capabilities, e.g. sm86,sm89 [default: sm89,sm120, or the GPU that is here].")
@click.option("--attention", default="plugin", show_default=True, type=click.Choice(["plugin", "native"]))
@click.option("--weights", default="inputs", show_default=True, type=click.Choice(["inputs", "constants"]))
@click.option("--json", "as_json", is_flag=True, help="One line of JSON: what was built.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def build(
    source: Path, backend: str, targets: str | None, attention: str, weights: str, as_json: bool, quiet: bool
) -> None:
    """Build engines from the graphs of BUNDLE and add them to it; it must be signed again.

    BUNDLE was exported with --backend tensorrt-rtx or tensorrt, and the same --attention and --weights. Of a single
    GRAPH.onnx an engine is built and thrown away: it shows whether that graph can be built.
    """
    import json

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from foredraft.distribution import open_bundle
    from foredraft_exporter.tensorrt.build_options import engine_options
    from foredraft_exporter.tensorrt.rebuild import rebuild
    from foredraft_exporter.tensorrt.show import built_lines, built_values, shown
    from foredraft_exporter.tensorrt.trial import try_graph

    options = engine_options(backend, targets, attention, weights)
    console = Console(stderr=True, highlight=False, quiet=quiet, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tell = shown(bar, console)
        if source.suffix == ".onnx":
            built = {source.name: try_graph(source, options, tell)}
        else:
            built = dict(rebuild(open_bundle(source), options, tell).built)
    for line in built_lines(built):
        console.print(line)
    if as_json:
        click.echo(json.dumps(built_values(options, built)))
