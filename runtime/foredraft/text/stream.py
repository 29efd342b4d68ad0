"""Streaming text with stop strings. Knows nothing of models or sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.errors import RequestError
from foredraft.text.detokenizer import Detokenizer
from foredraft.text.tokenizer import Tokenizer

MAX_STOPS = 16
MAX_STOP_LENGTH = 256
"""In characters. Both bound the work per token."""


@dataclass(frozen=True, slots=True)
class StreamUpdate:
    """``text`` to show now, how many pushed ids are ``kept``, and whether the answer has ``stopped``."""

    text: str
    kept: int
    stopped: bool


class TextStream:
    """Turns an answer's ids into text as they come.

    Joined, the updates and ``finish()`` are exactly ``tokenizer.decode(ids)``, or, once a stop string
    appears, what comes before it. Neither half a character nor the beginning of a stop string is ever shown.

    The text stops at the first id after which ``decode(ids so far)`` contains a stop string. That id is the
    last one kept and counted; the text ends before the stop string (the one that begins first, if that id
    completes several); all later ids are dropped. So text, ids and counts do not depend on how the ids were
    grouped into pushes.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._stops = check_stops(stop)
        self._detokenizer = Detokenizer(tokenizer)
        self._held = ""  # settled text that may turn out to be the beginning of a stop string
        self._closed = False

    def push(self, token_ids: Sequence[int]) -> StreamUpdate:
        """Take the next ids. After a stop, and after ``finish()``, they are dropped."""
        shown: list[str] = []
        for index, token_id in enumerate(() if self._closed else token_ids):
            shown.append(self._push_one(token_id))
            if self._closed:
                return StreamUpdate("".join(shown), index + 1, True)
        return StreamUpdate("".join(shown), 0 if self._closed else len(token_ids), self._closed)

    def finish(self) -> str:
        """No more ids come: the text that was held back, empty after a stop."""
        if self._closed:
            return ""
        self._closed = True
        return self._held + self._detokenizer.tail()

    def _push_one(self, token_id: int) -> str:
        settled = self._detokenizer.push(token_id)
        if not self._stops:
            return settled
        text = self._held + settled
        # The tail may still change, but a stop string in it ends the text here and now.
        whole = text + self._detokenizer.tail()
        starts = [start for stop in self._stops if (start := whole.find(stop)) >= 0]
        if starts:
            self._closed = True
            return whole[: min(starts)]
        safe = self._safe_length(text)
        self._held = text[safe:]
        return text[:safe]

    def _safe_length(self, text: str) -> int:
        """How much of ``text`` cannot be the beginning of a stop string that the text to come completes."""
        longest = max(map(len, self._stops)) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                return start
        return len(text)


def check_stops(stop: Sequence[str]) -> tuple[str, ...]:
    """The stop strings as a tuple; raises RequestError for what is no usable list of them."""
    if isinstance(stop, str) or not isinstance(stop, Sequence):
        raise RequestError(f"stop: got {type(stop).__name__}, expected a list of strings")
    if len(stop) > MAX_STOPS:
        raise RequestError(f"stop: got {len(stop)} strings, expected at most {MAX_STOPS}")
    for index, text in enumerate(stop):
        if not isinstance(text, str):
            raise RequestError(f"stop[{index}]: got {type(text).__name__}, expected a string")
        if not 0 < len(text) <= MAX_STOP_LENGTH:
            raise RequestError(f"stop[{index}]: got {len(text)} characters, expected 1 to {MAX_STOP_LENGTH}")
        if "\N{REPLACEMENT CHARACTER}" in text:
            raise RequestError(f"stop[{index}]: contains U+FFFD, which stands for bytes that are no text")
    return tuple(stop)
