"""A job on a sequence, one round at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import cast

from foredraft.engines.protocol import WINDOW
from foredraft.loop.chain import Chain
from foredraft.result import Chunk
from foredraft.server.jobs import AnswerPiece, Job
from foredraft.server.logprobs import logprobs_of
from foredraft.server.prefix_cache import CachedSequence

SHARED_WINDOW = 64
"""Prompt tokens per turn while other answers are being written, so that these go on meanwhile."""


class Running:
    """``step`` runs one round, or one window of the prompt; ``close`` gives up between two steps."""

    def __init__(self, job: Job, sequence: CachedSequence, cached: int, alone: Callable[[], bool]) -> None:
        self.job = job
        self.sequence = sequence
        self._steps = _steps(job, sequence, cached, alone)

    def step(self) -> AnswerPiece | None:
        """What was written, None while the prompt is run. After the piece with the result, do not ask again."""
        return next(self._steps)

    def close(self) -> None:
        """End early; the sequence stays usable."""
        self._steps.close()


def _steps(
    job: Job, sequence: CachedSequence, cached: int, alone: Callable[[], bool]
) -> Generator[AnswerPiece | None, None, None]:
    started = time.perf_counter()
    for _ in _prompt(sequence.session.chain, job.request.tokens, alone):
        yield None
    seconds = time.perf_counter() - started
    with contextlib.closing(cast(Generator[Chunk, None, None], sequence.session.answer(job.request))) as chunks:
        for chunk in chunks:
            if chunk.result:
                chunk.result.stats.cached_tokens = cached
                chunk.result.stats.seconds_prefill += seconds
            logprobs = logprobs_of(chunk, job.top_logprobs) if job.top_logprobs is not None else ()
            yield AnswerPiece(chunk.text, chunk.tokens, chunk.result, chunk.round, chunk.offsets, logprobs)


def _prompt(chain: Chain, tokens: list[int], alone: Callable[[], bool]) -> Generator[None, None, None]:
    """Run the prompt window by window; the last window is left to the session."""
    while True:
        size = WINDOW if alone() else SHARED_WINDOW
        done = chain.arena.settled
        if len(tokens) - done <= size:
            return
        chain.prefill(tokens[done : done + size])
        yield
