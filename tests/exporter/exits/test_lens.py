"""Tuned-lens translators: h + A h + b becomes an adapter, and whatever does not fit is refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from foredraft.errors import CheckpointError
from foredraft_exporter.build import export
from foredraft_exporter.exits.additions import ExitOptions
from foredraft_exporter.exits.lens import read_lens
from foredraft_exporter.sources.checkpoint import open_checkpoint
from tests.exporter.exits.helpers import rms_norm, run_segments


def translators(width: int = 64) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(7)
    return {
        f"{layer}.{name}": (0.1 * random.standard_normal(shape)).astype(np.float32)
        for layer in range(4)
        for name, shape in (("weight", (width, width)), ("bias", (width,)))
    }


@pytest.mark.parametrize("prefix", ["", "layer_translators.", "translators.", "lens."])
def test_translator_e_reads_the_state_after_e_layers(tmp_path: Path, prefix: str) -> None:
    tensors = translators()
    save_file({prefix + name: value for name, value in tensors.items()}, tmp_path / "params.safetensors")
    adapters = read_lens(tmp_path, (1, 3), 64)
    h = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    for exit_ in (1, 3):
        wanted = h + h @ tensors[f"{exit_}.weight"].T + tensors[f"{exit_}.bias"]
        np.testing.assert_allclose(adapters[exit_](h), wanted, atol=1e-5)


def test_in_the_graph(tmp_path: Path, tiny_folder: Path) -> None:
    tensors = translators()
    save_file(tensors, tmp_path / "params.safetensors")
    options = ExitOptions(lens=tmp_path)
    export(tiny_folder, tmp_path / "lens.foredraft", exits=(2,), precision="fp32", exit_options=options)
    run = run_segments(tmp_path / "lens.foredraft", range(40, 60), "portable")[0]
    assert run.hidden is not None
    state = run.hidden + run.hidden @ tensors["2.weight"].T + tensors["2.bias"]
    weight = open_checkpoint(tiny_folder).read("model.norm.weight")
    np.testing.assert_allclose(run.readout, rms_norm(state, weight), atol=1e-4)


def test_a_lens_without_biases(tmp_path: Path) -> None:
    save_file({"2.weight": np.zeros((64, 64), np.float16)}, tmp_path / "params.safetensors")
    adapter = read_lens(tmp_path / "params.safetensors", (2,), 64)[2]
    assert np.array_equal(adapter.weight, np.eye(64))
    assert not adapter.bias.any()


def test_refusals(tmp_path: Path) -> None:
    wide, pickled, empty, strange = (tmp_path / name for name in ("wide", "pickled", "empty", "strange"))
    for folder in (wide, pickled, empty, strange):
        folder.mkdir()
    save_file(translators(32), wide / "params.safetensors")
    save_file({"2.weights": np.ones(3, np.float32)}, strange / "params.safetensors")
    (pickled / "params.pt").write_bytes(b"PK")
    cases = [
        (wide, (2,), "shape [32], expected [64]"),
        (wide, (9,), "no translator for exit 9"),
        (pickled, (2,), "weights_only=True"),
        (pickled / "params.pt", (2,), "pickled"),
        (empty, (2,), "no *.safetensors"),
        (strange, (2,), "expected names such as"),
        (tmp_path / "nowhere", (2,), "no such folder"),
    ]
    for folder, exits, says in cases:
        with pytest.raises(CheckpointError) as error:
            read_lens(folder, exits, 64)
        assert says in str(error.value)
        assert "\n" not in str(error.value)
