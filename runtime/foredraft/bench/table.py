"""A comparison as a table for people. Knows nothing of how it was measured."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from foredraft.bench.compare import BASELINE, Comparison


def render(comparison: Comparison, title: str) -> RenderableType:
    """Overall figures per drafter, then the ratio to plain decoding per category, then what differed."""
    parts: list[RenderableType] = [_overall(comparison, title)]
    if len(comparison.categories()) > 1:
        parts.append(_by_category(comparison))
    unequal = comparison.unequal
    if unequal:
        parts.append(Text(f"DIFFERENT TEXT: {', '.join(f'{name} on {id_}' for name, id_ in unequal)}", "bold red"))
    else:
        answers = len(comparison.runs[BASELINE])
        parts.append(Text(f"Every drafter wrote the same tokens as plain decoding on all {answers} questions.", "green"))
    return Group(*parts)


def _overall(comparison: Comparison, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("drafter")
    for heading in ("tokens/s", "ratio to none", "tokens per forward", "drafting ms/round"):
        table.add_column(heading, justify="right")
    for name in comparison.runs:
        figures = comparison.summary(name)
        table.add_row(
            name,
            f"{figures['tokens_per_second']:.1f}",
            f"{figures['ratio']:.2f}",
            f"{figures['mat']:.2f}",
            f"{figures['drafting_ms']:.2f}",
        )
    return table


def _by_category(comparison: Comparison) -> Table:
    """Cells: ratio to plain decoding (tokens per forward)."""
    table = Table(title="Ratio to none (tokens per forward) by category", title_justify="left")
    table.add_column("category")
    drafters = [name for name in comparison.runs if name != BASELINE]
    for name in drafters:
        table.add_column(name, justify="right")
    for category in comparison.categories():
        figures = [comparison.summary(name, category) for name in drafters]
        table.add_row(category, *(f"{f['ratio']:.2f} ({f['mat']:.2f})" for f in figures))
    return table


def console(stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False)
