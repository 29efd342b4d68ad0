"""What single tokens read like, for log probabilities and traces."""

from __future__ import annotations

import builtins
import re

from foredraft.text.tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


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
        if self._tokenizer.is_silent(token):
            return self._tokenizer.token_text(token)
        text = self._tokenizer.decode([*self._before, token])[self._skip :]
        if _REPLACEMENT not in text or (data := self._broken_bytes(token)) is None:
            return text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def bytes(self, token: int) -> list[int] | None:
        """The token's bytes in UTF-8; None for a part of a character whose bytes the vocabulary does not tell."""
        if self._tokenizer.is_silent(token):
            return list(self._tokenizer.token_text(token).encode())
        text = self._tokenizer.decode([*self._before, token])[self._skip :]
        data = self._broken_bytes(token) if _REPLACEMENT in text else text.encode()
        return None if data is None else list(data)

    def _broken_bytes(self, token: int) -> builtins.bytes | None:
        """From the spelling: ``<0xF0>``, or one character of GPT-2's alphabet for each byte."""
        spelling = self._tokenizer.token_text(token)
        if found := _BYTE.fullmatch(spelling):
            return builtins.bytes([int(found[1], 16)])
        if any(character not in _ALPHABET for character in spelling):
            return None
        return builtins.bytes(_ALPHABET[character] for character in spelling)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's visible character for each byte: itself where it is visible, else from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_ALPHABET = _byte_alphabet()
