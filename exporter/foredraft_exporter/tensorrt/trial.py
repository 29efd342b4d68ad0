"""Can this one graph be built? For finding out which part of a failing one is at fault."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt.build_options import BuildOptions, slots_for
from foredraft_exporter.tensorrt.engine_set import Tell, build_one, require_builder, told
from foredraft_exporter.tensorrt.process import Built

_CONTEXT = 4096
"""Tokens, where there is no bundle to say."""


def try_graph(graph: Path, options: BuildOptions, tell: Tell | None = None) -> Built:
    """Build an engine of the ONNX file and throw it away. Raises ForedraftError naming node and cause."""
    if not graph.is_file():
        raise ForedraftError(f"{graph}: no such file")
    require_builder(options)
    with TemporaryDirectory() as folder:
        engine = Path(folder) / f"{graph.stem}.engine"
        return build_one(graph, engine, options, slots_for(_CONTEXT), told(tell, 0, 1))
