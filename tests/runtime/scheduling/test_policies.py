"""Every policy on a model whose exits really agree with it: plain decoding's text, and no layer twice on a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft import Bundle, SamplingParams, Session
from foredraft.bench.hardware import HARDWARE
from foredraft.bench.simulate import Elsewhere
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.errors import RequestError
from foredraft.scheduling.policy import NO_EXIT, Policy
from foredraft_exporter.build import export

LAYERSKIP = Path(__file__).parents[2] / "data" / "layerskip-tiny"
LAYERS = (2, 2, 12)
PROMPT = (
    "<|endoftext|>import os\n\n\nclass Reader:\n    def __init__(self, path):\n        self.path = path\n\n    def read"
)
POLICIES = (
    "self-spec",
    "self-spec:draft_exit=0,draft_tokens=2",
    "self-spec:draft_tokens=3,alternatives=2",
    "hispec",
    "hispec:budget=4,confidence=0.3",
    "hispec:draft_tokens=1,tentative=3,alternatives=5",
    "echo",
    "echo:alternatives=3,keep=0.05",
    "echo:judge_exit=0,keep=0.1",
    "tree",
    "auto",
)


class WatchedSequence:
    """An engine's sequence that keeps which slots each segment ran on."""

    def __init__(self, sequence: Any) -> None:
        self.ran: list[tuple[int, int]] = []
        self._sequence = sequence

    def run(self, segment: int, batch: Any) -> None:
        self.ran += [(segment, slot) for slot in batch.slots.tolist()]
        self._sequence.run(segment, batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sequence, name)


class Rig:
    """Sessions on one engine, and plain decoding's answers."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle, self.engine = bundle, OnnxRuntimeEngine(bundle, threads=1)
        self._plain = Session(bundle, "none", engine=self.engine, policy="fixed:0")
        self._known: dict[tuple[SamplingParams, int], list[int]] = {}

    def session(self, policy: str | Policy, drafter: str = "none") -> Session:
        return Session(self.bundle, drafter, engine=self.engine, policy=policy)

    def plain(self, sampling: SamplingParams, count: int) -> list[int]:
        if (sampling, count) not in self._known:
            self._known[sampling, count] = self._plain.generate(PROMPT, max_tokens=count, sampling=sampling).tokens
        return self._known[sampling, count]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    path = tmp_path_factory.mktemp("policies") / "layerskip.foredraft"
    export(str(LAYERSKIP), path, precision="int8", exits=(2, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREDRAFT_CACHE", str(path.parent / "cache"))
        yield Rig(Bundle.open(path))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any way of using two exits."""
    draft = draw(st.sampled_from([NO_EXIT, 0, 1]))
    judge = draw(st.sampled_from([NO_EXIT, *range(draft + 1, 2)]))
    return Policy(
        budget=draw(st.integers(0, 12)),
        minimum=draw(st.sampled_from([0.0, 0.1])),
        draft_exit=draft,
        draft_tokens=draw(st.integers(1, 6)),
        judge_exit=judge,
        tentative=draw(st.integers(1, 10)),
        confidence=draw(st.sampled_from([0.0, 0.05, 0.5])),
        look_exit=draw(st.sampled_from([NO_EXIT, 0, 1])) if judge == NO_EXIT and draft == NO_EXIT else NO_EXIT,
        keep=draw(st.sampled_from([0.02, 0.2, 1.0])),
        alternatives=draw(st.integers(0, 5)) if (draft, judge) != (NO_EXIT, NO_EXIT) else 0,
    )


def check_work(session: Session, sampling: SamplingParams, count: int) -> list[int]:
    """Write an answer; after each round, check that no layer ran twice on a node, and that all that ran is counted."""
    watched = WatchedSequence(session.chain._sequence)
    session.chain._sequence = watched
    nodes_of_round: list[list[int]] = []
    for chunk in session.stream(PROMPT, max_tokens=count, sampling=sampling):
        if chunk.round is not None:
            assert len(watched.ran) == len(set(watched.ran))
            through = [sum(segment == k for segment, _ in watched.ran) for k in range(len(LAYERS))]
            assert through == [
                sum(n for k, n in chunk.round.forwards if k == segment) for segment in range(len(LAYERS))
            ]
            if nodes_of_round:
                assert through[0] <= 1 + len(chunk.round.tree) and through[-1] == chunk.round.verified
            nodes_of_round.append(through)
            watched.ran.clear()
    assert chunk.result is not None
    expected = int((np.array(nodes_of_round[1:]).reshape(-1, len(LAYERS)) @ np.array(LAYERS)).sum())
    assert chunk.result.stats.layer_runs == expected >= sum(LAYERS) * (count - 1)  # a token needs every layer once
    return chunk.result.tokens


