"""Writes several answers at once on one engine: a thread that advances each active one by a round, in turn."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from foredraft.server.api_errors import ApiError, as_api_error
from foredraft.server.jobs import AnswerPiece, Event, Failure, Job
from foredraft.server.prefix_cache import PrefixCache
from foredraft.server.running import Running

_log = logging.getLogger("foredraft.server")
_LONGEST_RETRY = 60


class Observer(Protocol):
    """Is told what happens, on the scheduler's thread."""

    def piece(self, job: Job, piece: AnswerPiece, seconds_since_last: float | None) -> None:
        """A round has written something."""
        ...

    def load(self, active: int, waiting: int, kept_tokens: int) -> None:
        """How many answers are being written and wait, and how many tokens the prefix cache holds."""
        ...


class RequestScheduler:
    """``submit`` and ``cancel`` may be called from any thread; jobs are started in the order they came."""

    def __init__(self, cache: PrefixCache, observer: Observer, sequences: int, queue: int) -> None:
        self._cache = cache
        self._observer = observer
        self._sequences = sequences
        self._queue = queue
        self._active: list[Running] = []
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._seconds_per_job = 1.0
        self._told = False
        self._thread = threading.Thread(target=self._run, name="foredraft-scheduler", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """False once the thread has ended."""
        return self._thread.is_alive()

    @property
    def active(self) -> int:
        """Answers that are being written."""
        return len(self._active)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take all jobs or none. Raises ApiError: 429 if the queue has not that much room, 400 if it never has."""
        capacity = self._sequences + self._queue
        if len(jobs) > capacity:
            raise ApiError(400, f"{len(jobs)} answers in one request, this server takes at most {capacity}")
        with self._changed:
            if self._closing:
                raise ApiError(503, "the server is shutting down", code="shutting_down")
            if len(self._waiting) + len(self._active) + len(jobs) > capacity:
                wait = self._seconds_per_job * len(self._waiting) / self._sequences
                retry = str(min(_LONGEST_RETRY, max(1, math.ceil(wait))))
                message = f"the queue is full; try again in {retry} s"
                raise ApiError(429, message, code="queue_full", headers={"Retry-After": retry})
            self._waiting.extend(jobs)
            self._changed.notify()

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Nobody waits for these any more: what is active ends before its next round."""
        with self._changed:
            for job in jobs:
                job.cancelled = True
                with contextlib.suppress(ValueError):
                    self._waiting.remove(job)
            self._changed.notify()

    def close(self) -> None:
        """Give up what is still active or waiting, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            preparing = self._prepare()
            with self._changed:
                while not (preparing or self._active or self._waiting or self._closing):
                    self._changed.wait()
                if self._closing:
                    break
                ready = self._next_jobs()
            for job in ready:
                self._start(job)
            self._report()
            for running in list(self._active):
                self._advance(running)
            self._report()
        shutting_down = Failure(ApiError(503, "the server is shutting down", code="shutting_down"))
        for job in [running.job for running in self._active] + list(self._waiting):
            self._emit(job, shutting_down)

    def _prepare(self) -> bool:
        """Between rounds, and while there are none, memory is found for answers to come."""
        try:
            return self._cache.prepare()
        except Exception as error:  # an answer that really needs it will fail, and say so
            if not self._told:
                _log.warning("no memory could be taken ahead: %s", error)
            self._told = True
            return False

    def _next_jobs(self) -> list[Job]:
        ready: list[Job] = []
        expired = [job for job in self._waiting if job.expired()]
        for job in expired:
            self._waiting.remove(job)
            self._emit(job, Failure(_too_late(job)))
        while self._waiting and len(self._active) + len(ready) < self._sequences:
            ready.append(self._waiting.popleft())
        return ready

    def _start(self, job: Job) -> None:
        job.started = time.monotonic()
        try:
            sequence, cached = self._cache.take(job.request.tokens)
        except Exception as error:
            self._fail(job, error)
            return
        self._active.append(Running(job, sequence, cached, alone=lambda: len(self._active) == 1))

    def _advance(self, running: Running) -> None:
        """One round of one answer. Whatever goes wrong in it ends that answer, and no other."""
        job = running.job
        try:
            if job.cancelled or job.expired():
                running.close()
                self._end(running)
                if not job.cancelled:
                    self._emit(job, Failure(_too_late(job)))
                return
            piece = running.step()
        except Exception as error:
            self._active.remove(running)
            self._cache.drop(running.sequence)
            self._fail(job, error)
            return
        if piece is None:
            return
        now = time.monotonic()
        self._observer.piece(job, piece, now - job.last if job.last else None)
        if piece.tokens:
            job.first, job.last = job.first or now, now
        if piece.result:
            running.close()
            self._end(running)
        self._emit(job, piece)

    def _end(self, running: Running) -> None:
        self._active.remove(running)
        self._cache.give_back(running.sequence)
        taken = time.monotonic() - (running.job.started or 0.0)
        self._seconds_per_job += 0.1 * (taken - self._seconds_per_job)

    def _fail(self, job: Job, error: Exception) -> None:
        known = as_api_error(error)
        if known.status >= 500:
            _log.error("an answer failed", exc_info=error)
        self._emit(job, Failure(known))

    def _emit(self, job: Job, event: Event) -> None:
        if not job.cancelled:
            job.emit(event)

    def _report(self) -> None:
        self._observer.load(len(self._active), len(self._waiting), self._cache.kept_tokens)


def _too_late(job: Job) -> ApiError:
    where = "while it was written" if job.started else "in the queue"
    return ApiError(504, f"the request took longer than {job.deadline - job.created:.1f} s ({where})", code="timeout")
