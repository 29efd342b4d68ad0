"""Run the same questions with several drafters or policies, interleaved, on one engine.

Knows nothing of how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from foredraft.bench.calibration import DraftCalibration
from foredraft.bench.comparison import BASELINE, BenchRun, Comparison, Kind
from foredraft.bench.questions import Question
from foredraft.bench.rounds import Written, agreement, write
from foredraft.bundle import Bundle
from foredraft.engines.protocol import Engine
from foredraft.errors import RequestError
from foredraft.result import Chunk
from foredraft.sampling.params import SamplingParams
from foredraft.session import Session
from foredraft.tracing import RoundTrace, Tracer

TRACED_ROUNDS = 200
"""Rounds of an answer that a trace keeps: it holds every drafted node."""


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
    traced: int = 0,
    kind: Kind = "drafter",
) -> Iterator[Comparison]:
    """Yield the growing comparison, empty at first, after every question. Plain decoding is always among the drafters.

    Each repeat starts from drafters that have learned nothing: state that survives from one run to the next on the
    same questions would make a false speed-up. Within a repeat, what a drafter learns from one question it may use
    for the next, as it would when serving. Of ``traced`` categories, the first question's rounds are kept.
    With ``kind`` "policy", ``drafters`` are names of policies.
    """
    names = tuple(dict.fromkeys([BASELINE, *drafters]))
    make = open_session or (lambda name: Session(bundle, name, engine=engine))
    use_chat = chat and bundle.chat_template is not None
    comparison = Comparison(names, len(questions), kind=kind)
    yield comparison
    sessions = [{name: make(name) for name in names} for _ in range(repeats)]
    to_trace = _first_of_categories(questions, traced)
    for index, question in enumerate(questions):
        request: dict[str, Any] = {"max_tokens": max_tokens, "sampling": sampling, "prompt": question.prompt}
        if use_chat:
            request["messages"] = [{"role": "user", "content": request.pop("prompt")}]
        written: dict[str, list[Written]] = {name: [] for name in names}
        for repeat in sessions:
            for name in _rotated(names, index):  # no drafter always runs first
                written[name].append(write(repeat[name], request))
        traces = {
            name: _trace(sessions[0][name], written[name][0].chunks) if index in to_trace else () for name in names
        }
        comparison.finished.append({name: _run(question, written[name], traces[name]) for name in names})
        yield comparison


def check_drafters(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse an unknown drafter before anything runs."""
    for name in names:
        if name not in known:
            raise RequestError(f"drafter {name!r}: expected one of {', '.join(known)}")


def _run(question: Question, repeats: Sequence[Written], trace: tuple[RoundTrace, ...]) -> BenchRun:
    results = [written.chunks[-1].result for written in repeats]
    seconds = median(result.stats.seconds_decode for result in results if result)
    rounds = [chunk.round for chunk in repeats[0].chunks if chunk.round is not None]
    calibration = DraftCalibration()
    for round_ in rounds:
        calibration.add(round_)
    assert results[0] is not None  # the last chunk of a stream carries it
    return BenchRun(question, results[0], seconds, calibration, trace, repeats[0].rounds, agreement(rounds))


def _trace(session: Session, chunks: Sequence[Chunk]) -> tuple[RoundTrace, ...]:
    tracer = Tracer(session.bundle.tokenizer, session.level_names)
    return tuple(tracer.describe(chunk) for chunk in chunks[:TRACED_ROUNDS])


def _first_of_categories(questions: Sequence[Question], count: int) -> set[int]:
    """Places of the first questions of the first ``count`` categories."""
    first: dict[str, int] = {}
    for index, question in enumerate(questions):
        first.setdefault(question.category, index)
    return set(list(first.values())[:count])


def _rotated(names: Sequence[str], by: int) -> list[str]:
    by %= len(names)
    return [*names[by:], *names[:by]]
