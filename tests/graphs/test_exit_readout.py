"""Adapters and draft heads in the graph against numpy, in both lowerings and in float32 and 8 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foredraft import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft_exporter.build import export
from foredraft_exporter.exits.adapters import Adapter, write_adapters
from foredraft_exporter.exits.additions import ExitOptions
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_plugins import library
from tests.exporter.exits.helpers import model_of, random_adapter, rms_norm, run_on, run_segments
from tests.fixtures import tiny_gguf

TOKENS = [256, *range(30, 70)]
LOWERINGS = [
    pytest.param("kernels", marks=pytest.mark.skipif(bool(library.unavailable_reason()), reason="no kernels")),
    "portable",
]
ADAPTERS = {1: random_adapter(64, rank=24, seed=1), 2: random_adapter(64, seed=2)}
"""A rank that does not divide into blocks (float32 whatever the precision for ``down``), and none."""


@pytest.fixture(scope="module", params=["fp32", "int8"])
def bundle(request: pytest.FixtureRequest, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapted")
    write_adapters(folder / "exits.safetensors", ADAPTERS, model_of(tiny_folder))
    options = ExitOptions(adapters=folder / "exits.safetensors", draft_vocab=96)
    path = folder / f"{request.param}.foredraft"
    export(tiny_folder, path, exits=(1, 2, 3), precision=request.param, exit_options=options)
    return path


def expected(adapter: Adapter | None, hidden: np.ndarray, norm: np.ndarray) -> np.ndarray:
    return rms_norm(hidden if adapter is None else adapter(hidden), norm)


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_readouts_are_what_numpy_computes(bundle: Path, tiny_folder: Path, lowering: str) -> None:
    norm = open_checkpoint(tiny_folder).read("model.norm.weight")
    tolerance = 1e-4 if "fp32" in bundle.name else 0.06
    for exit_, run in zip((1, 2, 3), run_segments(bundle, TOKENS, lowering), strict=False):
        assert run.hidden is not None
        wanted = expected(ADAPTERS.get(exit_), run.hidden, norm)
        error = np.linalg.norm(run.readout - wanted) / np.linalg.norm(wanted)
        assert error < (tolerance if exit_ in ADAPTERS else 1e-5), (exit_, error)


def test_lowerings_agree(bundle: Path) -> None:
    if library.unavailable_reason():
        pytest.skip("no kernels")
    pairs = zip(run_segments(bundle, TOKENS), run_segments(bundle, TOKENS, "portable"), strict=True)
    for kernels, portable in pairs:
        difference = np.linalg.norm(kernels.readout - portable.readout) / np.linalg.norm(portable.readout)
        assert difference < (1e-5 if "fp32" in bundle.name else 0.02)


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_the_whole_model_is_untouched(bundle: Path, tiny_folder: Path, tmp_path: Path, lowering: str) -> None:
    plain = tmp_path / "plain.foredraft"
    export(tiny_folder, plain, exits=(1, 2, 3), precision=bundle.stem)
    ours, theirs = (run_segments(path, TOKENS, lowering) for path in (bundle, plain))
    assert np.array_equal(ours[-1].logits, theirs[-1].logits)
    assert not np.array_equal(ours[0].readout, theirs[0].readout)
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert a.hidden is not None
        assert b.hidden is not None
        assert np.array_equal(a.hidden, b.hidden)


def test_a_row_does_not_depend_on_its_batch(bundle: Path) -> None:
    if library.unavailable_reason():
        pytest.skip("no kernels")
    engine = OnnxRuntimeEngine(Bundle.open(bundle), threads=2, lowering="kernels")
    whole = run_on(engine, engine.open_sequence(64), TOKENS)
    for length in (1, 2, 3, 7, 16, 33):
        part = run_on(engine, engine.open_sequence(64), TOKENS[:length])
        for a, b in zip(part, whole, strict=True):
            assert np.array_equal(a.readout, b.readout[:length])
            assert np.array_equal(a.draft_logits, b.draft_logits[:length])


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_the_draft_head_is_rows_of_the_head(bundle: Path, lowering: str) -> None:
    for run in run_segments(bundle, TOKENS, lowering):
        assert len(run.draft_ids) == 96
        assert (np.diff(run.draft_ids) > 0).all()
        if lowering == "kernels":
            assert np.array_equal(run.draft_logits, run.logits[:, run.draft_ids])
        else:
            np.testing.assert_allclose(run.draft_logits, run.logits[:, run.draft_ids], atol=1e-4)


@pytest.mark.parametrize(("kind", "precision"), [("Q4_1", "auto"), ("Q8_0", "auto"), ("Q4_0", "int8")])
def test_rows_of_a_quantized_head_stay_its_own(tmp_path: Path, kind: str, precision: str) -> None:
    if library.unavailable_reason():
        pytest.skip("no kernels")
    source = tiny_gguf(tmp_path / "tiny.gguf", kind)
    options = ExitOptions(draft_vocab=64)
    export(source, tmp_path / "tiny.foredraft", exits=(2,), precision=precision, exit_options=options)
    for run in run_segments(tmp_path / "tiny.foredraft", TOKENS):
        assert np.array_equal(run.draft_logits, run.logits[:, run.draft_ids])


def test_without_a_draft_head_the_whole_one_drafts(tiny_folder: Path, tmp_path: Path) -> None:
    export(tiny_folder, tmp_path / "plain.foredraft", exits=(2,), precision="fp32")
    run = run_segments(tmp_path / "plain.foredraft", TOKENS, "portable")[0]
    assert np.array_equal(run.draft_ids, np.arange(272))
    assert np.array_equal(run.draft_logits, run.logits)
