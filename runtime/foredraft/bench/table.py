"""A comparison as tables for people. Knows nothing of how it was measured."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from foredraft.bench.comparison import BASELINE, Comparison
from foredraft.bench.simulate import Simulation
from foredraft.bench.sweep import Verdict

_COMMON = {
    "tokens/s": ("tokens_per_second", ".1f"),
    "ratio to none": ("ratio", ".2f"),
    "tokens per forward": ("mat", ".2f"),
}
COLUMNS = {
    "drafter": _COMMON | {"drafting ms/round": ("drafting_ms", ".2f")},
    "policy": _COMMON
    | {"layer passes per token": ("layer_passes", ".2f"), "layer runs per token": ("layer_runs", ".1f")},
}
"""Heading: figure and its format, by what is compared."""


def render(comparison: Comparison, title: str, details: bool = True) -> RenderableType:
    """Overall figures per drafter or policy, what differed, and with ``details`` acceptance by level and figures per
    category."""
    if not comparison.finished:
        return Text("No question was finished.", "bold")
    parts: list[RenderableType] = [_overall(comparison, title)]
    if details and any(comparison.levels(name) for name in comparison.drafters):
        parts.append(_by_level(comparison))
    if details and len(comparison.categories()) > 1 and len(comparison.drafters) > 1:
        parts.append(_by_category(comparison))
    return Group(*parts, _verdict(comparison))


def console(stderr: bool = False) -> Console:
    """Where tables and the bar are shown."""
    return Console(stderr=stderr, highlight=False)


def render_simulation(simulation: Simulation, comparison: Comparison) -> RenderableType:
    """Rates elsewhere beside those measured here, and the constants that they rest on."""
    table = Table(title=f"Simulated: {simulation.name}", title_justify="left")
    table.add_column(comparison.kind, overflow="fold")
    for heading in ("tokens/s", "ratio to none", "ratio measured here"):
        table.add_column(heading, justify="right")
    for name in sorted(simulation.rates, key=lambda name: -simulation.rates[name]):
        measured = f"{comparison.summary(name)['ratio']:.2f}"
        table.add_row(name, f"{simulation.rates[name]:.1f}", f"{simulation.ratio(name):.2f}", measured)
    return Group(table, Text(simulation.about))


def render_verdicts(verdicts: list[Verdict]) -> RenderableType:
    """A line for each exit."""
    return Text("\n".join(map(str, verdicts)), "bold")


def _overall(comparison: Comparison, title: str) -> Table:
    """Policies stand fastest first, drafters in the order that they were named in."""
    columns = COLUMNS[comparison.kind]
    table = Table(title=title, title_justify="left")
    table.add_column(comparison.kind, no_wrap=True)
    for heading in columns:
        table.add_column(heading, justify="right")
    figures = {name: comparison.summary(name) for name in comparison.drafters}
    by_speed = sorted(figures, key=lambda name: -figures[name]["ratio"])
    for name in by_speed if comparison.kind == "policy" else figures:
        table.add_row(name, *(format(figures[name][figure], form) for figure, form in columns.values()))
    return table


def _by_level(comparison: Comparison) -> Table:
    table = Table(title="Drafts by level", title_justify="left")
    table.add_column(comparison.kind, overflow="fold")
    table.add_column("level")
    for heading in ("drafted", "accepted", "share"):
        table.add_column(heading, justify="right")
    for name in comparison.drafters:
        shown = name
        for level, counts in comparison.levels(name).items():
            drafted, accepted = counts["drafted"], counts["accepted"]
            table.add_row(shown, level, f"{drafted:,}", f"{accepted:,}", f"{accepted / drafted:.1%}")
            shown = ""
    return table


def _by_category(comparison: Comparison) -> Table:
    """Cells: ratio to plain decoding, and in brackets tokens per forward, or a policy's layer passes per token.

    The longer of the two lists goes down the page.
    """
    policies = comparison.kind == "policy"
    second, heading = ("layer_passes", "layer passes per token") if policies else ("mat", "tokens per forward")
    compared = [name for name in comparison.drafters if name != BASELINE]
    categories = comparison.categories()
    names_down = policies and len(compared) > len(categories)
    table = Table(title=f"By category: ratio ({heading})", title_justify="left")
    table.add_column(comparison.kind if names_down else "category", overflow="fold")
    for across in categories if names_down else compared:
        table.add_column(Text(across), justify="right", overflow="fold")

    def cell(name: str, category: str) -> str:
        figures = comparison.summary(name, category)
        return f"{figures['ratio']:.2f} ({figures[second]:.2f})"

    if names_down:
        for name in compared:
            table.add_row(name, *(cell(name, category) for category in categories))
    else:
        for category in categories:
            table.add_row(Text(category), *(cell(name, category) for name in compared))
    return table


def _verdict(comparison: Comparison) -> Text:
    if unequal := comparison.unequal:
        return Text(f"DIFFERENT TEXT: {', '.join(f'{name} on {id_}' for name, id_ in unequal)}", "bold red")
    questions = len(comparison.finished)
    return Text(
        f"Every {comparison.kind} wrote the same tokens as plain decoding on all {questions} questions.", "green"
    )
