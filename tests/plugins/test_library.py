import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from foredraft_plugins import library

from .session import same_bits
from .test_linear import linear
from .weights import activations

ROOT = Path(__file__).parents[2]


def run(isa: str, code: str) -> str:
    done = subprocess.run(
        [sys.executable, *code.split(maxsplit=1)],
        cwd=ROOT,
        env=os.environ | {"FOREDRAFT_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_all_instruction_sets_give_the_same_bits():
    outputs = {isa: run(isa, "-m tests.plugins.fingerprint").splitlines() for isa in ("", "avx2", "scalar")}
    assert outputs[""][0] == library.instruction_set() or os.environ.get("FOREDRAFT_ISA")
    assert outputs["scalar"][0] == "scalar"
    assert outputs["scalar"][1:] == outputs[""][1:]
    assert outputs["avx2"][1:] == outputs[""][1:]


def test_an_unknown_instruction_set_is_an_error():
    code = "-c import foredraft_plugins.library as l; print(l.unavailable_reason())"
    assert run("sse9", code).strip() == "FOREDRAFT_ISA is 'sse9', expected avx512-vnni, avx2 or scalar"


def test_the_library_is_there():
    assert library.library_path().is_file()
    assert library.unavailable_reason() is None
    assert library.instruction_set() in {"avx512-vnni", "avx2", "scalar"}


def test_without_a_library_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(library, "library_path", lambda: None)
    assert "was not built" in library.unavailable_reason()
    with pytest.raises(RuntimeError, match="was not built"):
        library.instruction_set()


@pytest.mark.parametrize("session_threads", [1, 2])
def test_a_session_may_run_on_several_threads_at_once(session_threads):
    operator, _ = linear(300, 576, 4, True, threads=session_threads)
    inputs = [activations(np.random.default_rng(seed), 5 + seed, 576) for seed in range(4)]
    expected = [operator(x=x) for x in inputs]
    failures: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            if not same_bits(operator(x=inputs[i]), expected[i]):
                failures.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
