"""The command line: options, errors and exit codes, with a bundle and a session that only pretend."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

import foredraft
from foredraft import cli
from foredraft.sampling.params import SamplingParams
from tests.runtime.cli_fakes import FakeSession, install

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def run(*args: str) -> int:
    return cli.main(args)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    for name, line in cli._OWN.items():
        assert f"{name} " in text and line in text
    assert run("--version") == 0
    assert capsys.readouterr().out == f"foredraft {foredraft.__version__}\n"


@pytest.mark.parametrize("name", cli._OWN)
def test_every_command_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    assert f"foredraft {name} " in capsys.readouterr().out.partition("Examples:")[2]


@pytest.mark.parametrize("name", cli._OWN)
def test_table_says_what_the_commands_say(name: str) -> None:
    command = cli.cli.get_command(SimpleNamespace(obj=None), name)  # type: ignore[arg-type]
    assert command is not None and command.short_help == cli._OWN[name]


def test_help_loads_no_engine() -> None:
    script = "import sys; from foredraft import cli; cli.main(['generate', '--help']);"
    script += "print('onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "False"


def test_generate_streams_text_and_ends_with_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", "B", "--prompt", "Hi") == 0
    out, err = capsys.readouterr()
    assert out == "one two ✓\n"
    assert err == ("2 tokens, 20.0 tokens/s, 2.00 tokens per forward, drafter blend, 1 of 3 drafts accepted\n")
    assert FakeSession.opened == {"drafter": "blend", "lowering": "auto"}
    (asked,) = FakeSession.asked
    defaults = {"max_tokens": None, "sampling": SamplingParams(), "stop": ()}
    assert asked == {"prompt": "Hi", "chat_template_kwargs": {}, "split_special_tokens": False, **defaults}
    FakeSession.asked.clear()
    given = ["--chat", "--chat-template-kwargs", '{"enable_thinking": false}', "--split-special-tokens"]
    assert run("generate", "B", "--prompt", "Hi", *given) == 0
    (asked,) = FakeSession.asked
    assert asked["chat_template_kwargs"] == {"enable_thinking": False} and asked["split_special_tokens"] is True
    capsys.readouterr()
    assert run("generate", "B", "--prompt", "Hi", "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_generate_passes_every_option_on() -> None:
    sampling = "--temperature .5 --top-k 4 --top-p .9 --min-p .1 --repetition-penalty 1.2 --presence-penalty .3"
    more = "--frequency-penalty .4 --seed 9 --max-tokens 7 --stop a --stop b"
    engine = "--drafter prompt-lookup --policy fixed:5 --threads 2 --lowering portable --context 99"
    assert run("generate", "B", "--prompt", "", *sampling.split(), *more.split(), *engine.split()) == 0
    assert FakeSession.opened == {
        "drafter": "prompt-lookup",
        "policy": "fixed:5",
        "threads": 2,
        "lowering": "portable",
        "context": 99,
    }
    (asked,) = FakeSession.asked
    assert asked["sampling"] == SamplingParams(0.5, 4, 0.9, 0.1, 1.2, 0.3, 0.4, 9)
    assert (asked["prompt"], asked["max_tokens"], asked["stop"]) == ("", 7, ("a", "b"))


def test_generate_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", "B", "--prompt", "Hi", "--json", "--no-draft") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and err == ""
    values = json.loads(out)
    assert (values["text"], values["tokens"], values["finish_reason"]) == ("one two ✓", [5, 6], "length")
    assert values["stats"]["drafter"] == "none"


def test_generate_chat_makes_messages() -> None:
    assert run("generate", "B", "--chat", "--system", "Be brief.", "--prompt", "Hi") == 0
    assert FakeSession.asked[0]["prompt"] is None
    assert FakeSession.asked[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_prompt_comes_from_a_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes("é\r\n".encode())
    assert run("generate", "B", "--prompt-file", str(path)) == 0
    assert FakeSession.asked[0]["prompt"] == "é\r\n"  # as it is: a prompt's last newline matters
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from stdin")))
    assert run("generate", "B", "--prompt-file", "-") == 0
    assert FakeSession.asked[0]["prompt"] == "from stdin"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ("generate B", 2, "either --prompt or --prompt-file"),
        ("generate B --prompt a --prompt-file b", 2, "either --prompt or --prompt-file"),
        ("generate B --prompt a --system b", 2, "--system needs --chat"),
        ("generate B --prompt a --no-draft --drafter context", 2, "contradict"),
        ("generate B --prompt a --no-draft --policy fixed:4", 2, "drafting is off"),
        ("generate B --prompt a --drafter none --policy fixed:4", 2, "drafting is off"),
        ("chat B --no-draft --drafter context", 2, "contradict"),
        ("generate B --prompt a --temperature nan", 2, "--temperature: got nan, expected a number from 0"),
        ("generate B --prompt a --top-k -1", 2, "--top-k: got -1"),
        ("generate B --prompt a --repetition-penalty 0", 2, "--repetition-penalty: got 0.0"),
        ("generate B --prompt a --seed x", 2, "--seed"),
        ("generate B --prompt a --max-tokens -1", 2, "--max-tokens"),
        ("generate B --prompt a --lowering fast", 2, "fast"),
        ("generate B --prompt a --chat-template-kwargs {", 2, "--chat-template-kwargs"),
        ("generate B --prompt a --chat-template-kwargs []", 2, "got list, expected a JSON object"),
        ("generate", 2, "BUNDLE"),
        ("generat B", 2, "did you mean 'generate'"),
        ("zzz", 2, "expected one of generate, chat"),
        ("generate B --promt a", 2, "--prompt"),
        ("generate missing --prompt a", 1, "missing: not a bundle"),
        ("generate B --prompt fail", 1, "prompt of 9 tokens: too long"),
        ("generate B --prompt-file /nowhere/at/all", 1, "/nowhere/at/all: cannot be read"),
    ],
)
def test_an_error_is_one_line(args: str, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*args.split()) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize("args", ["--debug generate missing --prompt a", "generate missing --prompt a --debug"])
def test_debug_shows_where(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*args.split()) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith("error: missing: not a bundle\n")


def test_prompt_file_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prompt.bin"
    path.write_bytes(b"ab\xff")
    assert run("generate", "B", "--prompt-file", str(path)) == 1
    assert "not UTF-8 text (byte 2)" in capsys.readouterr().err


def test_interrupt_and_broken_pipe_are_quiet(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("generate", "B", "--prompt", "interrupt") == 130
    assert "Traceback" not in capfd.readouterr().err
    script = (
        "import sys; from foredraft import cli; from tests.runtime import cli_fakes as t;"
        "t.foredraft.Session, t.foredraft.Bundle = t.FakeSession, t.FakeBundle;"
        "sys.exit(cli.main(['generate', 'B', '--prompt', 'broken']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "export": EntryPoint("export", "foredraft_exporter.no_such_module:export", cli._GROUP),
        "extra": EntryPoint("extra", "no_such_package:serve [serve]", cli._GROUP),
        "odd": EntryPoint("odd", "json:dumps", cli._GROUP),
    }
    monkeypatch.setattr(cli, "_added", lambda: points)
    for name, hint in (("export", "foredraft[export]"), ("extra", "foredraft[serve]")):
        assert run(name, "x") == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and f"pip install '{hint}'" in err
    assert run("odd") == 1
    assert "json:dumps is not a command" in capsys.readouterr().err
    assert run("--help") == 0
    assert "foredraft[export]" in " ".join(capsys.readouterr().out.split())
