"""Run the same questions with several drafters, interleaved, on one engine. Knows nothing of how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from foredraft.bench.questions import Question
from foredraft.bundle import Bundle
from foredraft.engines.base import Engine
from foredraft.errors import RequestError
from foredraft.result import Result
from foredraft.sampling import SamplingParams
from foredraft.session import Session

BASELINE = "none"


@dataclass(frozen=True, slots=True)
class Run:
    """One question written by one drafter; ``seconds`` is the median decoding time of its repeats."""

    question: Question
    result: Result
    seconds: float

    @property
    def decoded(self) -> int:
        """Tokens after the first, which the prompt's own forward gives."""
        return max(len(self.result.tokens) - 1, 0)


@dataclass(slots=True)
class Comparison:
    """All runs by drafter, in the order of the questions."""

    runs: dict[str, list[Run]] = field(default_factory=dict)

    @property
    def unequal(self) -> list[tuple[str, str]]:
        """(drafter, question id) of every answer that differs from plain decoding's."""
        plain = [run.result.tokens for run in self.runs[BASELINE]]
        return [
            (name, run.question.id)
            for name, runs in self.runs.items()
            for run, tokens in zip(runs, plain, strict=True)
            if run.result.tokens != tokens
        ]

    def categories(self) -> list[str]:
        return list(dict.fromkeys(run.question.category for run in self.runs[BASELINE]))

    def summary(self, name: str, category: str | None = None) -> dict[str, Any]:
        """Figures of one drafter over all questions or one category; see ``to_json`` for their names."""
        chosen = [r for r in self.runs[name] if category in (None, r.question.category)]
        plain = [r for r in self.runs[BASELINE] if category in (None, r.question.category)]
        speed, plain_speed = _speed(chosen), _speed(plain)
        rounds = sum(r.result.stats.rounds for r in chosen)
        drafting = sum(r.result.stats.seconds_draft for r in chosen)
        return {
            "ratio": speed / plain_speed if plain_speed else 0.0,
            "mat": sum(r.decoded for r in chosen) / rounds if rounds else 0.0,
            "tokens_per_second": speed,
            "drafting_ms": 1000 * drafting / rounds if rounds else 0.0,
        }

    def to_json(self) -> dict[str, Any]:
        """``equal``, and per drafter ``ratio`` to plain, ``mat`` (tokens per forward), speed, drafting time per round."""
        drafters = {}
        for name, runs in self.runs.items():
            figures = self.summary(name)
            figures["levels"] = _levels(runs)
            figures["acceptance_by_position"] = acceptance_by_position(runs)
            figures["categories"] = {c: self.summary(name, c) for c in self.categories()}
            drafters[name] = figures
        return {"equal": not self.unequal, "unequal": self.unequal, "drafters": drafters}


def compare(
    bundle: Bundle,
    engine: Engine,
    questions: Sequence[Question],
    drafters: Sequence[str],
    *,
    max_tokens: int,
    sampling: SamplingParams,
    repeats: int = 1,
    open_session: Callable[[str], Session] | None = None,
    chat: bool = True,
) -> Iterator[Comparison]:
    """Yield the growing comparison after every question. Plain decoding is always among the drafters.

    Each repeat starts from drafters that have learned nothing: state that survives from one run to the next on the
    same questions would make a false speed-up. Within a repeat, what a drafter learns from one question it may use
    for the next, as it would when serving.
    """
    names = list(dict.fromkeys([BASELINE, *drafters]))
    make = open_session or (lambda name: Session(bundle, name, engine=engine))
    use_chat = chat and bundle.chat_template is not None
    sessions = [{name: make(name) for name in names} for _ in range(repeats)]
    comparison = Comparison({name: [] for name in names})
    for index, question in enumerate(questions):
        results: dict[str, list[Result]] = {name: [] for name in names}
        for repeat in sessions:
            for name in _rotated(names, index):  # no drafter always runs first
                prompt: dict[str, Any] = {"prompt": question.prompt}
                if use_chat:
                    prompt = {"messages": [{"role": "user", "content": question.prompt}]}
                results[name].append(repeat[name].generate(**prompt, max_tokens=max_tokens, sampling=sampling))
        for name in names:
            seconds = median(r.stats.seconds_decode for r in results[name])
            comparison.runs[name].append(Run(question, results[name][0], seconds))
        yield comparison


def check_drafters(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse an unknown drafter before anything runs."""
    for name in names:
        if name not in known:
            raise RequestError(f"drafter {name!r}: expected one of {', '.join(known)}")


def acceptance_by_position(runs: Sequence[Run]) -> list[float]:
    """Share of rounds in which at least 1, 2, 3 … drafts were accepted."""
    rounds = sum(run.result.stats.rounds for run in runs)
    counts: list[int] = []
    for run in runs:
        for accepted, times in run.result.stats.accepted_counts.items():
            counts.extend([0] * (accepted - len(counts)))
            for position in range(accepted):
                counts[position] += times
    return [count / rounds for count in counts] if rounds else []


def _levels(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for run in runs:
        for level, (drafted, accepted) in run.result.stats.levels.items():
            entry = total.setdefault(level, {"drafted": 0, "accepted": 0})
            entry["drafted"] += drafted
            entry["accepted"] += accepted
    return total


def _speed(runs: Sequence[Run]) -> float:
    seconds = sum(run.seconds for run in runs)
    return sum(run.decoded for run in runs) / seconds if seconds else 0.0


def _rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]
