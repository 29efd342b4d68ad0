"""What the rounds of an answer ran, and what exits said in them, recorded for later. Knows nothing of hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from foredraft.loop.chain import Forward
from foredraft.loop.rounds import Round
from foredraft.loop.tree import TIP
from foredraft.result import Chunk
from foredraft.session import Session


@dataclass(frozen=True, slots=True)
class RoundWork:
    """One round after the prompt's own: its ``forwards`` (segment or head, nodes), the ``tokens``
    that it wrote, how many ``opinions`` of exits were taken, with how many ``runners_up`` in all, and the seconds that
    its drafter took here to draft and to learn."""

    forwards: tuple[Forward, ...]
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
    chunks, rounds = [], []
    for chunk in session.stream(**request):
        chunks.append(chunk)
        round_ = chunk.round
        if round_ is not None and not round_.prompt:
            seconds = round_.seconds_draft + round_.seconds_learn
            counts = len(round_.tokens), len(round_.opinions)
            rounds.append(RoundWork(round_.forwards, *counts, seconds, round_.runners_up))
    return Written(chunks, tuple(rounds))


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
