"""Fitting end to end on tiny models: closed form, correction, report, and the adapters in a bundle."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from foredraft import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.errors import ForedraftError
from foredraft_exporter.build import export
from foredraft_exporter.exits import correction
from foredraft_exporter.exits.adapters import Adapter, read_adapters, write_adapters
from foredraft_exporter.exits.additions import ExitOptions
from foredraft_exporter.exits.agreement import measure
from foredraft_exporter.exits.command import exits as command
from foredraft_exporter.exits.fit import fit
from foredraft_exporter.exits.source import SourceSizes, open_source
from foredraft_exporter.exits.texts import TextPiece, read_pieces
from foredraft_exporter.exits.verdict import break_even, cost_fraction, verdict
from tests.exporter.exits.helpers import LAYERSKIP, random_adapter, run_on

pytestmark = pytest.mark.slow

SOURCES = Path(sysconfig.get_path("stdlib")) / "json"


@pytest.fixture(scope="module")
def pieces() -> list[TextPiece]:
    return read_pieces([SOURCES])


@pytest.fixture(scope="module")
def tiny_cut(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cut") / "tiny.foredraft"
    export(tiny_folder, path, exits=(1, 3), precision="fp32")
    return path


def test_ridge_beats_the_raw_readout_of_a_bundle(
    tiny_cut: Path, tiny_folder: Path, tmp_path: Path, pieces: list[TextPiece]
) -> None:
    source = open_source(tiny_cut, [])
    adapters, report = fit(source, pieces, tokens=6000, seconds=60, with_correction=False)
    assert not report.corrected
    for exit_ in report.exits:
        assert exit_.best == "ridge"
        assert exit_.stages["ridge"].top1 > exit_.stages["raw"].top1 + 0.05
    assert report.exits[1].agreement > report.exits[0].agreement
    write_adapters(tmp_path / "a.safetensors", adapters, source.model)
    adapted = tmp_path / "adapted.foredraft"
    export(tiny_folder, adapted, exits=(1, 3), precision="int8", exit_options=ExitOptions(tmp_path / "a.safetensors"))
    engine = OnnxRuntimeEngine(Bundle.open(adapted), threads=2)
    tokens = [256, *next(p for p in pieces if p.held_out).text.encode()[:200]]
    *runs, last = (run.logits.argmax(axis=1) for run in run_on(engine, engine.open_sequence(256), tokens))
    for exit_, top in zip(report.exits, runs, strict=True):
        assert (top == last).mean() > exit_.stages["raw"].top1


def test_checkpoint_and_bundle_give_the_same_states(tiny_cut: Path, tiny_folder: Path) -> None:
    pytest.importorskip("transformers")
    bundle, checkpoint = open_source(tiny_cut, (3,)), open_source(tiny_folder, (3,))
    assert bundle.model == checkpoint.model
    assert bundle.sizes == checkpoint.sizes
    assert bundle.start == checkpoint.start == (256,)
    np.testing.assert_array_equal(bundle.head, checkpoint.head)
    tokens = [256, *(i % 200 for i in range(7, 300))]
    long = [tokens[:256], tokens[:40]]
    for ids in long:
        ours, theirs = bundle.read(ids), checkpoint.read(ids)
        np.testing.assert_allclose(ours.hidden[0], theirs.hidden[0], atol=2e-3)
        np.testing.assert_allclose(ours.readout, theirs.readout, atol=2e-3)


def test_the_head_of_a_quantized_bundle(tiny_folder: Path, tmp_path: Path) -> None:
    export(tiny_folder, tmp_path / "int8.foredraft", exits=(2,), precision="int8")
    head = open_source(tmp_path / "int8.foredraft", (2,)).head
    whole = open_source(tmp_path / "int8.foredraft", (2,)).read([256, 5, 6])
    assert head.shape == (272, 64)
    engine = OnnxRuntimeEngine(Bundle.open(tmp_path / "int8.foredraft"), threads=1)
    run = run_on(engine, engine.open_sequence(16), [256, 5, 6])[-1]
    difference = np.linalg.norm(whole.readout @ head.T - run.logits) / np.linalg.norm(run.logits)
    assert difference < 0.02


def test_training_improves_on_its_start() -> None:
    pytest.importorskip("torch")
    random = np.random.default_rng(0)
    hidden = (5 + 3 * random.standard_normal((3000, 32))).astype(np.float32)
    head = random.standard_normal((50, 32)).astype(np.float32)
    norm = np.ones(32, np.float32)
    truth = random_adapter(32, rank=32, seed=4)
    wanted = truth((hidden - 5) / 3)
    readout = wanted / np.sqrt((wanted**2).mean(axis=1, keepdims=True))
    own = (readout @ head.T).argmax(axis=1)
    start = Adapter(np.eye(32, dtype=np.float32) / 3, np.full(32, -5 / 3, np.float32))
    before = measure(start(hidden), head, own).top1
    statistics = hidden.mean(axis=0), hidden.std(axis=0)
    shares: list[float] = []
    trained = correction.train(
        start,
        statistics,
        hidden,
        readout,
        head,
        norm,
        lambda step: step / 150,
        32,
        lambda share, _loss: shares.append(share),
    )
    assert trained.rank == 32
    assert measure(trained(hidden), head, own).top1 > before + 0.1
    assert shares == sorted(shares)


def test_confidence_buckets() -> None:
    head = np.eye(4, dtype=np.float32)
    readout = np.array([[9, 0, 0, 0], [0, 9, 0, 0], [0.1, 0, 0, 0]], np.float32)
    found = measure(readout, head, np.array([0, 0, 0]))
    assert found.top1 == pytest.approx(2 / 3)
    assert found.buckets[0].agreement == 1.0
    assert found.buckets[-1].agreement == 0.5
    assert found.buckets[2].agreement is None
    assert sum(b.share for b in found.buckets) == pytest.approx(1)


def test_costs_and_verdicts() -> None:
    sizes = SourceSizes(layers=8, layer=100, head=0, draft_head=0)
    assert [cost_fraction(sizes, e) for e in (1, 2, 4)] == [1 / 8, 1 / 4, 1 / 2]
    assert cost_fraction(SourceSizes(8, 100, 400, 100), 1, adapter=40) == pytest.approx(0.2)
    assert break_even(1 / 8) == pytest.approx(0.55)
    assert break_even(1 / 4) == pytest.approx(0.65)
    assert "27%, and needs 55%: it will not help; the runtime will leave it off" in verdict(8, 0.27, 1 / 8)
    assert "it will help" in verdict(4, 0.75, 1 / 4)
    assert "may or may not" in verdict(4, 0.64, 1 / 4)
    assert "cannot pay" in verdict(20, 0.99, 0.7)


def test_command(tmp_path: Path) -> None:
    bundle, out = tmp_path / "layerskip.foredraft", tmp_path / "exits.safetensors"
    export(LAYERSKIP, bundle, exits=(2, 4), precision="int8")
    arguments = ["fit", str(bundle), "--text", str(SOURCES), "--tokens", "3000", "--no-correction", "--out", str(out)]
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert [e["exit"] for e in report["exits"]] == [2, 4]
    raw = [e["agreement"]["raw"]["top1"] for e in report["exits"]]
    assert raw[0] == pytest.approx(0.56, abs=0.12)
    assert raw[1] == pytest.approx(0.74, abs=0.12)
    assert [e["kept"] for e in report["exits"]] == ["raw", "raw"]
    assert not out.exists()
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert "exit 4 agrees" in result.stdout
    assert "no adapters to write" in result.stdout


def test_command_writes_adapters(tiny_cut: Path, tmp_path: Path) -> None:
    out = tmp_path / "exits.safetensors"
    arguments = ["fit", str(tiny_cut), "--exits", "3", "--text", str(SOURCES), "--tokens", "3000", "--out", str(out)]
    result = CliRunner().invoke(command, [*arguments, "--seconds", "4"], catch_exceptions=False)
    assert result.exit_code == 0
    assert str(out) in result.stdout.replace("\n", "")
    assert list(read_adapters(out, model=open_source(tiny_cut, ()).model, hidden_size=64)) == [3]


@pytest.mark.parametrize(("exits", "says"), [((2,), "cut at 1, 3; export it again"), ((3, 1), "larger than")])
def test_exits_of_a_bundle_are_checked(tiny_cut: Path, exits: tuple[int, ...], says: str) -> None:
    with pytest.raises(ForedraftError, match=says):
        open_source(tiny_cut, exits)


def test_a_checkpoint_needs_exits_that_it_has(tiny_folder: Path) -> None:
    for exits, says in (((), "name the exits"), ((4,), "has 4 layers"), ((2, 2), "larger than")):
        with pytest.raises(ForedraftError, match=says):
            open_source(tiny_folder, exits)


def test_without_torch_the_closed_form_remains(
    tiny_cut: Path, pieces: list[TextPiece], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correction, "available", lambda: False)
    _, report = fit(open_source(tiny_cut, (3,)), pieces, tokens=2000, seconds=30)
    assert set(report.exits[0].stages) == {"raw", "ridge"}
    result = CliRunner().invoke(command, ["fit", str(tiny_cut), "--text", str(SOURCES), "--tokens", "2000"])
    assert "closed form only" in result.stderr
    assert "foredraft[fit]" in result.stderr