@pytest.mark.parametrize("drafter", ["none", "context"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_writes_plain_decodings_text(rig: Rig, policy: str, drafter: str) -> None:
    session = rig.session(policy, drafter)
    for temperature, seed in ((0.0, 0), (0.8, 1), (0.8, 2)):
        sampling = SamplingParams(temperature=temperature, seed=seed)
        assert check_work(session, sampling, 32) == rig.plain(sampling, 32)


@settings(max_examples=30)
@given(policies(), st.sampled_from(["none", "context"]), st.sampled_from([0.0, 0.8]), st.integers(0, 2))
def test_any_policy_writes_plain_decodings_text(
    rig: Rig, policy: Policy, drafter: str, temperature: float, seed: int
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=seed)
    assert check_work(rig.session(policy, drafter), sampling, 16) == rig.plain(sampling, 16)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        "echo:budget=64,tentative=24",
        "echo:budget=255,tentative=9,alternatives=3",
        "echo:budget=16,tentative=12,alternatives=60",
        "self-spec:draft_tokens=300,alternatives=2",
    ],
)
def test_a_round_ends_when_its_window_is_full(rig: Rig, policy: str) -> None:
    sampling = SamplingParams(temperature=0.8, seed=4)
    answer = rig.session(policy, "blend").generate(PROMPT, max_tokens=280, sampling=sampling)
    assert answer.tokens == rig.plain(sampling, 280)


@pytest.mark.parametrize("hardware", list(HARDWARE))
def test_auto_planned_for_other_hardware_writes_plain_decodings_text(rig: Rig, hardware: str) -> None:
    """Where exits are cheap, auto uses them."""
    there = HARDWARE[hardware]
    session = rig.session(Elsewhere(len(LAYERS), there.times(LAYERS), there.host), "context")
    sampling = SamplingParams(temperature=0.8, seed=3)
    result = session.generate(PROMPT, max_tokens=96, sampling=sampling)
    assert result.tokens == rig.plain(sampling, 96)
    assert any(level.startswith("exit-") for level in result.stats.levels)


def test_exits_that_agree_save_layer_passes(rig: Rig) -> None:
    sampling = SamplingParams(temperature=0.8, seed=1)
    plain, *drafted = (
        rig.session(policy).generate(PROMPT, max_tokens=64, sampling=sampling).stats
        for policy in ("fixed:0", "self-spec", "hispec")
    )
    assert plain.layer_passes == plain.layer_runs == 16 * 63
    for stats in drafted:
        assert stats.layer_passes < 0.9 * plain.layer_passes and stats.layer_runs > plain.layer_runs


@pytest.mark.parametrize(
    "setting", [{"draft_exit": 2, "draft_tokens": 1}, {"judge_exit": 2, "tentative": 1}, {"look_exit": 2}]
)
def test_an_exit_that_the_bundle_lacks_is_refused(rig: Rig, setting: dict[str, int]) -> None:
    (name, _), *_ = setting.items()
    text = "self-spec:" + ",".join(f"{key}={value}" for key, value in setting.items())
    for policy in (Policy(**setting), text):
        with pytest.raises(RequestError, match=rf"^policy: {name} is 2, this bundle has exits 0 to 1$"):
            rig.session(policy)


@pytest.mark.parametrize("policy", ["self-spec", "hispec", "echo"])
def test_policies_with_exits_need_a_bundle_with_exits(tiny_bundle: Callable[..., Path], policy: str) -> None:
    with pytest.raises(RequestError, match=r"this bundle has no exits; export it with --exits$"):
        Session(Bundle.open(tiny_bundle("int8")), "none", threads=1, policy=policy)


@pytest.mark.slow
def test_runners_up_save_layer_passes(rig: Rig) -> None:
    """HiSpec with runners-up beats LayerSkip's scheme at its best exit and number of drafts by far."""
    sampling = SamplingParams(temperature=0.8, seed=1)

    def passes(policy: str) -> float:
        stats = rig.session(policy).generate(PROMPT, max_tokens=256, sampling=sampling).stats
        assert stats.accepted == sum(taken for _, taken in stats.levels.values())
        assert stats.drafted == sum(drafted for drafted, _ in stats.levels.values())
        return stats.layer_passes / 255

    settings = [f"draft_exit={exit_},draft_tokens={n}" for exit_ in (0, 1) for n in (1, 2, 3, 4)]
    best = min(passes(f"self-spec:{setting}") for setting in settings)
    assert best > 1.15 * passes("hispec") > 1.15 * passes("hispec:draft_tokens=1,tentative=3")
    assert passes("hispec:alternatives=0") > 1.1 * passes("hispec")
    assert passes("echo:alternatives=0") > 1.05 * passes("echo")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(alternatives=2), "alternatives is 2, expected 0 where no exit drafts or judges"),
        (Policy(draft_exit=0, draft_tokens=1, alternatives=-1), "alternatives is -1, expected 0 or more"),
        ("tree:alternatives=1", "alternatives is 1, expected 0 where no exit drafts or judges"),
        ("hispec:alternatives=x", "alternatives='x' is not a number"),
    ],
)
def test_runners_up_without_an_exit_are_refused(rig: Rig, policy: Policy | str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        rig.session(policy)


def test_an_engine_that_is_exact_for_paths_only_gets_no_runners_up(rig: Rig) -> None:
    portable = OnnxRuntimeEngine(rig.bundle, threads=1, lowering="portable")
    assert not portable.trees
    for policy in ("self-spec:alternatives=1", "hispec", Policy(budget=0, judge_exit=1, tentative=2, alternatives=2)):
        with pytest.raises(RequestError, match="needs an engine that is exact for trees"):
            Session(rig.bundle, "none", engine=portable, policy=policy)
