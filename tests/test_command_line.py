"""The installed command as a user runs it: exit codes, output, one-line errors, Ctrl-C."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from tests.waiting import LIMIT

FOREDRAFT = str(Path(sys.executable).parent / "foredraft")


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FOREDRAFT, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT, **options)


def one_error(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """The command failed with one line that says all the words, and nothing on standard output."""
    assert done.returncode == 1, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in lines[0]


@pytest.fixture
def copy(tiny_bundle: Callable[..., Path], tmp_path: Path) -> Path:
    """A bundle that a test may damage."""
    return Path(shutil.copytree(tiny_bundle("int8"), tmp_path / "copy.foredraft"))


@pytest.mark.slow
def test_export_then_generate(tiny_folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "out" / "tiny.foredraft"
    done = run("export", tiny_folder, "--out", bundle, "--exits", "1,2")
    assert done.returncode == 0, done.stderr
    assert "needs" in done.stderr and "wrote" in done.stderr
    plain = run("generate", bundle, "--prompt", "abc", "--max-tokens", 20, "--no-draft", "--json")
    drafted = run("generate", bundle, "--prompt", "abc", "--max-tokens", 20, "--drafter", "context", "--json")
    a, b = json.loads(plain.stdout), json.loads(drafted.stdout)
    assert set(a) == {"text", "tokens", "finish_reason", "stats"}
    assert a["tokens"] == b["tokens"] and a["text"] == b["text"] and len(a["tokens"]) == 20
    assert a["stats"]["drafter"] == "none" and b["stats"]["drafter"] == "context"


def test_text_is_streamed_and_statistics_go_to_stderr(tiny_bundle: Callable[..., Path]) -> None:
    done = run("generate", tiny_bundle("int8"), "--prompt", "abc", "--max-tokens", 8)
    assert done.returncode == 0
    assert "tokens per forward" in done.stderr
    quiet = run("generate", tiny_bundle("int8"), "--prompt", "abc", "--max-tokens", 8, "--quiet")
    assert quiet.stderr == "" and quiet.stdout == done.stdout


@pytest.mark.slow
def test_an_export_never_replaces_what_is_there_unasked(tiny_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.foredraft"
    assert run("export", tiny_folder, "--out", target).returncode == 0
    before = (target / "manifest.json").read_bytes()
    one_error(run("export", tiny_folder, "--out", target, "--quiet"), str(target), "already exists", "--force")
    assert run("export", tiny_folder, "--out", target, "--force").returncode == 0
    assert (target / "manifest.json").read_bytes() == before  # and an export is reproducible


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exits", "words"),
    [("4", "exit 4"), ("0", "exit 0"), ("2,1", "larger than the one before"), ("1,1", "larger")],
)
def test_exits_that_do_not_cut_the_model(tiny_folder: Path, tmp_path: Path, exits: str, words: str) -> None:
    one_error(run("export", tiny_folder, "--out", tmp_path / "x", "--exits", exits), words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_sources_that_cannot_be_exported_leave_nothing_behind(tiny_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    truncated = Path(shutil.copytree(tiny_folder, tmp_path / "truncated"))
    data = (truncated / "model.safetensors").read_bytes()
    (truncated / "model.safetensors").write_bytes(data[:-100])
    one_error(run("export", truncated, "--out", out / "a"), "model.safetensors")
    missing = Path(shutil.copytree(tiny_folder, tmp_path / "missing"))
    (missing / "model.safetensors").unlink()
    one_error(run("export", missing, "--out", out / "b"), "missing")
    (missing / "pytorch_model.bin").write_bytes(b"x")
    one_error(run("export", missing, "--out", out / "c"), "pickle")
    one_error(run("export", "no-such-model", "--out", out / "d"), "no-such-model", "smollm2-135m")
    unknown = Path(shutil.copytree(tiny_folder, tmp_path / "unknown"))
    config = json.loads((unknown / "config.json").read_text())
    (unknown / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    one_error(run("export", unknown, "--out", out / "e"), "mamba", "llama")
    assert not out.exists() or list(out.iterdir()) == []


def test_a_damaged_bundle_is_refused(copy: Path) -> None:
    generate = ("generate", copy, "--prompt", "a", "--max-tokens", 2)
    weights = next(copy.glob("graphs/weights/*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    one_error(run(*generate), weights.name, "sha256")
    weights.write_bytes(data[:-1])
    one_error(run(*generate), weights.name, "bytes")
    weights.unlink()
    one_error(run(*generate), weights.name, "missing")


@pytest.mark.parametrize("name", ["tokenizer.json", "graphs/kernels-segment-0.onnx", "chat_template.jinja"])
def test_any_changed_file_is_refused(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    one_error(run("generate", copy, "--prompt", "a", "--chat", "--max-tokens", 2), name, "sha256")


def test_what_is_no_bundle(tmp_path: Path) -> None:
    one_error(run("generate", tmp_path / "nothing", "--prompt", "a"), "no such folder", "foredraft export")
    one_error(run("inspect", tmp_path), "manifest.json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prompt", "a" * 400], "prompt of 401 tokens"),
        (["--prompt", "a", "--drafter", "magic"], "magic"),
    ],
)
def test_requests_that_cannot_be_served(tiny_bundle: Callable[..., Path], options: list[str], words: str) -> None:
    done = run("generate", tiny_bundle("int8"), *options)
    assert done.returncode in (1, 2) and words in done.stderr and "Traceback" not in done.stderr


def test_empty_prompt_and_max_tokens_0(tiny_bundle: Callable[..., Path]) -> None:
    done = run("generate", tiny_bundle("int8"), "--prompt", "", "--max-tokens", 3, "--json")
    assert len(json.loads(done.stdout)["tokens"]) == 3
    done = run("generate", tiny_bundle("int8"), "--prompt", "a", "--max-tokens", 0, "--json")
    assert json.loads(done.stdout)["tokens"] == []


def test_inspect_says_what_is_inside(tiny_bundle: Callable[..., Path]) -> None:
    value = json.loads(run("inspect", tiny_bundle("int8", (1, 2)), "--json").stdout)
    assert value["exits"] == [1, 2] and value["precision"] == "int8"
    assert "4 layers" in (text := run("inspect", tiny_bundle("int8", (1, 2))).stdout) or "layers" in text


@pytest.mark.slow
def test_bench_compares_and_checks(tiny_bundle: Callable[..., Path], tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"prompt": "abcabcabc", "category": "x"}\n{"turns": ["hello"], "category": "y"}\n')
    out = tmp_path / "out.json"
    done = run("bench", tiny_bundle("int8"), "--questions", questions, "--max-tokens", 16, "--json", out)
    assert done.returncode == 0, done.stderr
    value = json.loads(out.read_text())
    assert value["equal"] is True
    assert set(value["drafters"]["context"]["categories"]) == {"x", "y"}
    for figures in value["drafters"].values():
        assert figures["mat"] >= 1 and figures["tokens_per_second"] > 0
    one_error(run("bench", tiny_bundle("int8"), "--questions", tmp_path / "none.jsonl"), "none.jsonl")


def test_ctrl_c_ends_generate_cleanly(smollm2: Path) -> None:
    child = subprocess.Popen(
        [FOREDRAFT, "generate", str(smollm2), "--prompt", "Once upon a time", "--max-tokens", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout and child.stdout.read(1)  # the answer has begun
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=LIMIT)
    assert (child.returncode, error.strip()) == (130, "")


@pytest.mark.slow
def test_chat_on_a_terminal(smollm2: Path) -> None:
    child = pexpect.spawn(FOREDRAFT, ["chat", str(smollm2), "--max-tokens", "400"], encoding="utf-8", timeout=LIMIT)
    child.expect("> ")
    child.sendline("Write a very long story about the sea.")
    child.expect("sea")  # the echo of what was typed
    child.expect(r"\w+ \w+")
    child.sendintr()  # stops the answer, not the program
    child.expect("> ")
    child.sendline("Name the largest planet of the solar system.")
    child.expect("The largest planet of the")
    child.expect("> ")
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
