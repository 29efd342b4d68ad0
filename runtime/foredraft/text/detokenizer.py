"""Ids to text one at a time, without ever taking a character back. Knows nothing of stop strings."""

from __future__ import annotations

from foredraft.text.tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_WINDOW = 8
_CONTEXT = 4
"""A UTF-8 sequence that is still open has at most 3 bytes, so that at most 3 tokens can belong to it."""


class Detokenizer:
    """Splits ``decode(ids so far)`` into a settled part, which later ids cannot change, and a tail, which
    they can.

    The tail is a trailing U+FFFD (a character whose last bytes are still to come) or a run of byte-fallback
    tokens. Text is decoded in a window that begins with a token whose text is settled, since decoders treat
    the first token of a text differently (they strip its space): so the cost of a token does not depend on
    how many came before.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._done = 0  # how many characters of the window's text are settled
        self._in_run = False

    def push(self, token_id: int) -> str:
        """Take one id and return the text that it settles, possibly none."""
        if self._tokenizer.is_silent(token_id):
            return ""
        self._window.append(token_id)
        self._in_run = self._tokenizer.is_byte(token_id)
        if self._in_run:
            return ""
        text = self._tokenizer.decode(self._window)
        end = len(text) - text.endswith(_REPLACEMENT)
        settled = text[self._done : end]
        self._shorten(len(text) - end, end)
        return settled

    def tail(self) -> str:
        """The text after what is settled, as it would read if no more ids came."""
        return self._tokenizer.decode(self._window)[self._done :] if self._window else ""

    def _shorten(self, pending: int, end: int) -> None:
        """Drop what the text to come does not depend on; the last ``pending`` characters are not settled."""
        if pending and len(self._window) <= _LONGEST_WINDOW:
            self._done = end
            return
        self._window = self._window[-_CONTEXT:] if pending else self._window[-1:]
        self._done = len(self._tokenizer.decode(self._window)) - pending
