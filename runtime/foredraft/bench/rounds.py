"""What the rounds of an answer ran, and what exits said in them, recorded for later. Knows nothing of hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from foredraft.result import Chunk
from foredraft.rounds import Round
from foredraft.session import Session
from foredraft.tree import TIP


@dataclass(frozen=True, slots=True)
class RoundWork:
    """One round after the prompt's own: its forwards (segment or head as in ``Chain.log``, nodes), the ``tokens`` that
    it wrote, and the seconds that its drafter took here."""

    forwards: tuple[tuple[int, int], ...]
    tokens: int
    seconds_draft: float


@dataclass(frozen=True, slots=True)
class Written:
    """One answer as it was written: the stream's chunks, and the work of its rounds."""

    chunks: list[Chunk]
    rounds: tuple[RoundWork, ...]


def write(session: Session, request: Mapping[str, Any]) -> Written:
    """Write an answer and record its rounds; ``request`` are arguments of ``Session.stream``."""
    log = session.chain.log = []
    chunks, rounds = [], []
    for chunk in session.stream(**request):
        chunks.append(chunk)
        if chunk.round is not None:
            rounds.append(RoundWork(tuple(log), len(chunk.round.tokens), chunk.round.seconds_draft))
            log.clear()
    session.chain.log = None
    return Written(chunks, tuple(rounds[1:]))


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
