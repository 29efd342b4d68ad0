"""What each round drafted and wrote, with its texts. Knows nothing of how it is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.loop.rounds import Round
from foredraft.loop.tree import TIP
from foredraft.result import Chunk
from foredraft.text import Tokenizer
from foredraft.text.token_texts import TokenTexts


@dataclass(frozen=True, slots=True)
class TracedPiece:
    """Text that became visible, and the level that drafted its token (None: the model's own).

    ``place`` is the token's place among its round's; a special token has no text, and one that does not complete a
    character leaves it to the one that does.
    """

    text: str
    level: str | None
    place: int


@dataclass(frozen=True, slots=True)
class TracedNode:
    """One drafted token; ``parent`` is an index into the round's nodes, or ``TIP``."""

    id: int
    text: str
    parent: int
    level: str
    probability: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class RoundTrace:
    """One round. ``pieces`` are what it made visible: with stop strings, text may become visible later than written.

    ``number`` counts from 0, the prompt's own forward; ``tokens``, their ``texts`` (each as it reads inside a text) and
    ``levels`` are those kept in the answer.
    """

    number: int
    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    levels: tuple[str | None, ...]
    pieces: tuple[TracedPiece, ...]
    nodes: tuple[TracedNode, ...]
    seconds_draft: float = 0.0
    seconds_verify: float = 0.0

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def path(self) -> list[int]:
        """``TIP``, then the accepted nodes: token i of the round was written after entry i."""
        return [TIP, *(index for index, node in enumerate(self.nodes) if node.accepted)]

    def rejected(self, place: int) -> list[list[TracedNode]]:
        """What was drafted instead of the round's token ``place``: each branch, followed down its first children."""
        path = self.path()
        if place >= len(path):
            return []
        wrong = [i for i, node in enumerate(self.nodes) if node.parent == path[place] and not node.accepted]
        return [[self.nodes[index] for index in self._down(index)] for index in wrong]

    def _down(self, index: int) -> list[int]:
        below = [index]
        for later in range(index + 1, len(self.nodes)):
            if self.nodes[later].parent == below[-1]:
                below.append(later)
        return below

    def to_json(self) -> dict[str, Any]:
        """The round as plain JSON values; ``text``, and the texts of ``pieces``, joined over all rounds are the
        answer's.
        """
        return {
            "round": self.number,
            "text": self.text,
            "pieces": [{"text": piece.text, "level": piece.level} for piece in self.pieces],
            "tokens": [
                {"id": token, "text": text, "level": level}
                for token, text, level in zip(self.tokens, self.texts, self.levels, strict=True)
            ],
            "drafted": len(self.nodes),
            "accepted": sum(node.accepted for node in self.nodes),
            "draft": [
                {
                    "id": node.id,
                    "text": node.text,
                    "parent": node.parent,
                    "level": node.level,
                    "probability": round(node.probability, 4),
                    "accepted": node.accepted,
                }
                for node in self.nodes
            ],
            "draft_ms": round(1000 * self.seconds_draft, 3),
            "verify_ms": round(1000 * self.seconds_verify, 3),
        }


class Tracer:
    """Turns the chunks of one streamed answer into traces, one each."""

    def __init__(self, tokenizer: Tokenizer, level_names: Sequence[str]) -> None:
        self._level_names = level_names
        self._length = 0  # of the text that was shown
        self._starts: deque[tuple[int, str | None, int]] = deque()  # offset, level and place of the last tokens
        self._number = -1
        self._texts = TokenTexts(tokenizer)

    def describe(self, chunk: Chunk) -> RoundTrace:
        """The chunk's round; a last chunk without one has only the text that was still held back."""
        round_ = chunk.round
        self._number += round_ is not None
        nodes = self._nodes(round_) if round_ else []
        drafted = [node.level for node in nodes if node.accepted]
        levels: list[str | None] = [*drafted, *[None] * len(chunk.tokens)][: len(chunk.tokens)]
        return RoundTrace(
            number=self._number,
            tokens=chunk.tokens,
            texts=tuple(self._texts.text(token) for token in chunk.tokens),
            levels=tuple(levels),
            pieces=tuple(self._shown(chunk, levels)),
            nodes=tuple(nodes),
            seconds_draft=round_.seconds_draft if round_ else 0.0,
            seconds_verify=round_.seconds_verify if round_ else 0.0,
        )

    def _nodes(self, round_: Round) -> list[TracedNode]:
        tree, accepted = round_.tree, set(round_.accepted)
        columns = zip(tree.tokens, tree.parents, tree.levels, tree.probabilities, strict=True)
        return [
            TracedNode(token, self._texts.text(token), parent, self._level_names[level], probability, index in accepted)
            for index, (token, parent, level, probability) in enumerate(columns)
        ]

    def _shown(self, chunk: Chunk, levels: Sequence[str | None]) -> list[TracedPiece]:
        """The chunk's text, cut into what each token gave to it: a token's text ends where the next one's begins."""
        self._starts.extend(zip(chunk.offsets, levels, range(len(levels)), strict=True))
        begin, end = self._length, self._length + len(chunk.text)
        shown: list[TracedPiece] = []
        while self._starts:
            _, level, place = self._starts[0]
            last = len(self._starts) == 1
            stop = end if last else min(end, max(self._length, self._starts[1][0]))
            if text := chunk.text[self._length - begin : stop - begin]:
                shown.append(TracedPiece(text, level, place))
            self._length = stop
            if last or self._starts[1][0] > end:
                break
            self._starts.popleft()
        return shown
