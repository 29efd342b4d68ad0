"""Can this one graph be built? For finding out which part of a failing one is at fault."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt.engine_set import Tell, require_builder
from foredraft_exporter.tensorrt.job import Job
from foredraft_exporter.tensorrt.options import DECODE, PREFILL, EngineOptions, slots_for
from foredraft_exporter.tensorrt.process import Built, build_engine

_CONTEXT = 4096
"""Tokens, where there is no bundle to say."""


def try_graph(graph: Path, options: EngineOptions, tell: Tell | None = None) -> Built:
    """Build an engine of the ONNX file and throw it away. Raises ForedraftError naming node and cause."""
    if not graph.is_file():
        raise ForedraftError(f"{graph}: no such file")
    require_builder(options)
    with TemporaryDirectory() as folder:
        engine = str(Path(folder) / f"{graph.stem}.engine")
        job = Job(options.backend, str(graph.absolute()), engine, options.targets, DECODE, PREFILL, slots_for(_CONTEXT))
        return build_engine(job, lambda what, seconds: tell(what, 0, 1, seconds) if tell else None)
