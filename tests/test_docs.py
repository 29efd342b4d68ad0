"""README.md and docs/: every link leads somewhere, every command and every Python example does what it says.

Commands run as they stand, in a folder where the names that they use exist: ``smollm2-135m`` and other models are
stand-ins with the tiny model of the tests, ``benchmarks`` and ``tests`` the real folders. What cannot run here is
listed below with the reason; its options are still checked against the command's help.
"""

from __future__ import annotations

import ast
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from foredraft.cli import cli, main
from foredraft.databases.building import build_database
from foredraft.databases.identity import open_tokenizer
from foredraft.distribution.registry_reference import parse
from foredraft.distribution.store import bundle_folder
from foredraft_exporter.build import export
from foredraft_exporter.exits.adapters import write_adapters
from tests.doc_pages import PAGES, ROOT, Block, Page, read
from tests.exporter.exits.helpers import model_of, random_adapter
from tests.fixtures import EOS, tiny_checkpoint, tiny_gguf
from tests.waiting import LIMIT

NOT_RUN = {
    "foredraft serve": "ends only when it is told to; tests/runtime/server runs it",
    "foredraft push": "needs a registry; tests/runtime/distribution has one",
    "foredraft pull": "needs a registry; tests/runtime/distribution has one",
    "foredraft export llama3.2-1b --backend": "compiles for half a minute; tests/exporter/tensorrt builds",
    "foredraft build": "the same",
    "foredraft check": "loads torch; tests/exporter/parity/test_parity.py runs it",
    "foredraft exits fit": "trains for minutes; tests/exporter/exits runs it",
    "foredraft bench smollm2-135m.foredraft --questions tests/data/": "takes minutes, and prompts of real length",
    "foredraft db build model.fdb --generate smollm2-135m.foredraft --prompts benchmarks/": "takes minutes",
}
"""Commands that are only parsed, by how they begin."""
OTHER_PROGRAMS = {
    "curl": "needs the server: tests/runtime/server/test_docs.py",
    "docker": "needs docker",
    "polygraphy": "tests/exporter/tensorrt/test_reduce.py runs it",
    "serve": "Ray Serve's own command: tests/runtime/server/test_ray.py builds the app",
    "sudo": "changes the system",
    "python3": "makes a virtual environment",
}
NOT_SHELL = {
    "/README.md": {"exporter/foredraft_exporter/"},
    "bundles.md": {"smollm2-135m.foredraft/"},
    "exits.md": {"adapter(x)", "a"},
    "policies.md": {"max(bytes"},
    "serving.md": {'{"round":'},
}
"""Indented blocks that are no commands, by their first word."""
PYTHON_ELSEWHERE = {
    "serving.md": "needs the server: tests/runtime/server/test_docs.py",
    "databases.md": "needs a Ray cluster: tests/runtime/databases/test_ray.py",
}
REFERENCE = "ghcr.io/me/smollm2:1.0"
TEXT = "The quick brown fox jumps over the lazy dog. A fox is not a dog, and the dog is not a fox.\n"


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands and examples name. Copied for each page."""
    folder = tmp_path_factory.mktemp("docs") / "work"
    for name in ("smollm2-135m", "my-model", "llama3.2-1b"):
        model = tiny_checkpoint(folder / name, max_position_embeddings=1536, num_hidden_layers=16)
    tensors = load_file(model / "model.safetensors")
    tensors["lm_head.weight"][EOS] *= 3  # answers end soon
    for name in ("smollm2-135m", "my-model", "llama3.2-1b"):
        save_file(tensors, folder / name / "model.safetensors")
    tiny_gguf(folder / "model.Q4_1.gguf")
    bundle = folder / "smollm2-135m.foredraft"
    export(folder / "smollm2-135m", bundle)
    for name in ("notes/a.txt", "texts/b.txt", "notes.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(TEXT * 20)
    for name, key in (("articles", "text"), ("part-1", "text"), ("questions", "prompt")):
        (folder / f"{name}.jsonl").write_text(f'{{"{key}": "{TEXT.strip()}"}}\n')
    np.save(folder / "tokens.npy", np.arange(200, dtype=np.int64) % 250)
    identity = open_tokenizer(bundle)[1]
    tokens = np.frombuffer(TEXT.encode(), np.uint8).astype(np.uint32)
    for kind in ("corpus", "model"):
        build_database(folder / f"{kind}.fdb", kind, [tokens] * 4, identity)
    adapters = {exit_: random_adapter(64) for exit_ in (8, 15)}
    write_adapters(folder / "exits.safetensors", adapters, model_of(folder / "smollm2-135m"))
    (folder / "tuned-lens").mkdir()
    lens = {"8.weight": np.zeros((64, 64), np.float32), "8.bias": np.zeros(64, np.float32)}
    save_file(lens, folder / "tuned-lens" / "params.safetensors")
    return folder


@pytest.fixture
def work(stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the stand-ins as the working folder, with a cache that holds a pulled bundle."""
    folder = Path(shutil.copytree(stand_ins, tmp_path / "work"))
    for name in ("benchmarks", "tests"):
        (folder / name).symlink_to(ROOT / name)
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    shutil.copytree(folder / "smollm2-135m.foredraft", bundle_folder(parse(REFERENCE)))
    monkeypatch.chdir(folder)
    yield folder


def shell_blocks(page: Page) -> list[Block]:
    other = NOT_SHELL.get(page.name, set())
    return [b for b in page.blocks if b.kind == "indented" and b.text.split()[0] not in other]


def python_blocks(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.kind == "python"]


