"""What the command line shows of a build: a moving line in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import Progress

from foredraft.bundle.manifest import Manifest
from foredraft_exporter.tensorrt.build_options import BuildOptions
from foredraft_exporter.tensorrt.engine_set import Tell
from foredraft_exporter.tensorrt.process import Built

_EVERY = 5.0
"""Seconds between lines where nothing moves."""


def shown(bar: Progress, console: Console) -> Tell:
    """A ``Tell`` that keeps one task of ``bar``, and prints to ``console`` if that is no terminal."""
    task = bar.add_task("building", total=None, visible=False)
    last = time.monotonic()

    def tell(what: str, done: int, total: int, seconds: float) -> None:
        nonlocal last
        text = f"{what} ({seconds:.0f} s)" if seconds >= 1 else what
        bar.update(task, completed=done, total=total, description=text, visible=True)
        if not console.is_terminal and time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            console.print(f"building, {done} of {total} engines done: {text}")

    return tell


def engine_lines(manifest: Manifest) -> Iterator[str]:
    """One line for each set of engines: what it is for, and its size."""
    for name, engines in manifest.engines.items():
        size = sum(manifest.files[path].size for path in manifest.files_of_engines(name))
        yield (
            f"engines {name}: {engines.library} {engines.version}, {len(engines.paths)} for "
            f"{', '.join(engines.targets)}, {engines.attention} attention, {size / 1e6:.1f} MB"
        )


def built_lines(built: Mapping[str, Built]) -> Iterator[str]:
    """A line for each engine, and each different warning of the library once."""
    for path, one in built.items():
        yield f"{path}: {one.nbytes / 1e6:.1f} MB in {one.seconds:.1f} s, {one.memory / 1e6:.0f} MB of memory"
    for warning in dict.fromkeys(warning for one in built.values() for warning in one.warnings):
        yield f"warning: {warning}"


def built_values(options: BuildOptions, built: Mapping[str, Built]) -> dict[str, Any]:
    """The same as JSON values."""
    return {"name": options.name, "targets": options.targets, "engines": {p: asdict(one) for p, one in built.items()}}
