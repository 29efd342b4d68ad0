"""The recipe of docs/tensorrt.md: Polygraphy finds the smallest part of a graph that cannot be built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.exporter.tensorrt.graphs import write_graphs
from tests.fixtures import tiny_checkpoint
from tests.waiting import TEST_LIMIT

pytestmark = pytest.mark.slow


def test_a_failing_graph_is_reduced_to_what_fails(tmp_path: Path) -> None:
    """Heads of 16 have no kernel: what remains ends with the first attention."""
    graph, *_ = write_graphs(tmp_path / "g", tiny_checkpoint(tmp_path / "model"), (1,), "fp16", "plugin", "inputs")
    tools = Path(sys.executable).parent
    recipe = f"debug reduce {graph} -o reduced.onnx --mode bisect --no-reduce-inputs --check foredraft build "
    recipe += "polygraphy_debug.onnx --backend tensorrt-rtx --targets sm89 --quiet"
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    command = [str(tools / "polygraphy"), *recipe.split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TEST_LIMIT)
    assert done.returncode == 0, done.stdout[-2000:]
    whole, reduced = (onnx.load(path, load_external_data=False).graph for path in (graph, tmp_path / "reduced.onnx"))
    assert reduced.node[-1].op_type == "TreeAttention"
    assert len(reduced.node) < len(whole.node) / 2
