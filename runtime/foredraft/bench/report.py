"""A comparison as one self-contained HTML page: tables, plots, and texts coloured by who drafted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from foredraft.bench import plots
from foredraft.bench.comparison import BASELINE, BenchRun, Comparison
from foredraft.disk_space import naming_full_disk
from foredraft.tracing import RoundTrace, TracedNode


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of a shown text; ``rejected`` are the texts of drafts that the model did not want at its place."""

    text: str
    level: str | None
    rejected: list[str]
    title: str


def write_report(path: Path, comparison: Comparison, about: Mapping[str, str]) -> None:
    """Write the page; ``about`` says under what circumstances it was measured, {what: value}."""
    with naming_full_disk(path):
        path.write_text(render_report(comparison, about), encoding="utf-8")


def render_report(comparison: Comparison, about: Mapping[str, str]) -> str:
    """The page. All text in it is escaped, and nothing is fetched from elsewhere."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(
        files("foredraft.bench").joinpath("report.html.jinja").read_text(encoding="utf-8")
    )
    drafters = comparison.drafters
    levels = list(dict.fromkeys(level for name in drafters for level in comparison.levels(name)))
    return template.render(
        about=about,
        asked=comparison.asked,
        finished=len(comparison.finished),
        unequal=comparison.unequal,
        kind=comparison.kind,
        drafters=drafters,
        drafting=[name for name in drafters if name != BASELINE],
        colour={name: plots.colour(index) for index, name in enumerate(drafters)},
        level_colour=_level_colours(drafters, levels),
        best=max(drafters, key=lambda name: comparison.summary(name)["ratio"]),
        summary={name: comparison.summary(name) for name in drafters},
        levels={name: counts for name in drafters if (counts := comparison.levels(name))},
        calibration={name: buckets for name in drafters if (buckets := comparison.calibration(name).buckets())},
        plots=_plots(comparison) if comparison.finished else {},
        texts=_texts(comparison),
    )


def _level_colours(drafters: Sequence[str], levels: Sequence[str]) -> dict[str, int]:
    """A level that is called like a drafter has its colour; the others share those that are left."""
    colours = {level: plots.colour(drafters.index(level)) for level in levels if level in drafters}
    free = [number for number in range(1, plots.COLOURS) if number not in colours.values()] or [0]
    others = [level for level in levels if level not in drafters]
    return colours | {level: free[index % len(free)] for index, level in enumerate(others)}


def _plots(comparison: Comparison) -> dict[str, Markup]:
    """Series keep their place among the drafters, and so their colour. Plain decoding is the line at 1."""
    drafters = comparison.drafters
    drafting = [name for name in drafters if name != BASELINE]
    by_category = {
        category: {name: comparison.summary(name, category) for name in drafters}
        for category in comparison.categories()
    }
    every = {name: comparison.summary(name) for name in drafters}

    def bars(figure: str) -> Markup:
        groups = {label: {n: figures[n][figure] for n in drafting} for label, figures in by_category.items()}
        return plots.bars(groups, drafters, mark=1.0)

    return {
        "ratio": bars("ratio"),
        "mat": bars("mat"),
        "drafting": plots.bars({name: {name: every[name]["drafting_ms"]} for name in drafting}, drafters),
        "positions": plots.curves(
            {name: comparison.acceptance_by_position(name) for name in drafters},
            "at least so many drafts accepted",
            "share of rounds",
        ),
        "calibration": plots.calibration({name: comparison.calibration(name).buckets() for name in drafters}),
    }


def _texts(comparison: Comparison) -> list[dict[str, Any]]:
    """Questions whose rounds were kept: prompt, and each drafter's rounds as lists of tokens."""
    texts = []
    for answers in comparison.finished:
        shown = {name: _shown(run) for name, run in answers.items() if run.trace and name != BASELINE}
        if shown:
            question = next(iter(answers.values())).question
            first = max(shown, key=lambda name: shown[name]["mat"])
            texts.append({"question": question, "answers": shown, "first": first})
    return texts


def _shown(run: BenchRun) -> dict[str, Any]:
    stats = run.result.stats
    return {
        "rounds": [[_token(round_, i) for i in range(len(round_.tokens))] for round_ in run.trace if round_.tokens],
        "tail": "".join(round_.text for round_ in run.trace if not round_.tokens),
        "cut": sum(len(round_.tokens) for round_ in run.trace) < len(run.result.tokens),
        "stats": stats,
        "mat": stats.tokens_per_forward,
    }


def _token(round_: RoundTrace, place: int) -> _Token:
    """Text as it became visible: a token that only ends a character has all of it, the ones before it none."""
    text = "".join(piece.text for piece in round_.pieces if piece.place == place)
    level = round_.levels[place]
    branches = round_.rejected(place)
    lines = [_origin(round_, place)]
    lines += [f"rejected: {_joined(branch)} ({branch[0].level}, {branch[0].probability:.0%})" for branch in branches]
    return _Token(text, level, [_joined(branch) for branch in branches], "\n".join(lines))


def _origin(round_: RoundTrace, place: int) -> str:
    if round_.levels[place] is None:
        return f"round {round_.number}: the model's own token"
    node = round_.nodes[round_.path()[place + 1]]
    return f"round {round_.number}: drafted by {node.level}, {node.probability:.0%}"


def _joined(branch: list[TracedNode]) -> str:
    """A branch's text on one line."""
    return "".join(node.text for node in branch).replace("\n", "\u21b5").replace("\t", "\u21e5")
