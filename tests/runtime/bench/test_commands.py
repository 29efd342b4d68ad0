"""``foredraft bench`` and ``foredraft trace`` with a tiny model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import foredraft.bench.compare as compare_module
from foredraft import Bundle, Session, drafters
from foredraft.commands import trace as trace_module
from foredraft.commands.bench import bench
from foredraft.commands.generate import generate
from foredraft.commands.trace import brackets, colours, in_colour, trace, tree_lines
from foredraft.errors import RequestError
from tests.runtime.bench.made import a_trace, knowing

ASKED = ("--prompt", "abcabcabc", "--max-tokens", "60", "--threads", "1", "--policy", "fixed:6")


@pytest.fixture
def bundle(tiny_bundle: Callable[..., Path]) -> str:
    return str(tiny_bundle("int8"))


@pytest.fixture
def right(bundle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the drafter know the answer to what is asked."""
    oracle = knowing(Session(Bundle.open(Path(bundle)), "none", threads=1), "abcabcabc", 60)
    monkeypatch.setattr(drafters, "create", lambda name, **settings: oracle)


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "abcabc [/b]", "category": "x"}\n{"prompt": "<script>", "category": "y"}\n' * 2)
    return str(path)


def run(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_trace_without_colours_is_generates_text_with_brackets(bundle: str, right: None) -> None:
    plain = run(generate, bundle, *ASKED)
    drawn = run(trace, bundle, *ASKED)
    assert drawn.exit_code == 0 and "[context: " in drawn.stdout and "\x1b" not in drawn.stdout
    assert re.sub(r"\[context: (.*?)\]", r"\1", drawn.stdout, flags=re.DOTALL) == plain.stdout
    assert "tokens per forward" in drawn.stderr and "tokens per forward" not in drawn.stdout


def test_trace_json_has_a_line_for_each_round(bundle: str, right: None) -> None:
    answer = json.loads(run(generate, bundle, *ASKED, "--json").stdout)
    *rounds, last = (json.loads(line) for line in run(trace, bundle, *ASKED, "--json").stdout.splitlines())
    assert "".join(line["text"] for line in rounds) == answer["text"]
    assert [token["id"] for line in rounds for token in line["tokens"]] == answer["tokens"]
    assert last["finish_reason"] == answer["finish_reason"] and last["stats"]["tokens"] == len(answer["tokens"])
    assert [line["round"] for line in rounds] == list(range(last["stats"]["rounds"] + 1))
    assert sum(line["accepted"] for line in rounds) == last["stats"]["accepted"]


def test_trace_trees_come_before_the_text(bundle: str, right: None) -> None:
    done = run(trace, bundle, *ASKED, "--tree")
    assert done.exit_code == 0 and done.stdout.endswith(run(trace, bundle, *ASKED).stdout)
    assert done.stdout.startswith("round 0: 0 of 0 drafts accepted")
    assert run(trace, bundle, *ASKED, "--tree", "--json").exit_code == 2


def test_tree_marks_what_was_accepted() -> None:
    assert tree_lines(a_trace()[1], brackets)[1:] == [
        '  + " yes" context 0.80',
        '    - " late" recycled 0.30',
        '  - " no\\n" model 0.10',
        '    - "<script>alert(\'x\')</script>\\"&" corpus 0.05',
        '    = " end"',
    ]


def test_trace_in_colours_is_generates_text_and_has_a_legend(
    bundle: str, right: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "in_colour", lambda: True)
    drawn = CliRunner().invoke(trace, [bundle, *ASKED], color=True)
    assert "\x1b[32m" in drawn.stdout and "[context: " not in drawn.stdout
    assert click.unstyle(drawn.stdout) == run(generate, bundle, *ASKED).stdout
    assert "the model itself, \x1b[32m" in drawn.stderr


def test_levels_have_colours_of_their_own() -> None:
    paint = colours(("context", "model"))
    assert paint("a", "context") != paint("a", "model") and paint("a", None) == "a"


@pytest.mark.parametrize(("variable", "expected"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_only_on_a_terminal_whose_user_wants_them(
    variable: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert in_colour() is expected
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert in_colour() is False


def test_bench_writes_figures_and_report(bundle: str, questions: str, tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    files = ("--json", str(out), "--report", str(page))
    options = ("--drafters", "context", "--max-tokens", "24", "--threads", "1", "--policy", "fixed:4")
    done = run(bench, bundle, "--questions", questions, *options, "--show-text", *files)
    assert done.exit_code == 0, done.output
    assert "Drafts by level" in done.stdout and "abcabc [/b]" in done.stdout  # no markup of ours
    value = json.loads(out.read_text())
    assert value["equal"] and value["questions"] == {"asked": 4, "finished": 4}
    assert "command" in value["about"] and "machine" in value["about"]
    drafted = sum(bucket["samples"] for bucket in value["drafters"]["context"]["calibration"])
    assert drafted == value["drafters"]["context"]["levels"]["context"]["drafted"] > 0
    source = page.read_text(encoding="utf-8")
    assert source.count('<article class="text">') == 2 and "<script" not in source and "&lt;script&gt;" in source


def test_plain_decoding_is_plain_whatever_the_policy(
    tiny_bundle: Callable[..., Path], questions: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    options = ("--max-tokens", "12", "--threads", "1", "--policy", "self-spec", "--json", str(out))
    done = run(bench, str(tiny_bundle("int8", (1, 2))), "--questions", questions, "--drafters", "context", *options)
    assert done.exit_code == 0, done.output
    drafters = json.loads(out.read_text())["drafters"]
    assert drafters["none"]["levels"] == {} and "exit-2" in drafters["context"]["levels"]


@pytest.mark.parametrize("finished", [0, 2])
def test_ctrl_c_shows_what_is_finished(
    bundle: str, questions: str, tmp_path: Path, finished: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compare_module.compare

    def interrupted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for comparison in whole(*arguments, **options):
            yield comparison
            if len(comparison.finished) == finished:
                raise KeyboardInterrupt

    monkeypatch.setattr(compare_module, "compare", interrupted)
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    options = ("--drafters", "context", "--max-tokens", "8", "--threads", "1")
    done = run(bench, bundle, "--questions", questions, *options, "--json", str(out), "--report", str(page))
    assert done.exit_code == 130
    assert f"interrupted after {finished} of 4 questions" in done.stderr
    assert f"{finished} of 4 questions" in done.stdout if finished else "No question" in done.stdout
    assert json.loads(out.read_text())["questions"] == {"asked": 4, "finished": finished}
    assert "Interrupted" in page.read_text(encoding="utf-8")


def test_levels_are_blends_and_files_are_checked_first(bundle: str, questions: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ("--questions", questions, "--max-tokens", "12", "--threads", "1", "--policy", "fixed:4")
    done = run(bench, bundle, *options, "--drafters", "suffix,blend", "--levels", "context", "--json", str(out))
    assert done.exit_code == 0, done.output
    assert set(json.loads(out.read_text())["drafters"]["blend"]["levels"]) <= {"context"}
    missing = run(bench, bundle, *options, "--report", str(tmp_path / "no" / "out.html"))
    assert isinstance(missing.exception, RequestError) and "its folder does not exist" in str(missing.exception)
