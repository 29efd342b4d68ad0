"""The scheduler's thread on a tiny model: turns, cancelling, and errors that stay where they are."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foredraft import Bundle, SamplingParams, Session
from foredraft.errors import RequestError
from foredraft.request import CheckedRequest
from foredraft.server.api_errors import ApiError
from foredraft.server.jobs import AnswerPiece, Event, Failure, Job
from foredraft.server.prefix_cache import PrefixCache
from foredraft.server.running import Running
from foredraft.server.scheduler import RequestScheduler
from tests.waiting import LIMIT, TEST_LIMIT, until


class Notes:
    """What the scheduler did, in order."""

    def __init__(self) -> None:
        self.turns: list[Job] = []

    def piece(self, job: Job, piece: AnswerPiece, seconds_since_last: float | None) -> None:
        self.turns.append(job)

    def load(self, active: int, waiting: int, kept_tokens: int) -> None: ...


class Bench:
    """A scheduler, and the events of its jobs."""

    def __init__(self, bundle: Path, sequences: int) -> None:
        opened = Bundle.open(bundle)
        engine = Session(opened, "none").engine
        self.notes = Notes()
        self.cache = PrefixCache(lambda: Session(opened, "none", engine=engine), opened.manifest, 2**28)
        self.scheduler = RequestScheduler(self.cache, self.notes, sequences, 4)
        self.events: queue.Queue[tuple[Job, Event]] = queue.Queue()

    def job(self, tokens: list[int], max_tokens: int = 50, on_event: Any = None, seconds: float = TEST_LIMIT) -> Job:
        def emit(event: Event) -> None:
            if on_event:
                on_event(job)
            self.events.put((job, event))

        request = CheckedRequest(tokens, max_tokens, SamplingParams(), ())
        job = Job(request, None, emit, time.monotonic() + seconds)
        return job

    def last_event(self, job: Job) -> Event:
        while True:
            owner, event = self.events.get(timeout=LIMIT)
            if owner is job and (isinstance(event, Failure) or event.result):
                return event


@pytest.fixture
def bench(slow: Path) -> Iterator[Bench]:
    bench = Bench(slow, sequences=2)
    yield bench
    bench.scheduler.close()


def test_active_answers_get_a_round_in_turn(bench: Bench) -> None:
    first, second = bench.job([1, 2, 3]), bench.job([4, 5, 6])
    bench.scheduler.submit([first, second])
    bench.last_event(second)
    turns = bench.notes.turns[:100]
    assert turns[::2] == [first] * 50 and turns[1::2] == [second] * 50


def test_cancelling_takes_effect_before_the_next_round(bench: Bench) -> None:
    job = bench.job([1, 2, 3], 2000, on_event=lambda job: bench.scheduler.cancel([job]))
    after = bench.job([4, 5, 6], 20)
    bench.scheduler.submit([job, after])
    bench.last_event(after)
    assert bench.notes.turns.count(job) == 1
    assert bench.scheduler.active == 0


def test_a_long_prompt_does_not_hold_up_another_answer(bench: Bench) -> None:
    short, long = bench.job([1, 2, 3], 200), bench.job(list(range(250)) * 7, 1)
    bench.scheduler.submit([short])
    bench.events.get(timeout=LIMIT)
    bench.scheduler.submit([long])
    bench.last_event(long)
    assert bench.notes.turns.index(long) > 1750 // 64  # a round of the other between any two windows of the prompt


def break_at(bench: Bench, monkeypatch: pytest.MonkeyPatch, turn: int, error: Exception) -> None:
    """The answer to 7 7 7 fails at this turn of its own."""
    whole = Running.step

    def breaking(self: Running) -> AnswerPiece | None:
        if self.job.request.tokens == [7, 7, 7] and bench.notes.turns.count(self.job) == turn:
            raise error
        return whole(self)

    monkeypatch.setattr(Running, "step", breaking)


def test_an_error_ends_one_answer_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(bench, monkeypatch, 0, RequestError("wrong"))
    wrong, right = bench.job([7, 7, 7]), bench.job([4, 5, 6], 30)
    bench.scheduler.submit([wrong, right])
    failure, result = bench.last_event(wrong), None
    assert isinstance(failure, Failure) and failure.error.status == 400
    result = bench.last_event(right)
    assert isinstance(result, AnswerPiece) and result.result is not None and len(result.result.tokens) == 30


def test_an_engine_that_breaks_ends_one_answer_and_its_sequence(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(bench, monkeypatch, 3, RuntimeError("broken"))
    wrong, right = bench.job([7, 7, 7]), bench.job([4, 5, 6], 30)
    bench.scheduler.submit([wrong, right])
    failure = bench.last_event(wrong)
    assert isinstance(failure, Failure) and failure.error.status == 500 and "broken" not in failure.error.message
    assert isinstance(bench.last_event(right), AnswerPiece)
    assert bench.scheduler.alive


def test_memory_is_taken_ahead_while_there_is_nothing_to_do(bench: Bench) -> None:
    first, second = bench.job([1, 2, 3] * 30), bench.job([4, 5, 6] * 30)
    bench.scheduler.submit([first])
    bench.last_event(first)

    def taken() -> bool:
        ahead = bench.cache._ahead
        return ahead is not None and ahead.touched == bench.cache.kept_tokens > 90

    until(taken, "memory is taken for as long a text as is kept")
    bench.scheduler.submit([second])
    assert isinstance(bench.last_event(second), AnswerPiece)


def test_answers_are_written_where_no_memory_can_be_taken_ahead(slow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: PrefixCache) -> bool:
        raise MemoryError

    monkeypatch.setattr(PrefixCache, "prepare", full)
    bench = Bench(slow, sequences=1)
    job = bench.job([1, 2, 3])
    bench.scheduler.submit([job])
    assert isinstance(bench.last_event(job), AnswerPiece)
    bench.scheduler.close()


def test_the_queue_has_a_limit_and_a_deadline(bench: Bench) -> None:
    running = [bench.job([i, 2, 3], 1500) for i in range(2)]
    bench.scheduler.submit(running)
    late = bench.job([9, 9])
    bench.scheduler.submit([late, *[bench.job([8, i]) for i in range(3)]])
    with pytest.raises(ApiError, match="try again") as full:
        bench.scheduler.submit([bench.job([1])])
    assert full.value.status == 429 and int(full.value.headers["Retry-After"]) >= 1
    late.deadline = time.monotonic()
    failure = bench.last_event(late)
    assert isinstance(failure, Failure) and failure.error.status == 504 and "in the queue" in failure.error.message


def test_closing_ends_what_is_left(slow: Path) -> None:
    bench = Bench(slow, sequences=1)
    job, waiting = bench.job([1, 2], 1500), bench.job([3, 4])
    bench.scheduler.submit([job, waiting])
    bench.events.get(timeout=LIMIT)
    bench.scheduler.close()
    for each in (job, waiting):
        failure = bench.last_event(each)
        assert isinstance(failure, Failure) and failure.error.status == 503
    with pytest.raises(ApiError, match="shutting down"):
        bench.scheduler.submit([bench.job([1])])
