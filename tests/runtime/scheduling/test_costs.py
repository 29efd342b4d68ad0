"""The cost curve: interpolated, monotone, refreshed, kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft import Bundle, Session
from foredraft.loop.chain import EXIT_HEAD, HEAD
from foredraft.scheduling import measure as measuring
from foredraft.scheduling.forward_costs import REPEATS, SIZES, CostCurve, cached_curve


@given(st.dictionaries(st.integers(2, 80), st.floats(1e-4, 1.0), max_size=10), st.floats(1e-4, 1.0))
def test_never_falls_and_goes_on_beyond(knots: dict[int, float], first: float) -> None:
    curve = CostCurve({1: first, **knots})
    seconds = [curve.seconds(nodes) for nodes in range(1, 120)]
    assert seconds[0] == first
    assert all(0 < a <= b for a, b in pairwise(seconds))


def test_interpolates() -> None:
    curve = CostCurve({1: 1.0, 5: 3.0})
    assert [curve.seconds(nodes) for nodes in (1, 2, 3, 5, 7)] == pytest.approx([1.0, 1.5, 2.0, 3.0, 4.0])


def test_follows_the_machine_but_not_a_hiccup() -> None:
    curve = CostCurve({1: 1.0, 5: 2.0})
    curve.refresh(1, 50.0)
    assert curve.seconds(1) <= 1.1
    for _ in range(300):
        curve.refresh(5, 4.0)
        curve.refresh(1, 2.0)
    assert [curve.seconds(nodes) for nodes in (1, 5)] == pytest.approx([2.0, 4.0], rel=0.05)


@pytest.mark.parametrize("seconds", [{}, {2: 1.0}, {1: 0.0}, {1: 1.0, 2: -1.0}])
def test_nonsense_is_refused(seconds: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="expected positive seconds"):
        CostCurve(seconds)


def test_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path))
    asked: list[int] = []

    def measure(nodes: int) -> float:
        asked.append(nodes)
        return 0.001 * nodes

    first = cached_curve("machine", measure)
    assert set(asked) == set(SIZES)
    count = len(asked)
    assert cached_curve("machine", measure).as_dict() == first.as_dict() and len(asked) == count
    cached_curve("another", measure)
    assert len(asked) == 2 * count
    for damaged in (b"", b"{}", b"[1]", b'{"key": "machine", "seconds": {"2": 1}}', b"\xff"):
        for path in (tmp_path / "curves").iterdir():
            path.write_bytes(damaged)
        asked.clear()
        assert cached_curve("machine", measure).seconds(4) == pytest.approx(0.004)
        assert asked
    monkeypatch.setenv("FOREDRAFT_CACHE", "/dev/null/nowhere")
    assert cached_curve("machine", measure).seconds(4) == pytest.approx(0.004)


def test_a_process_measures_once_where_nothing_can_be_kept(
    tiny_bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", "/dev/null/nowhere")
    monkeypatch.setattr(measuring, "_known", {})
    asked: list[int] = []

    def forward(rig: object, nodes: int) -> dict[int, float]:
        asked.append(nodes)
        return {0: 0.001 * nodes, 1: 0.002 * nodes, HEAD: 0.0004 * nodes, EXIT_HEAD: 0.0003 * nodes}

    monkeypatch.setattr(measuring._Rig, "_forward", forward)
    bundle = Bundle.open(tiny_bundle(exits=(1,)))
    engine = Session(bundle, "none", policy="fixed:0", threads=1).engine
    first = measuring.measured_costs(bundle, engine)
    assert Counter(asked) == dict.fromkeys(SIZES, REPEATS)  # a forward measures all of its parts
    asked.clear()
    for _ in range(50):
        first.whole.refresh(1, 0.002)  # what one session learns is its own
    again = measuring.measured_costs(bundle, engine)
    assert not asked
    assert [c.seconds(1) for c in (again.whole, *again.until, *again.rest)] == pytest.approx([0.0034, 0.0013, 0.0024])
    more = Session(bundle, "none", policy="fixed:0", threads=2).engine
    measuring.measured_costs(bundle, more)
    assert set(asked) == set(SIZES)  # another number of threads is another machine
