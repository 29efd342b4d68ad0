"""``foredraft inspect``: what is inside a bundle, and what of it this machine can run."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.commands.options import bundle_argument
from foredraft.errors import ForedraftError

if TYPE_CHECKING:
    from foredraft.bundle import Bundle

EPILOG = """
Examples:

\b
  foredraft inspect smollm2.foredraft
  foredraft inspect smollm2.foredraft --json | jq .model.context
"""


@click.command(short_help="Show what is inside a bundle and what of it this machine can run.", epilog=EPILOG)
@bundle_argument
@click.option("--json", "as_json", is_flag=True, help="The manifest, and 'machine': what this machine can run.")
def inspect(bundle: Path, as_json: bool) -> None:
    """Show what is inside a bundle and what of it this machine can run. Nothing of it is loaded."""
    from foredraft import Bundle

    opened = Bundle.open(bundle)
    values, machine = opened.manifest.to_json(), describe_machine(opened)
    if as_json:
        click.echo(json.dumps({**values, "machine": machine}, ensure_ascii=False))
    else:
        _print(str(opened.path), values, machine)


def describe_machine(bundle: Bundle) -> dict[str, Any]:
    """This machine, the lowering that ``auto`` means on its CPU, and for each of the bundle's lowerings and engines
    why it cannot run (or None).
    """
    import onnxruntime

    from foredraft.engines.onnxruntime import LOWERINGS, choose_lowering

    def problem(lowering: str) -> str | None:
        try:
            choose_lowering(bundle, lowering)
        except ForedraftError as error:
            return str(error)
        return None

    device, engines = _device(bundle)
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "onnxruntime": onnxruntime.__version__,
        "auto": None if problem("auto") else choose_lowering(bundle, "auto"),
        "lowerings": {name: problem(name) for name in bundle.manifest.graphs if name in LOWERINGS},
        "device": device,
        "engines": engines,
    }


def _device(bundle: Bundle) -> tuple[str | None, dict[str, str | None]]:
    """The CUDA device, looked for if the bundle has engines, and for each of them why it cannot run (or None)."""
    names = list(bundle.manifest.engines)
    if not names:
        return None, {}
    from foredraft.engines.select import open_device
    from foredraft.engines.tensorrt.match import problems

    try:
        device = open_device()
    except ForedraftError as error:
        return None, dict.fromkeys(names, str(error))
    return str(device), problems(bundle, device)


def _print(path: str, values: dict[str, Any], machine: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def table(title: str, *columns: str) -> Table:
        made = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, show_header=bool(columns))
        for column in columns or ("", ""):
            made.add_column(column, justify="right" if column == "bytes" else "left", overflow="fold")
        return made

    about = table(path)
    for name, value in _facts(values):
        about.add_row(name, Text(value))
    lowerings = table(f"On this machine ({machine['system']}, ONNX Runtime {machine['onnxruntime']})", "lowering", "")
    for name, problem in machine["lowerings"].items():
        ready = "ready (chosen by auto)" if name == machine["auto"] else "ready"
        lowerings.add_row(Text(name), Text(problem or ready))
    for name, problem in machine["engines"].items():
        lowerings.add_row(Text(name), Text(problem or f"ready, on {machine['device']}"))
    files = table("Files", "file", "bytes", "sha256")
    for name, info in values["files"].items():
        files.add_row(Text(name), f"{info['size']:,}", info["sha256"][:16] + "…")
    console = Console()
    for part in (about, lowerings, files):
        console.print(part)


def _facts(values: dict[str, Any]) -> list[tuple[str, str]]:
    """The manifest in words, as (name, value)."""
    model, tokenizer = values["model"], values["tokenizer"]
    size = sum(info["size"] for info in values["files"].values())
    segments = ", ".join(f"{part['first']}-{part['last'] - 1}" for part in values["segments"])
    return [
        ("model", f"{model['name']} ({model['architecture']})"),
        ("licence", model["license"] or "not stated"),
        ("layers", f"{model['layers']}, in segments {segments}"),
        ("width", f"{model['hidden_size']}, MLP {model['intermediate_size']}"),
        ("attention", f"{model['heads']} heads of {model['head_dim']}, {model['kv_heads']} for K and V"),
        ("vocabulary", f"{model['vocab_size']:,} (tokenizer: {tokenizer['vocab_size']:,})"),
        ("context", f"{model['context']:,} tokens"),
        ("precision", str(values["precision"])),
        ("size", f"{size / 1e6:,.1f} MB in {len(values['files'])} files"),
        ("written by", f"Foredraft {values['foredraft']}, schema {values['schema']}"),
    ]
