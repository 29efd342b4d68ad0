"""The commands in docs/serving.md and deploy/ do what they say."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from foredraft.commands.serve import serve
from tests.programs import needs
from tests.runtime.server.process import Server
from tests.waiting import LIMIT

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "serving.md").read_text()


def commands(prefix: str) -> list[str]:
    """Indented commands of the guide, with continued lines joined."""
    joined = GUIDE.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.startswith(f"    {prefix} ")]


@pytest.mark.parametrize("command", commands("curl"))
def test_curl_examples(server: Server, command: str) -> None:
    command = command.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}").replace("smollm2-135m", "tiny")
    done = subprocess.run([needs("curl"), *shlex.split(command)[1:]], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and '"error"' not in done.stdout
    assert '"tiny"' in done.stdout
    assert ("[DONE]" in done.stdout) == ('"stream": true' in command)


def test_python_examples(server: Server, tiny: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        code = example.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
        code = code.replace("smollm2-135m.foredraft", str(tiny)).replace('"smollm2-135m"', '"tiny"')
        exec(compile(ast.parse(code), "docs/serving.md", "exec"), {})


def test_options_of_the_recipes_exist() -> None:
    unit = (ROOT / "deploy" / "foredraft.service").read_text()
    started = shlex.split(re.search(r"^ExecStart=\S+ serve (.*)$", unit, re.M)[1])  # type: ignore[index]
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    entry = ast.literal_eval(re.search(r"^ENTRYPOINT (.*)$", image, re.M)[1])[2:]  # type: ignore[index]
    for arguments in (started, entry, *[shlex.split(line)[2:] for line in commands("foredraft serve")]):
        serve.make_context("serve", list(arguments))
    drain = int(re.search(r"--drain (\d+)", unit)[1])  # type: ignore[index]
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit)[1]) > drain  # type: ignore[index]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = needs("systemd-analyze")
    unit = tmp_path / "foredraft.service"
    text = (ROOT / "deploy" / "foredraft.service").read_text()
    unit.write_text(text.replace("/opt/foredraft/bin/foredraft", sys.executable))  # what it starts must be there
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and done.stderr == ""


def test_the_image_is_built_from_what_is_let_in() -> None:
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    let_in = {
        line[1:]
        for line in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {name for names in re.findall(r"^COPY (?!--from)(.*) \S+$", image, re.M) for name in names.split()}
    assert copied == let_in and all((ROOT / name).exists() for name in copied)


def test_every_option_and_field_in_the_guide_exists() -> None:
    known = {option for parameter in serve.params for option in parameter.opts}
    for option in re.findall(r"`(--[a-z-]+)", GUIDE):
        assert option in known


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", GUIDE):
        assert (ROOT / "docs" / target).exists(), target


def test_metrics_in_the_guide_exist(server: Server) -> None:
    server.complete(max_tokens=4)
    shown = server.request("GET", "/metrics").body.decode()
    for name in re.findall(r"`(foredraft_[a-z_]+)", GUIDE):
        assert f"# TYPE {name.removesuffix('_total')}" in shown or f"# TYPE {name} " in shown, name
