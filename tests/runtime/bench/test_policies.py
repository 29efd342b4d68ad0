"""``foredraft bench --policies``, ``--sweep-exits`` and ``--simulate``: parsing, what they print, what they write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from foredraft.bench.comparison import BenchRun, Comparison
from foredraft.bench.contest import one_drafter, split_policies
from foredraft.bench.sweep import sweep, verdicts
from foredraft.commands.bench import bench
from foredraft.errors import RequestError
from foredraft.scheduling.policy import named
from tests.runtime.bench.made import a_run


@pytest.fixture
def asked(tiny_bundle: Callable[..., Path], tmp_path: Path) -> list[str]:
    """A bundle with exits 1 and 2, and two questions."""
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "abcabc", "category": "x"}\n{"prompt": "hello", "category": "y"}\n')
    bundle = str(tiny_bundle("int8", (1, 2)))
    return [bundle, "--questions", str(path), "--max-tokens", "10", "--threads", "1", "--temperature", "0.8"]


def run(arguments: list[str], *more: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(bench, [*arguments, *more])


def figures(arguments: list[str], *more: str) -> tuple[dict[str, Any], str]:
    """The JSON and what was printed."""
    done = run(arguments, *more, "--json", "-")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["self-spec,hispec"], ["self-spec", "hispec"]),
        (["hispec:draft_tokens=2,tentative=4,echo"], ["hispec:draft_tokens=2,tentative=4", "echo"]),
        (["fixed:4, auto", "echo:tentative=8,keep=0.5"], ["fixed:4", "auto", "echo:tentative=8,keep=0.5"]),
        ([], []),
    ],
)
def test_settings_belong_to_the_policy_before_them(given: list[str], expected: list[str]) -> None:
    assert split_policies(given) == expected


@pytest.mark.parametrize("given", [["tentative=4"], ["echo,tentative=4"], ["echo:keep=1", "tentative=4"]])
def test_a_setting_without_a_policy_is_refused(given: list[str]) -> None:
    with pytest.raises(RequestError, match=r"'tentative=4' is a setting; write it after its policy"):
        split_policies(given)


def test_policies_are_compared_with_one_drafter() -> None:
    assert one_drafter([], ["tree", "echo"], "blend") == "blend"
    assert one_drafter(["none", "suffix"], ["tree", "echo"], "blend") == "suffix"
    assert one_drafter(["none"], ["tree", "echo"], "blend") == "none"
    with pytest.raises(RequestError, match="2 policies and 2 drafters; compare policies with one drafter"):
        one_drafter(["blend", "suffix"], ["tree", "echo"], "blend")


def test_policies_have_layer_passes_and_runs(asked: list[str]) -> None:
    value, printed = figures(
        asked, "--policies", "self-spec,hispec:draft_tokens=1,tentative=2,tree", "--policies", "auto"
    )
    assert value["equal"] and "drafters" not in value
    names = ["none", "self-spec", "hispec:draft_tokens=1,tentative=2", "tree", "auto"]
    assert list(value["policies"]) == names
    plain = value["policies"]["none"]
    assert plain["layer_passes"] == plain["layer_runs"] == 4
    for name in names:
        of = value["policies"][name]
        assert of["layer_runs"] >= 4 and set(of["categories"]) == {"x", "y"}
        assert "layer_passes" in of["categories"]["x"] and name.partition(":")[0] in printed
    exits = value["policies"]["hispec:draft_tokens=1,tentative=2"]["exits"]
    assert set(exits) == {"0", "1"} and all(0 <= e["agreed"] <= e["asked"] for e in exits.values())
    assert value["policies"]["self-spec"]["levels"].keys() == {"exit-2"}
    for word in (
        "layer passes per token",
        "layer runs per token",
        "By category: ratio (layer passes per token)",
        "Every policy",
    ):
        assert word in printed


def test_one_policy_may_have_many_drafters(asked: list[str]) -> None:
    value, _ = figures(asked, "--policies", "fixed:2", "--drafters", "context,suffix")
    assert list(value["drafters"]) == ["none", "context", "suffix"] and "policy fixed:2" in value["about"]["settings"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policies", "tree,echo", "--drafters", "context,suffix"), "2 policies and 2 drafters"),
        (("--policies", "tree", "--policy", "auto"), "give one of --policy"),
        (("--policies", "tree", "--sweep-exits"), "give one of --policy"),
        (("--policies", "tree,ekko"), "got 'ekko'"),
        (("--policies", "tree,echo:judge_exit=2"), "judge_exit is 2, this bundle has exits 0 to 1"),
        (("--policies", "tree", "--simulate", "abacus"), "got 'abacus', expected gpu-7b"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    asked: list[str], options: tuple[str, ...], message: str
) -> None:
    done = run(asked, *options)
    assert message in (done.output + str(done.exception)) and "questions" not in done.stdout


def test_a_sweep_has_a_verdict_for_every_exit(asked: list[str], tmp_path: Path) -> None:
    value, printed = figures(asked, "--sweep-exits", "--drafters", "context", "--report", str(tmp_path / "out.html"))
    assert value["equal"] and set(sweep(2)) <= set(value["policies"])
    assert [verdict["layer"] for verdict in value["exits"]] == [1, 2]
    assert all(verdict["asked"] > 0 and verdict["advice"] for verdict in value["exits"])
    assert "exit 1 (of 4 layers) agrees" in printed and "exit 2 (of 4 layers) agrees" in printed
    assert "layer passes per token" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_sweep_needs_exits(tiny_bundle: Callable[..., Path], asked: list[str]) -> None:
    done = run([str(tiny_bundle("int8")), *asked[1:]], "--sweep-exits")
    assert isinstance(done.exception, RequestError) and "no exits; export it with --exits" in str(done.exception)


@pytest.mark.parametrize("exits", [1, 2, 3])
def test_a_sweep_uses_every_exit_and_every_pair(exits: int) -> None:
    pairs = {(p.draft_exit, p.judge_exit) for p in (named(name, exits) for name in sweep(exits))}
    alone = {(e, -1) for e in range(exits)} | {(-1, e) for e in range(exits)}
    assert pairs == alone | {(d, j) for j in range(exits) for d in range(j)} | {(-1, -1)}


def a_sweep(speeds: dict[str, float], agreement: dict[int, tuple[int, int]]) -> Comparison:
    """A sweep over two exits in which policies ran at these speeds, plain decoding at 10 tokens a second."""
    runs: dict[str, BenchRun] = {}
    for name in ("none", *sweep(2)):
        run_ = a_run("x", name, 40 / speeds.get(name, 10.0), [0] * 41)
        runs[name] = BenchRun(run_.question, run_.result, run_.seconds, agreement=agreement)
    return Comparison(tuple(runs), 1, [runs], "policy")


def test_a_useless_exit_is_visible_as_such() -> None:
    comparison = a_sweep({"echo:judge_exit=1,tentative=5": 14.0, "tree": 12.0}, {0: (100, 27), 1: (100, 74)})
    useless, useful = verdicts(comparison, [8, 15, 30])
    assert str(useless) == (
        "exit 8 (of 30 layers) agrees 27%: leave it off: with it at most 0.83 times as fast as without exits"
    )
    assert useful.advice == "use it: 1.17 times as fast as without exits, with echo:judge_exit=1,tentative=5"
    assert useful.asked == 100 * len(comparison.drafters)


def test_an_exit_that_pays_less_than_another_is_visible_as_such() -> None:
    speeds = {"echo:judge_exit=1,tentative=5": 14.0, "self-spec:draft_exit=0,draft_tokens=2": 12.0}
    lesser, _ = verdicts(a_sweep(speeds, {}), [2, 4, 16])
    assert lesser.advice == "pays (1.20 times as fast as without exits), but another exit pays more"


def test_simulated_policies_and_auto_planned_for_the_simulated_machine(asked: list[str]) -> None:
    value, printed = figures(asked, "--policies", "tree,auto", "--drafters", "context", "--simulate", "gpu-7b")
    rates = value["simulated"]["rates"]
    assert value["equal"] and list(rates) == ["none", "tree", "auto", "auto@gpu-7b"] and rates["none"]["ratio"] == 1
    assert "1600 GB/s" in value["simulated"]["about"] and "Simulated: gpu-7b" in printed


def test_this_machine_can_be_simulated(asked: list[str]) -> None:
    value, printed = figures(asked, "--policies", "self-spec", "--simulate", "here")
    assert value["simulated"]["rates"]["self-spec"]["ratio"] > 0 and "curves as measured" in printed
