"""What the rounds of an answer ran, and what exits said in them, recorded for later. Knows nothing of hardware."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.drafters.protocol import Drafter
from foredraft.loop.rounds import Round
from foredraft.loop.tree import TIP, Tree
from foredraft.result import Chunk
from foredraft.sampling.logits import Row
from foredraft.session import Session


@dataclass(frozen=True, slots=True)
class RoundWork:
    """One round after the prompt's own: its ``forwards`` (segment or head as in ``Chain.log``, nodes), the ``tokens``
    that it wrote, how many ``opinions`` of exits were taken, with how many ``runners_up`` in all, and the seconds that
    its drafter took here to draft and to learn."""

    forwards: tuple[tuple[int, int], ...]
    tokens: int
    opinions: int
    seconds_drafter: float
    runners_up: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """One answer as it was written: the stream's chunks, and the work of its rounds."""

    chunks: list[Chunk]
    rounds: tuple[RoundWork, ...]


def write(session: Session, request: Mapping[str, Any]) -> Written:
    """Write an answer and record its rounds; ``request`` are arguments of ``Session.stream``."""
    log = session.chain.log = []
    drafter, session.drafter = session.drafter, (timed := _Timed(session.drafter))
    chunks, rounds = [], []
    for chunk in session.stream(**request):
        chunks.append(chunk)
        if chunk.round is not None:
            tokens, opinions = len(chunk.round.tokens), len(chunk.round.opinions)
            seconds = chunk.round.seconds_draft + timed.learning
            rounds.append(RoundWork(tuple(log), tokens, opinions, seconds, chunk.round.runners_up))
            log.clear()
            timed.learning = 0.0
    session.chain.log, session.drafter = None, drafter
    return Written(chunks, tuple(rounds[1:]))


class _Timed:
    """A drafter, and the seconds that ``learning`` took it since they were last set to 0."""

    def __init__(self, drafter: Drafter) -> None:
        self.name, self.level_names, self.wants_logits = drafter.name, drafter.level_names, drafter.wants_logits
        self.learning = 0.0
        self._drafter = drafter

    def begin(self, prompt: Sequence[int]) -> None:
        self._drafter.begin(prompt)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        return self._drafter.propose(context, budget, minimum)

    def commit(self, tokens: Sequence[int], logits: Sequence[Row] | None) -> None:
        started = time.perf_counter()
        self._drafter.commit(tokens, logits)
        self.learning += time.perf_counter() - started

    def rewind(self, length: int) -> None:
        self._drafter.rewind(length)

    def finish(self) -> None:
        self._drafter.finish()


def agreement(rounds: Iterable[Round]) -> dict[int, tuple[int, int]]:
    """{exit: (tokens it was asked for, those that were the whole model's own)}, where the model's own is known: after
    every node of the accepted path."""
    asked: Counter[int] = Counter()
    agreed: Counter[int] = Counter()
    for round_ in rounds:
        own = dict(zip([TIP, *round_.accepted], round_.tokens, strict=True))
        for opinion in round_.opinions:
            if opinion.node in own:
                asked[opinion.exit] += 1
                agreed[opinion.exit] += opinion.token == own[opinion.node]
    return {exit_: (count, agreed[exit_]) for exit_, count in sorted(asked.items())}
