"""The whole loop over engines/tensorrt on the stand-ins: the plumbing is right if the text is. No GPU is involved."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foredraft import SamplingParams, Session, session
from foredraft.bundle import Bundle
from foredraft.engines.cuda import heads
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.loop.chain import Chain
from foredraft.sampling.logits import dense
from foredraft.scheduling.forward_costs import CostCurve
from foredraft.scheduling.parts import ForwardCosts
from tests.runtime.engines.made import opened, tiny_engines

pytestmark = pytest.mark.slow

PROMPT = list(b"the cat sat on the mat, the cat sat on the ")
POLICIES = ["auto", "fixed:8", "tree", "self-spec", "hispec", "echo", "echo:keep=0.05,alternatives=2"]


def written(
    bundle: Bundle, prompt: list[int], count: int, sampling: SamplingParams | None = None, **how: Any
) -> list[int]:
    return Session(bundle, **how).generate(prompt, max_tokens=count, sampling=sampling).tokens


def plainly(
    bundle: Bundle, prompt: list[int], count: int, sampling: SamplingParams | None = None, **how: Any
) -> list[int]:
    """Token by token."""
    return written(bundle, prompt, count, sampling, drafter="none", policy="fixed:0", **how)


@pytest.fixture(autouse=True)
def known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``auto`` would measure; here that would be the stand-in's speed."""
    curve = CostCurve({1: 0.01, 8: 0.011, 64: 0.02})
    costs = ForwardCosts(curve, (curve, curve), (curve, curve))
    monkeypatch.setattr(session, "measured_costs", lambda bundle, engine: costs)


@pytest.fixture(scope="module")
def expected(tiny: Bundle) -> list[int]:
    """What ONNX Runtime writes from the portable graphs over the same weights, in float32."""
    return plainly(tiny, PROMPT, 16, device="cpu")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_writes_what_onnx_runtime_writes(tiny: Bundle, expected: list[int], policy: str) -> None:
    engine, _, _ = opened(tiny)
    result = Session(tiny, "blend", engine=engine, policy=policy).generate(PROMPT, max_tokens=16)
    assert result.tokens == expected
    assert result.stats.layer_runs > 0 and result.stats.engine == "tensorrt-rtx/fp16"
    if policy != "auto":
        assert result.stats.drafted > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_drafts_do_not_change_a_sampled_text(tiny: Bundle, policy: str) -> None:
    engine, _, _ = opened(tiny)
    sampling = SamplingParams(temperature=0.8, top_p=0.95, seed=7)
    plain = plainly(tiny, PROMPT, 16, sampling, engine=engine)
    assert written(tiny, PROMPT, 16, sampling, engine=engine, policy=policy) == plain


@pytest.mark.parametrize("how", [{}, {"top_k": 20}, {"top_k": 20, "top_p": 0.9}, {"min_p": 0.05}])
def test_a_top_gives_the_sampled_text_of_whole_rows(
    tiny: Bundle, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    engine, _, _ = opened(tiny)
    sampling = SamplingParams(temperature=0.8, seed=7, **how)
    from_top = written(tiny, PROMPT, 16, sampling, engine=engine, policy="hispec")
    monkeypatch.setattr(heads, "_TOP", ("no such output",))
    assert written(tiny, PROMPT, 16, sampling, engine=engine, policy="hispec") == from_top
    assert plainly(tiny, PROMPT, 16, sampling, engine=engine) == from_top


@pytest.mark.parametrize("policy", ["fixed:8", "echo"])
def test_a_trained_model_with_exits(layerskip: Bundle, policy: str) -> None:
    engine, _, _ = opened(layerskip)
    prompt = layerskip.tokenizer.encode("def main(argv):\n    parser = ")
    plain = plainly(layerskip, prompt, 16, device="cpu")
    result = Session(layerskip, engine=engine, policy=policy).generate(prompt, max_tokens=16)
    assert result.tokens == plain and result.stats.accepted > 0


@pytest.mark.parametrize("length", [1, 64, 65, 200])
def test_prompts_of_every_size(tiny: Bundle, length: int) -> None:
    prompt = [(7 * n * n + 3 * n + 11) % 251 for n in range(length)]
    engine, _, _ = opened(tiny)
    assert written(tiny, prompt, 12, engine=engine, policy="fixed:8") == plainly(tiny, prompt, 12, device="cpu")


@pytest.mark.parametrize(("precision", "error"), [("bf16", 0.3), ("int8", 0.03), ("int4", 0.03)])
def test_every_precision(tmp_path: Path, precision: str, error: float) -> None:
    bundle = Bundle.open(tiny_engines(tmp_path, precision=precision))
    engine, _, _ = opened(bundle)
    prefilled = [
        dense(Chain(one.open_sequence(300), [1, 1, 2]).prefill(PROMPT))
        for one in (engine, OnnxRuntimeEngine(bundle, 1))
    ]
    assert np.abs(prefilled[0] - prefilled[1]).max() < error
    assert written(bundle, PROMPT, 8, engine=engine, policy="echo") == plainly(bundle, PROMPT, 8, engine=engine)


def test_weights_inside_the_engines(tmp_path: Path) -> None:
    bundle = Bundle.open(tiny_engines(tmp_path, weights="constants"))
    engine, _, _ = opened(bundle)
    assert not engine.weights
    assert written(bundle, PROMPT, 8, engine=engine, policy="echo") == plainly(bundle, PROMPT, 8, device="cpu")


@pytest.mark.parametrize("policy", ["fixed:8", "echo"])
def test_attention_of_the_librarys_own(native: Bundle, policy: str) -> None:
    engine, cuda, _ = opened(native)
    plain = plainly(native, PROMPT, 16, device="cpu")
    assert written(native, PROMPT, 16, engine=engine, policy=policy) == plain
    assert not cuda.launched and not cuda.calls["cuGraphLaunch"]


def test_two_sequences_on_one_engine(tiny: Bundle, expected: list[int]) -> None:
    engine, _, _ = opened(tiny)
    sessions = [Session(tiny, engine=engine, policy=policy) for policy in ("fixed:8", "echo")]
    streams = [session.stream(PROMPT, max_tokens=16) for session in sessions]
    tokens: list[list[int]] = [[], []]
    for chunks in itertools.zip_longest(*streams):
        for index, chunk in enumerate(chunks):
            tokens[index] += chunk.tokens if chunk else []
    assert tokens == [expected] * 2
