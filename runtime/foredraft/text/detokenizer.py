"""Ids to text one at a time, without ever taking a character back. Knows nothing of stop strings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from foredraft.text.token_bytes import open_bytes, spelled_bytes
from foredraft.text.tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_WINDOW = 8
_CONTEXT = 4
"""A UTF-8 sequence that is still open has at most 3 bytes, so that at most 3 tokens can belong to it."""


class Detokenizer:
    """Splits the text of an answer into a settled part, which later ids cannot change, and a tail, which they can.

    The text goes on where that of ``before``, the prompt's ids, ends: together they are ``decode(all ids)``, less a
    character at the end whose last bytes are missing. Such a character is no text yet: it belongs to the answer that
    completes it. So a text does not depend on where it was cut into prompt and answer.

    The tail is a trailing U+FFFD or a run of byte-fallback tokens. Text is decoded in a window that begins with tokens
    whose text is settled, since decoders treat the first token of a text differently (they strip its space): so the
    cost of a token does not depend on how many came before.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = _last_ids(tokenizer, before)
        self._in_run = bool(self._window) and tokenizer.is_byte(self._window[-1])
        self._done = 0  # how many characters of the window's text are settled
        self._done = len(self._closed_text())
        self._settled = 0
        self._tail: str | None = ""  # None: to be found when it is asked for

    @property
    def length(self) -> int:
        """Characters of the answer so far: where the next token's first character is, unless it is one that this
        token goes on with.
        """
        return self._settled + len(self.tail())

    def push(self, token_id: int) -> str:
        """Take one id and return the text that it settles, possibly none."""
        if self._tokenizer.is_silent(token_id):
            return ""
        self._window.append(token_id)
        self._in_run = self._tokenizer.is_byte(token_id)
        self._tail = None
        if self._in_run:
            return ""
        text = self._tokenizer.decode(self._window)
        end = max(self._done, len(text) - text.endswith(_REPLACEMENT))
        settled = text[self._done : end]
        self._settled += len(settled)
        self._shorten(len(text) - end, end)
        return settled

    def tail(self) -> str:
        """The text after what is settled, if no more ids came."""
        if self._tail is None:
            self._tail = self._closed_text()[self._done :]
        return self._tail

    def _closed_text(self) -> str:
        """The window's text without a character at its end whose last bytes are missing."""
        if self._in_run:  # such bytes would turn all of the run into U+FFFD
            run = itertools.takewhile(self._tokenizer.is_byte, reversed(self._window))
            missing = self._open_bytes([*itertools.islice(run, _CONTEXT)][::-1])
            return self._tokenizer.decode(self._window[: len(self._window) - missing])
        text = self._tokenizer.decode(self._window)
        return text[:-1] if text.endswith(_REPLACEMENT) and self._open_bytes(self._window) else text

    def _open_bytes(self, ids: Sequence[int]) -> int:
        spellings = map(self._tokenizer.token_text, ids)
        return open_bytes(b"".join(spelled_bytes(text) or text.encode() for text in spellings))

    def _shorten(self, pending: int, end: int) -> None:
        """Drop what the text to come does not depend on; the last ``pending`` characters are not settled."""
        if not pending:
            self._tail = ""
        if len(self._window) <= (_LONGEST_WINDOW if pending else _CONTEXT):
            self._done = end
            return
        self._window = self._window[-_CONTEXT:]
        self._done = len(self._tokenizer.decode(self._window)) - pending


def _last_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The ids that the text to come depends on: a run of byte-fallback tokens at the end, and some before it."""
    window: list[int] = []
    in_run, others = True, 0
    for token_id in reversed(ids):
        if others == _LONGEST_WINDOW:
            break
        if tokenizer.is_silent(token_id):
            continue
        in_run = in_run and tokenizer.is_byte(token_id)
        others += not in_run
        window.append(token_id)
    return window[::-1]
