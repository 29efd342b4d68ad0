"""What ``exits fit`` found, as values, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from foredraft_exporter.exits.agreement import ExitAgreement
from foredraft_exporter.exits.verdict import break_even, verdict


@dataclass(frozen=True, slots=True)
class ExitReport:
    """``stages``: agreement of ``raw``, ``ridge`` and maybe ``corrected``; ``best`` names the one that was kept.

    ``cost``: share of a forward that a draft at this exit takes.
    """

    exit: int
    stages: Mapping[str, ExitAgreement]
    best: str
    cost: float

    @property
    def agreement(self) -> float:
        return self.stages[self.best].top1

    @property
    def verdict(self) -> str:
        return verdict(self.exit, self.agreement, self.cost)


@dataclass(frozen=True, slots=True)
class FitReport:
    """``model``: its fingerprint; ``tokens``: fitted on; ``seconds``: all together."""

    name: str
    model: str
    tokens: int
    seconds: float
    corrected: bool
    exits: tuple[ExitReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        exits = [
            {
                "exit": e.exit,
                "kept": e.best,
                "cost": e.cost,
                "break_even": break_even(e.cost),
                "verdict": e.verdict,
                "agreement": {name: asdict(stage) for name, stage in e.stages.items()},
            }
            for e in self.exits
        ]
        values = {"model": self.name, "fingerprint": self.model, "tokens": self.tokens, "seconds": self.seconds}
        return {**values, "corrected": self.corrected, "exits": exits}


def agreement_table(report: FitReport) -> list[str]:
    """Lines of a table, a row per exit and stage; 76 columns, so that no terminal breaks it.

    A bucket's cell is its agreement and the share of tokens in it, in percent; ``*`` marks what was kept.
    """
    buckets = report.exits[0].stages["raw"].buckets
    headings = [f"{b.low:g}-{b.high:g}" for b in buckets]
    lines = [
        "agreement with the last layer on held-out text; by confidence: agreement/share of tokens; all in %",
        _row("exit", "readout", "agrees", *headings, "cost", "needs"),
    ]
    for e in report.exits:
        for name, stage in e.stages.items():
            cells = [
                f"{100 * b.agreement:.0f}/{100 * b.share:.0f}" if b.agreement is not None else "-"
                for b in stage.buckets
            ]
            kept = name == e.best
            costs = (f"{100 * e.cost:.0f}", f"{100 * break_even(e.cost):.0f}") if kept else ("", "")
            lines.append(_row(str(e.exit), f"{name} *" if kept else name, f"{100 * stage.top1:.1f}", *cells, *costs))
    return lines


def _row(exit_: str, readout: str, *cells: str) -> str:
    return f"{exit_:>4}  {readout:<11} {''.join(f'{cell:>8}' for cell in cells)}".rstrip()
