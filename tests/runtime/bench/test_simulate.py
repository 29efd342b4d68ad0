"""The arithmetic of simulated times, on hand-made rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from foredraft.bench import host
from foredraft.bench.comparison import BenchRun, Comparison
from foredraft.bench.hardware import HARDWARE, Hardware, Host, hardware
from foredraft.bench.rounds import RoundWork, agreement
from foredraft.bench.simulate import calibrated, engine_seconds, simulate
from foredraft.errors import RequestError
from foredraft.loop.chain import EXIT_HEAD, HEAD
from foredraft.loop.rounds import Choice, Opinion, Round
from foredraft.loop.tree import TIP, Tree
from foredraft.sampling.logits import Row
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.picking import make_picker
from foredraft.scheduling.forward_costs import CostCurve
from foredraft.scheduling.parts import PartCosts, costs_of
from tests.runtime.bench.made import a_run

# 10 layers of 1 ms each, free up to 4 nodes; a head of 0.5 ms.
MACHINE = Hardware("toy", "a toy", 10, 1e6, 0.5e6, 1.0, 1e9, 8e9, 0.0, Host(0.0, 0.0, 0.0))


def test_nodes_are_free_up_to_the_knee() -> None:
    assert MACHINE.knee == 4
    assert MACHINE.seconds(1e6, 1) == MACHINE.seconds(1e6, 4) == pytest.approx(0.001)
    assert MACHINE.seconds(1e6, 8) == pytest.approx(0.002)


def test_a_segment_stands_for_its_share_of_the_layers() -> None:
    times = MACHINE.times([2, 2, 16])
    assert times(0, 1) == times(1, 1) == pytest.approx(0.001)
    assert times(2, 8) == pytest.approx(0.016)
    assert times(HEAD, 1) == times(EXIT_HEAD, 1) == pytest.approx(0.0005)
    assert engine_seconds([(0, 1), (EXIT_HEAD, 1), (1, 2), (2, 2), (HEAD, 2)], times) == pytest.approx(0.011)


def test_plans_cost_what_their_forwards_do() -> None:
    costs = costs_of(MACHINE.times([2, 2, 16]), 3)
    assert costs.whole.seconds(1) == pytest.approx(0.0105)
    assert [curve.seconds(4) for curve in costs.until] == pytest.approx([0.0015, 0.0025])
    assert [curve.seconds(8) for curve in costs.rest] == pytest.approx([0.019, 0.017])


def test_measured_parts_are_looked_up() -> None:
    curve = [CostCurve({1: seconds, 5: 2 * seconds}) for seconds in (0.1, 0.2, 0.3, 0.4)]
    parts = PartCosts((curve[0], curve[1]), exit_head=curve[2], head=curve[3])
    assert [parts.times(what, 1) for what in (0, 1, EXIT_HEAD, HEAD)] == [0.1, 0.2, 0.3, 0.4]
    assert parts.times(1, 3) == pytest.approx(0.3)


class Ticking:
    """A clock that goes on by one with every pick of its picker, and by a tenth with every runner-up."""

    def __init__(self) -> None:
        self.now = 0.0

    def picker(self, params: SamplingParams) -> Ticking:
        self._picker = make_picker(params)
        return self

    def __call__(self, logits: Row, position: int, path: Sequence[int]) -> int:
        return self.ranked(logits, position, path, 1)[0][0]

    def ranked(self, logits: Row, position: int, path: Sequence[int], count: int) -> list[tuple[int, float]]:
        self.now += 1 + 0.1 * (count - 1)
        return self._picker.ranked(logits, position, path, count)


def test_the_loops_own_times_are_found_on_an_engine_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticking()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(host, "make_picker", clock.picker)
    measured = host.measured_host(64, SamplingParams(temperature=0.8))
    assert measured == Host(0.0, 1.0, pytest.approx(1.0), pytest.approx(0.1))


def a_comparison() -> Comparison:
    """Plain decoding in 40 rounds of 10.5 ms and a judged policy in 20; 0.1 ms of drafting in each of those."""
    plain = RoundWork(((0, 1), (1, 1), (2, 1), (HEAD, 1)), 1, 0, 0.0)
    judged = RoundWork(((0, 2), (1, 2), (EXIT_HEAD, 2), (2, 2), (HEAD, 2)), 2, 1, 0.0001)
    runs = {}
    for name, seconds, rounds in (("none", 0.5, (plain,) * 40), ("echo", 0.4, (judged,) * 20)):
        run = a_run("x", name, seconds, [0] * 41)
        runs[name] = BenchRun(run.question, run.result, run.seconds, rounds=rounds)
    return Comparison(tuple(runs), 1, [runs], "policy")


def test_rates_follow_from_rounds_and_times() -> None:
    simulation = simulate(a_comparison(), "toy", "constants", MACHINE.times([2, 2, 16]), Host(0.0002, 0.0003, 0.0004))
    assert simulation.rates == {"none": pytest.approx(1 / 0.011), "echo": pytest.approx(2 / 0.0123)}
    assert simulation.ratio("echo") == pytest.approx(2 * 0.011 / 0.0123)
    assert simulation.to_json()["rates"]["none"] == {"tokens_per_second": pytest.approx(1 / 0.011), "ratio": 1.0}


def test_in_the_loop_everything_takes_longer_by_as_much_as_plain_decoding_does() -> None:
    alone = MACHINE.times([2, 2, 16])
    times, host = calibrated(a_comparison(), alone, Host(0.0005, 0.0005, 0.001, 0.0001))
    slower = times(0, 3) / alone(0, 3)
    assert slower == pytest.approx(0.5 / 40 / 0.0115)
    assert host == Host(*(pytest.approx(slower * seconds) for seconds in (0.0005, 0.0005, 0.001, 0.0001)))
    assert simulate(a_comparison(), "here", "", times, host).rates["none"] == pytest.approx(80.0)


def test_curves_that_are_too_slow_are_believed() -> None:
    times, _ = calibrated(a_comparison(), lambda what, nodes: 1.0, Host(0.0, 0.0, 0.0))
    assert times(0, 1) == 1.0


def test_hardware_by_name_with_its_constants_in_words() -> None:
    assert set(HARDWARE) == {"gpu-7b", "gpu-7b-int4", "cpu-7b-int4"}
    for name in HARDWARE:
        told = hardware(name).describe()
        assert name in told and "GB/s" in told and "launch" in told and "per round" in told
    with pytest.raises(RequestError, match=r"got 'abacus', expected gpu-7b, .*, here"):
        hardware("abacus")


def test_agreement_counts_where_the_models_own_token_is_known() -> None:
    tree = Tree([5, 6, 7], [TIP, 0, 1], [1.0] * 3, [0] * 3)
    said = [(TIP, 0, 5), (0, 0, 6), (1, 0, 7), (TIP, 1, 8)]
    opinions = [Opinion(node, exit_, (Choice(token, -0.1, 0.0),)) for node, exit_, token in said]
    round_ = Round(tokens=[5, 9], tree=tree, accepted=[0], opinions=opinions)
    assert agreement([round_, round_]) == {0: (4, 2), 1: (2, 0)}
