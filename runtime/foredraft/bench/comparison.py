"""Answers of several drafters, or policies, to the same questions, and their figures.

Knows nothing of how they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from foredraft.bench.calibration import DraftCalibration
from foredraft.bench.questions import Question
from foredraft.bench.rounds import RoundWork
from foredraft.result import Result
from foredraft.tracing import RoundTrace

BASELINE = "none"
"""Plain decoding, whatever is compared."""
Kind = Literal["drafter", "policy"]
"""What the names of a comparison are."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One question written by one drafter or policy.

    ``seconds`` is the median decoding time of its repeats; ``trace`` has the answer's first rounds if they were kept;
    ``rounds`` is the work of all but the prompt's own; ``agreement`` maps an exit to the tokens that it was asked for
    and those that were right.
    """

    question: Question
    result: Result
    seconds: float
    calibration: DraftCalibration = field(default_factory=DraftCalibration)
    trace: tuple[RoundTrace, ...] = ()
    rounds: tuple[RoundWork, ...] = ()
    agreement: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def decoded(self) -> int:
        """Tokens after the first, which the prompt's own forward gives."""
        return max(len(self.result.tokens) - 1, 0)


@dataclass(slots=True)
class Comparison:
    """``finished[i]`` has all drafters' (or policies') runs of question i, added at once: an interrupt never leaves a
    part.

    ``asked`` is how many questions there are.
    """

    drafters: tuple[str, ...]
    asked: int
    finished: list[dict[str, BenchRun]] = field(default_factory=list)
    kind: Kind = "drafter"

    def runs(self, name: str, category: str | None = None) -> list[BenchRun]:
        """One drafter's runs, in the order of the questions; of one category, or all."""
        runs = [answers[name] for answers in self.finished]
        return [run for run in runs if category in (None, run.question.category)]

    @property
    def unequal(self) -> list[tuple[str, str]]:
        """(drafter, question id) of every answer that differs from plain decoding's."""
        return [
            (name, run.question.id)
            for name in self.drafters
            for run, plain in zip(self.runs(name), self.runs(BASELINE), strict=True)
            if run.result.tokens != plain.result.tokens
        ]

    def categories(self) -> list[str]:
        """In the order of the questions."""
        return list(dict.fromkeys(run.question.category for run in self.runs(BASELINE)))

    def usual_context(self) -> int:
        """Tokens of text, prompt included, that plain decoding's forwards had under them in the mean."""
        runs = self.runs(BASELINE)
        tokens = sum(run.result.stats.tokens for run in runs) or 1
        weighted = (
            run.result.stats.tokens * (run.result.stats.prompt_tokens + run.result.stats.tokens / 2) for run in runs
        )
        return max(round(sum(weighted) / tokens), 1)

    def summary(self, name: str, category: str | None = None) -> dict[str, float]:
        """Figures of one drafter over all questions or one category; see ``to_json`` for their names."""
        chosen = self.runs(name, category)
        speed, plain_speed = _speed(chosen), _speed(self.runs(BASELINE, category))
        rounds = sum(run.result.stats.rounds for run in chosen)
        drafting = sum(run.result.stats.seconds_draft for run in chosen)
        decoded = sum(run.decoded for run in chosen) or 1
        return {
            "ratio": speed / plain_speed if plain_speed else 0.0,
            "mat": sum(run.decoded for run in chosen) / rounds if rounds else 0.0,
            "tokens_per_second": speed,
            "drafting_ms": 1000 * drafting / rounds if rounds else 0.0,
            "layer_passes": sum(run.result.stats.layer_passes for run in chosen) / decoded,
            "layer_runs": sum(run.result.stats.layer_runs for run in chosen) / decoded,
        }

    def levels(self, name: str) -> dict[str, dict[str, int]]:
        """{level: {"drafted": nodes, "accepted": nodes}} of one drafter."""
        total: dict[str, dict[str, int]] = {}
        for run in self.runs(name):
            for level, (drafted, accepted) in run.result.stats.levels.items():
                entry = total.setdefault(level, {"drafted": 0, "accepted": 0})
                entry["drafted"] += drafted
                entry["accepted"] += accepted
        return total

    def calibration(self, name: str) -> DraftCalibration:
        """Of one drafter, over all questions."""
        return DraftCalibration.total(run.calibration for run in self.runs(name))

    def agreement(self, name: str | None = None) -> dict[int, tuple[int, int]]:
        """{exit: (tokens it was asked for, those that were right)} of one, or of all together."""
        total: dict[int, tuple[int, int]] = {}
        for run in (run for each in self.drafters if name in (None, each) for run in self.runs(each)):
            for exit_, (asked, right) in run.agreement.items():
                before = total.get(exit_, (0, 0))
                total[exit_] = (before[0] + asked, before[1] + right)
        return dict(sorted(total.items()))

    def acceptance_by_position(self, name: str) -> list[float]:
        """Share of rounds in which at least 1, 2, 3 … drafts were accepted."""
        return acceptance_by_position(self.runs(name))

    def to_json(self) -> dict[str, Any]:
        """All figures as plain JSON values; docs/bench.md describes them."""
        compared = {}
        for name in self.drafters:
            figures: dict[str, Any] = dict(self.summary(name))
            figures["levels"] = self.levels(name)
            figures["acceptance_by_position"] = self.acceptance_by_position(name)
            figures["calibration"] = [bucket._asdict() for bucket in self.calibration(name).buckets()]
            figures["categories"] = {category: self.summary(name, category) for category in self.categories()}
            figures["exits"] = {str(e): {"asked": a, "agreed": r} for e, (a, r) in self.agreement(name).items()}
            compared[name] = figures
        questions = {"asked": self.asked, "finished": len(self.finished)}
        unequal = self.unequal
        key = "drafters" if self.kind == "drafter" else "policies"
        return {"equal": not unequal, "unequal": unequal, "questions": questions, key: compared}


def acceptance_by_position(runs: Sequence[BenchRun]) -> list[float]:
    """Share of rounds in which at least 1, 2, 3 … drafts were accepted."""
    rounds = sum(run.result.stats.rounds for run in runs)
    counts: list[int] = []
    for run in runs:
        for accepted, times in run.result.stats.accepted_counts.items():
            counts.extend([0] * (accepted - len(counts)))
            for position in range(accepted):
                counts[position] += times
    return [count / rounds for count in counts] if rounds else []


def _speed(runs: Sequence[BenchRun]) -> float:
    seconds = sum(run.seconds for run in runs)
    return sum(run.decoded for run in runs) / seconds if seconds else 0.0
