"""How an answer came about, round by round: the extension ``"foredraft": {"trace": true}`` of streamed answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foredraft.server.jobs import Piece
from foredraft.server.token_texts import TokenTexts
from foredraft.text import Tokenizer
from foredraft.text.detokenizer import Detokenizer
from foredraft.tree import Tree


class Trace:
    """Describes the rounds of one answer. The texts of its tokens, joined, are the text of all their ids."""

    def __init__(self, tokenizer: Tokenizer, texts: TokenTexts, level_names: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._texts = texts
        self._level_names = tuple(level_names)

    def describe(self, piece: Piece) -> dict[str, Any]:
        """``tokens``: id, text and the level that drafted it (null: the model itself); ``draft``: the whole tree, with
        parents by index (-1: the text); counts; times in milliseconds; ``rest``: what the end of the answer leaves of
        a character that never became whole.

        A token that does not complete a character has an empty text; the one that completes it has all of it.
        """
        tokens = [(token, self._detokenizer.push(token)) for token in piece.tokens]
        tree = piece.round.tree if piece.round else Tree()
        accepted = piece.round.accepted if piece.round else []
        levels = [self._level_names[tree.levels[node]] for node in accepted]
        by = [*levels, *[None] * len(tokens)]
        return {
            "tokens": [
                {"id": token, "text": text, "level": level} for (token, text), level in zip(tokens, by, strict=False)
            ],
            "rest": self._detokenizer.tail() if piece.result else "",
            "draft": self._draft(tree, set(accepted)),
            "drafted": len(tree),
            "accepted": len(accepted),
            "draft_ms": round(1000 * piece.round.seconds_draft, 3) if piece.round else 0.0,
            "verify_ms": round(1000 * piece.round.seconds_verify, 3) if piece.round else 0.0,
        }

    def _draft(self, tree: Tree, accepted: set[int]) -> list[dict[str, Any]]:
        nodes = zip(tree.tokens, tree.parents, tree.levels, strict=True)
        return [
            {
                "text": self._texts.text(token),
                "parent": parent,
                "level": self._level_names[level],
                "accepted": node in accepted,
            }
            for node, (token, parent, level) in enumerate(nodes)
        ]
