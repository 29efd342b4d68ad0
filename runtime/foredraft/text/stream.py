"""Streaming text with stop strings. Knows nothing of models or sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.text.detokenizer import Detokenizer
from foredraft.text.stops import Stops, unmarked
from foredraft.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StreamUpdate:
    """``text`` to show now, how many pushed ids are ``kept``, and whether the answer has ``stopped``.

    ``offsets`` are the places of the kept ids' first characters in the answer's text. An id that goes on with a
    character has that character's place; one without text, the place where the text goes on. What a stop string cuts
    off counts as if it stood there, so that a place does not depend on what comes later.
    """

    text: str
    kept: int
    stopped: bool
    offsets: tuple[int, ...]


class TextStream:
    """Turns an answer's ids into text as they come; ``before`` are the prompt's ids.

    Joined, the updates and ``finish()`` are what ``decode(prompt and answer)`` has after the prompt's text, or, once a
    stop string appears, what of it comes before that. Neither half a character nor the beginning of a stop string is
    ever shown.

    The text stops at the first id after which the text so far contains a stop string; special tokens are no part of
    the text, but a stop string that spells some stops at these tokens. That id is the last one kept and counted; the
    text ends before the stop string (the one that begins first, if that id completes several); all later ids are
    dropped. So text, ids and counts do not depend on how the ids were grouped into pushes.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], before: Sequence[int]) -> None:
        self._specials = tokenizer.special_tokens
        self._special_ids = frozenset(self._specials.values())
        self._stops = Stops(stop, self._specials)
        self._detokenizer = Detokenizer(tokenizer, before)
        self._held = ""  # settled text, with marks, that may turn out to be the beginning of a stop string
        self._marks: list[tuple[int, str]] = []  # marks within the tail, and how much of it comes before each
        self._closed = False

    def push(self, token_ids: Sequence[int]) -> StreamUpdate:
        """Take the next ids. After a stop, and after ``finish()``, they are dropped."""
        shown: list[str] = []
        offsets: list[int] = []
        for token_id in token_ids:
            if self._closed:
                break
            offsets.append(self._detokenizer.length)
            shown.append(self._push_one(token_id))
        return StreamUpdate("".join(shown), len(offsets), self._closed, tuple(offsets))

    def finish(self) -> str:
        """No more ids come: the text that was held back, empty after a stop."""
        if self._closed:
            return ""
        self._closed = True
        return unmarked(self._held) + self._detokenizer.tail()

    def _push_one(self, token_id: int) -> str:
        settled = self._detokenizer.push(token_id)
        if not self._stops:
            return settled
        tail = self._detokenizer.tail()
        if mark := self._stops.mark(token_id, token_id in self._special_ids):
            self._marks.append((len(tail), mark))
        text = self._held + self._with_marks(settled, last=not tail)
        # The tail may still change, but a stop string in it ends the text here and now.
        if (cut := self._stops.cut(text + _insert(tail, self._marks))) is not None:
            self._closed = True
            return cut
        shown, self._held = self._stops.release(text)
        return shown

    def _with_marks(self, settled: str, last: bool) -> str:
        """What was settled with the marks that belong into it; the others stay, unless it is ``last``: all there is."""
        if not self._marks or not (settled or last):
            return settled
        inside = [(at, mark) for at, mark in self._marks if last or at < len(settled)]
        self._marks = [(at - len(settled), mark) for at, mark in self._marks if not last and at >= len(settled)]
        return _insert(settled, inside)


def _insert(text: str, marks: Sequence[tuple[int, str]]) -> str:
    for at, mark in reversed(marks):
        text = text[:at] + mark + text[at:]
    return text
