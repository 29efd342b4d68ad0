"""Figures that follow from runs, and the tables that show them."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from foredraft.bench.comparison import Comparison
from foredraft.bench.table import render
from tests.runtime.bench.made import EVIL, a_comparison


def shown(comparison: Comparison) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(render(comparison, "title"))
    return capture.get()


def test_figures() -> None:
    value = json.loads(json.dumps(a_comparison().to_json()))
    assert value["equal"] is True and value["unequal"] == []
    assert value["questions"] == {"asked": 2, "finished": 2}
    blend = value["drafters"]["blend"]
    assert blend["ratio"] == 2.0 and blend["mat"] == 2.0 and blend["tokens_per_second"] == 20.0
    assert blend["drafting_ms"] == pytest.approx(0.5)
    assert blend["levels"]["corpus"] == {"drafted": 40, "accepted": 10}
    assert blend["acceptance_by_position"] == [1.0]
    assert blend["calibration"] == [
        {"predicted": 0.3, "observed": 0.0, "samples": 2},
        {"predicted": 0.8, "observed": 1.0, "samples": 2},
    ]
    assert set(blend["categories"]) == {"summary", EVIL}
    assert blend["categories"]["summary"]["ratio"] == 2.0 and blend["categories"]["summary"]["mat"] == 2.0
    assert value["drafters"]["none"]["mat"] == 1.0 and value["drafters"]["none"]["calibration"] == []


def test_other_tokens_are_named() -> None:
    comparison = a_comparison(equal=False)
    assert comparison.unequal == [("blend", "id-summary"), ("blend", f"id-{EVIL}")]
    assert "DIFFERENT TEXT: blend on id-summary" in shown(comparison)


def test_table_shows_levels_and_categories() -> None:
    text = shown(a_comparison())
    for word in ("title", "blend", "recycled", "25.0%", "summary", "2.00 (2.00)", EVIL, "same tokens", "all 2"):
        assert word in text


def test_before_the_first_question_is_finished() -> None:
    comparison = Comparison(("none", "blend"), asked=3)
    assert "No question" in shown(comparison)
    value = comparison.to_json()
    assert value["questions"] == {"asked": 3, "finished": 0} and value["drafters"]["blend"]["ratio"] == 0.0
