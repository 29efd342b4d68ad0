"""The trained tiny model: its exits agree with the last layer as its README says, and are transformers' own states."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import pytest

from foredraft import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft_exporter.build import export
from foredraft_plugins import library
from tests.exporter.exits.helpers import HELD_OUT, LAYERSKIP, run_on, run_segments

pytestmark = pytest.mark.slow

README = {2: 0.558, 4: 0.722}
"""Agreement on held-out text, windows of 512."""
WINDOW, WINDOWS = 256, 24


@pytest.fixture(scope="module", params=["fp32", "int8"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("layerskip") / f"{request.param}.foredraft"
    export(LAYERSKIP, path, exits=(2, 4), precision=request.param)
    return path


def held_out_windows(bundle: Bundle) -> list[list[int]]:
    """Windows of 256 tokens of files that the model has not seen, each after the token that begins a text."""
    folder, windows = Path(sysconfig.get_path("stdlib")), []
    for name in HELD_OUT:
        if (folder / name).exists():
            ids = bundle.tokenizer.encode((folder / name).read_text(encoding="utf-8"), add_bos=False)
            windows += [[0, *ids[at : at + WINDOW - 1]] for at in range(0, len(ids) - WINDOW, WINDOW - 1)]
    if len(windows) < WINDOWS:
        pytest.skip("the standard library's sources are not installed")
    return windows[:: len(windows) // WINDOWS][:WINDOWS]


def test_agreement_on_held_out_text(bundle: Path) -> None:
    opened = Bundle.open(bundle)
    engine = OnnxRuntimeEngine(opened, threads=2)
    sequence, right = engine.open_sequence(WINDOW), {2: 0, 4: 0}
    windows = held_out_windows(opened)
    for tokens in windows:
        *exits, last = (run.logits.argmax(axis=1) for run in run_on(engine, sequence, tokens))
        for exit_, top in zip(right, exits, strict=True):
            right[exit_] += int((top == last).sum())
    for exit_, count in right.items():
        assert abs(count / (WINDOW * len(windows)) - README[exit_]) < 0.04, (exit_, count)


@pytest.mark.parametrize("lowering", ["kernels", "portable"])
def test_exits_are_the_final_norm_of_transformers_states(bundle: Path, lowering: str) -> None:
    if lowering == "kernels" and library.unavailable_reason():
        pytest.skip("no kernels")
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from foredraft_exporter.parity.torch_reference import load_reference
    from foredraft_exporter.sources.checkpoint import open_checkpoint

    tokens = Bundle.open(bundle).tokenizer.encode("def read(path):\n    with open(path) as file:\n        return")
    wanted = load_reference(open_checkpoint(LAYERSKIP), 1024).readouts(tokens, (2, 4, 16))
    for run, readout in zip(run_segments(bundle, tokens, lowering), wanted, strict=True):
        error = np.linalg.norm(run.readout - readout) / np.linalg.norm(readout)
        assert error < (1e-4 if "fp32" in bundle.name else 0.05)
