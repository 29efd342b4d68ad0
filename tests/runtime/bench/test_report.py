"""The HTML page: whole, self-contained, escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from foredraft.bench import plots
from foredraft.bench.comparison import Comparison
from foredraft.bench.report import render_report, write_report
from tests.runtime.bench.made import EVIL, LEVELS, a_comparison

ABOUT = {"model": "tiny", "engine": "onnx", "command": f"foredraft bench {EVIL}"}
VOID = {"meta", "link", "input", "br", "hr", "img"}


class Page(HTMLParser):
    """Checks that elements close in order; collects text, titles and ids."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.attributes if key == name]


@pytest.mark.parametrize("drafters", [("none", "context", "blend"), ("none",), ("none", *"abcdefghijk")])
def test_page_is_balanced_and_has_every_drafter_and_category(drafters: tuple[str, ...]) -> None:
    page = Page(render_report(a_comparison(drafters), ABOUT))
    for word in (*drafters, "summary", "same tokens", "tiny"):
        assert word in page.text
    ids = page.values("id")
    assert len(ids) == len(set(ids)) and set(page.values("for")) <= set(ids)


def test_page_has_every_level_and_figure() -> None:
    page = Page(render_report(a_comparison(), ABOUT))
    for word in (*LEVELS, "25.0%", "2.00", "20.0", "0.50", "2.00 times as fast"):
        assert word in page.text
    assert page.tags.count("svg") >= 5


def test_nothing_is_fetched_and_nothing_is_executed() -> None:
    source = render_report(a_comparison(), ABOUT)
    page = Page(source)
    assert "script" not in page.tags and not re.search(r"\son\w+=", re.sub(r'"[^"]*"', "", source))
    outside = source.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in outside and "https:" not in outside and "url(" not in outside and "@import" not in outside
    assert all(href.startswith("data:") for href in page.values("href") + page.values("src"))
    assert "default-src 'none'" in source


def test_prompts_answers_drafts_categories_and_commands_are_escaped() -> None:
    source = render_report(a_comparison(), ABOUT)
    page = Page(source)
    assert "<script" not in source
    assert page.text.count(EVIL) >= 2 * 3 + 1  # the texts, the rejected drafts, the command
    assert any(EVIL in title for title in page.values("title"))


def test_rejected_drafts_and_who_wrote_what() -> None:
    page = Page(render_report(a_comparison(), ABOUT))
    assert page.tags.count("s") == 2 * 2 * 2  # two branches, two drafters, two questions
    titles = page.values("title")
    assert any("drafted by context, 80%" in title and "rejected:  no\u21b5" in title for title in titles)
    assert any("the model's own token" in title and "rejected:  late (recycled, 30%)" in title for title in titles)


def test_different_tokens_and_an_interrupt_are_said() -> None:
    unequal = Page(render_report(a_comparison(equal=False), ABOUT))
    assert "Different tokens: blend on id-summary" in unequal.text and "same tokens" not in unequal.text
    partial = a_comparison()
    partial.asked = 5
    assert "Interrupted" in Page(render_report(partial, ABOUT)).text
    assert "Interrupted" in Page(render_report(Comparison(("none", "blend"), 5), ABOUT)).text


def test_page_is_written_as_utf_8(tmp_path: Path) -> None:
    write_report(tmp_path / "out.html", a_comparison(), ABOUT | {"note": "\u00fc\u21b5"})
    assert "\u00fc\u21b5" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_bars_are_to_scale() -> None:
    svg = plots.bars({"x": {"a": 1.0, "b": 2.0}}, ["a", "b"], mark=1.0)
    one, two = (float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', svg))
    assert two == pytest.approx(2 * one, abs=0.2)
    assert "a: 1.000" in svg and "b: 2.000" in svg


def test_plots_of_nothing() -> None:
    for svg in (plots.bars({}, []), plots.curves({"a": []}, "x", "y"), plots.calibration({"a": []})):
        Page(str(svg))
