"""One answer that is to be written, and what comes of it. Knows nothing of HTTP, threads or caches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from foredraft.request import CheckedRequest
from foredraft.result import Chunk
from foredraft.server.api_errors import ApiError
from foredraft.server.logprobs import TokenLogprob


@dataclass(frozen=True, slots=True)
class AnswerPiece(Chunk):
    """What one round wrote, and the log probabilities of its tokens if they were asked for."""

    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer ended with an error."""

    error: ApiError


Event = AnswerPiece | Failure
Emit = Callable[[Event], None]


@dataclass(slots=True, eq=False)
class Job:
    """A checked request in, events out. ``emit`` is called from the scheduler's thread.

    Times are readings of ``time.monotonic``; ``started``: left the queue; ``first``, ``last``: times of tokens.
    """

    request: CheckedRequest
    top_logprobs: int | None
    emit: Emit
    deadline: float
    created: float = field(default_factory=time.monotonic)
    started: float | None = None
    first: float | None = None
    last: float | None = None
    cancelled: bool = False

    def expired(self) -> bool:
        """True once the request has taken too long."""
        return time.monotonic() > self.deadline
