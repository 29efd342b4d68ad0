"""What single tokens read like, for log probabilities and traces."""

from __future__ import annotations

import builtins

from foredraft.text.token_bytes import spelled_bytes
from foredraft.text.tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TokenTexts:
    """A token's text inside a text (at the beginning of one, some decoders strip its space)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before = tokenizer.encode("a", add_bos=False)
        self._skip = len(tokenizer.decode(self._before))

    def text(self, token: int) -> str:
        """As ``decode`` gives it within a text; a special token as the vocabulary spells it; a part of a character as
        OpenAI writes it: ``bytes:\\xf0\\x9f``.
        """
        text, data = self._read(token)
        if data is None or data == text.encode():
            return text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def bytes(self, token: int) -> list[int] | None:
        """The token's bytes in UTF-8; None for a part of a character whose bytes the vocabulary does not tell."""
        _, data = self._read(token)
        return None if data is None else list(data)

    def _read(self, token: int) -> tuple[str, builtins.bytes | None]:
        """The text, and the bytes it was made of."""
        spelling = self._tokenizer.token_text(token)
        if self._tokenizer.is_silent(token):
            return spelling, spelling.encode()
        text = self._tokenizer.decode([*self._before, token])[self._skip :]
        if _REPLACEMENT not in text or _REPLACEMENT in spelling:  # the character itself, as a token
            return text, text.encode()
        return text, spelled_bytes(spelling)