def with_blocks(kind: Callable[[Page], list[Block]]) -> list[Any]:
    return [pytest.param(page, id=page.name) for page in map(read, PAGES) if kind(page)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_links_lead_somewhere(path: Path) -> None:
    page = read(path)
    for link in page.links():
        if re.match(r"https?://|mailto:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{page.name}: {link}: no such file"
        if anchor:
            assert anchor in read(target).anchors(), f"{page.name}: {link}: no such heading"


def test_the_index_lists_every_page() -> None:
    pages = {path.name for path in PAGES if path.parent != ROOT} - {"README.md"}
    assert pages <= set(read(ROOT / "docs" / "README.md").links())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_commands_and_options_in_the_text_exist(path: Path) -> None:
    anywhere = set().union(*(options(command) for command in all_commands(cli))) | script_options()
    for code in read(path).code():
        words = code.split()
        if words[0] == "foredraft":
            command = find(words[1:])[0]
            given = {word for word in words if word.startswith("--")}
            assert given <= options(command), f"{path.name}: {code}"
        elif words[0] == "make" and len(words) > 1:
            check_make(words)
        elif words[0] == "pip":
            check_extras(code)
        elif words[0] not in ("buildah", "docker", "polygraphy"):
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", code):
                assert option in anywhere, f"{path.name}: {code}"


@pytest.mark.parametrize("page", with_blocks(shell_blocks))
def test_commands(page: Page, work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for block in shell_blocks(page):
        for words in block.commands():
            try:
                check(words, work)
            except (AssertionError, click.ClickException) as error:
                what = f"{page.name}:{block.line}: {' '.join(words)}"
                said = capfd.readouterr()
                pytest.fail(f"{what}\n{error}\n{said.out[-1000:]}\n{said.err[-1000:]}", pytrace=False)


@pytest.mark.parametrize("page", with_blocks(python_blocks))
def test_python_examples(page: Page, work: Path) -> None:
    for block in python_blocks(page):
        code = ast.parse(block.text)
        if page.name not in PYTHON_ELSEWHERE:
            exec(compile(code, f"{page.name}:{block.line}", "exec"), {})
        for node in ast.walk(code):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("foredraft"):
                for name in node.names:
                    assert hasattr(importlib.import_module(str(node.module)), name.name)


def test_what_is_not_run_is_still_in_use() -> None:
    lines = [" ".join(words) for path in PAGES for block in shell_blocks(read(path)) for words in block.commands()]
    for start in [*NOT_RUN, *OTHER_PROGRAMS]:
        assert any(f"{line} ".startswith(f"{start}" if start.endswith("/") else f"{start} ") for line in lines), start


def check(words: Sequence[str], folder: Path) -> None:
    """Run one command, or as much of it as can be run here."""
    program, line = Path(words[0]).name, " ".join(words)
    if program == "foredraft":
        if "[" in line:  # a synopsis
            assert set(re.findall(r"--[a-z-]+", line)) <= options(find(words[1:])[0])
        elif any(line.startswith(start) for start in NOT_RUN):
            check_options(words[1:])
        else:
            make_way(words, folder)
            assert main(expanded(words[1:])) == 0
    elif program == "make":
        check_make(words)
    elif program == "pip":
        check_extras(line)
    elif program == "python":
        check_python(words)
    elif program in ("openssl", "model_signing"):
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
    else:
        assert program in OTHER_PROGRAMS, f"{program}: add it to NOT_SHELL, to OTHER_PROGRAMS, or run it"


def check_options(arguments: Sequence[str]) -> None:
    """The command takes these arguments, and its help shows every option."""
    command, path, rest = find(arguments)
    command.make_context(path[-1], list(rest))
    stream = io.StringIO()
    held, sys.stdout = sys.stdout, stream
    try:
        assert main([*path, "--help"]) == 0
    finally:
        sys.stdout = held
    for word in rest:
        if word.startswith("--"):
            assert word in stream.getvalue(), f"{word} is not in the help"


def check_make(words: Sequence[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words[1:]:
        name, equals, _ = word.partition("=")
        assert re.search(rf"^{name}\s*\?=|\$\({name}\)" if equals else rf"^{name}:", makefile, re.M), word


def check_extras(line: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"\[([a-z,]+)\]", line):
        assert set(names.split(",")) <= set(extras), names


def check_python(words: Sequence[str]) -> None:
    """A script of ours has the options; code given with -c is Python."""
    if words[1] == "-c":
        ast.parse(words[2])
        return
    source = (ROOT / words[1]).read_text()
    for word in words[2:]:
        if word.startswith("--"):
            assert f'"{word}"' in source, word


def make_way(words: Sequence[str], folder: Path) -> None:
    """What the command is about to write may be there as a stand-in."""
    if words[1] == "export" and "--out" in words:
        shutil.rmtree(folder / words[words.index("--out") + 1], ignore_errors=True)


def expanded(words: Sequence[str]) -> list[str]:
    """As the shell expands ``*``."""
    return [path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]


def find(arguments: Sequence[str]) -> tuple[click.Command, list[str], list[str]]:
    """The command that the arguments begin with, the words that name it, and what follows."""
    command: click.Command = cli
    path: list[str] = []
    rest = list(arguments)
    while isinstance(command, click.Group) and rest:
        path.append(rest.pop(0))
        found = command.get_command(click.Context(command), path[-1])
        assert found is not None, f"no command {' '.join(path)}"
        command = found
    return command, path, rest


def all_commands(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from all_commands(command)


def options(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts} | {"--help", "--version", "--debug"}


def script_options() -> set[str]:
    """Options of the benchmarks."""
    return {
        name for path in (ROOT / "benchmarks").glob("*.py") for name in re.findall(r'"(--[a-z-]+)"', path.read_text())
    }
