"""A comparison as tables for people. Knows nothing of how it was measured."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from foredraft.bench.comparison import BASELINE, Comparison


def render(comparison: Comparison, title: str) -> RenderableType:
    """Overall figures per drafter, acceptance by level, the ratio to plain decoding per category, what differed."""
    if not comparison.finished:
        return Text("No question was finished.", "bold")
    parts: list[RenderableType] = [_overall(comparison, title)]
    if any(comparison.levels(name) for name in comparison.drafters):
        parts.append(_by_level(comparison))
    if len(comparison.categories()) > 1 and len(comparison.drafters) > 1:
        parts.append(_by_category(comparison))
    return Group(*parts, _verdict(comparison))


def console(stderr: bool = False) -> Console:
    """Where tables and the bar are shown."""
    return Console(stderr=stderr, highlight=False)


def _overall(comparison: Comparison, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("drafter")
    for heading in ("tokens/s", "ratio to none", "tokens per forward", "drafting ms/round"):
        table.add_column(heading, justify="right")
    for name in comparison.drafters:
        figures = comparison.summary(name)
        table.add_row(
            name,
            f"{figures['tokens_per_second']:.1f}",
            f"{figures['ratio']:.2f}",
            f"{figures['mat']:.2f}",
            f"{figures['drafting_ms']:.2f}",
        )
    return table


def _by_level(comparison: Comparison) -> Table:
    table = Table(title="Drafts by level", title_justify="left")
    table.add_column("drafter")
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
    """Cells: ratio to plain decoding (tokens per forward)."""
    table = Table(title="By category: ratio (tokens per forward)", title_justify="left")
    table.add_column("category")
    drafters = [name for name in comparison.drafters if name != BASELINE]
    for name in drafters:
        table.add_column(name, justify="right")
    for category in comparison.categories():
        figures = [comparison.summary(name, category) for name in drafters]
        table.add_row(Text(category), *(f"{f['ratio']:.2f} ({f['mat']:.2f})" for f in figures))
    return table


def _verdict(comparison: Comparison) -> Text:
    if unequal := comparison.unequal:
        return Text(f"DIFFERENT TEXT: {', '.join(f'{name} on {id_}' for name, id_ in unequal)}", "bold red")
    questions = len(comparison.finished)
    return Text(f"Every drafter wrote the same tokens as plain decoding on all {questions} questions.", "green")
