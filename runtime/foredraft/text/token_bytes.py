"""The bytes that a token's spelling stands for, where tokens may be parts of characters."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import re

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def spelled_bytes(spelling: str) -> bytes | None:
    """``<0xF0>``, or one character of GPT-2's alphabet for each byte; None if the spelling is neither."""
    if found := _BYTE.fullmatch(spelling):
        return bytes([int(found[1], 16)])
    if any(character not in _ALPHABET for character in spelling):
        return None
    return bytes(_ALPHABET[character] for character in spelling)


def open_bytes(data: bytes) -> int:
    """How many bytes at the end of ``data`` are the beginning of a character in UTF-8 whose rest is to come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    waiting = decoder.getstate()[0]
    return len(waiting) if waiting and _completes(waiting) else 0


def _completes(beginning: bytes) -> bool:
    """Whether there is a character that begins so: Python's decoder also waits for halves of surrogates."""
    for more, count in itertools.product((b"\x80", b"\xbf"), (1, 2, 3)):
        with contextlib.suppress(UnicodeDecodeError):
            return bool((beginning + more * count).decode())
    return False


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's visible character for each byte: itself where it is visible, else from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_ALPHABET = _byte_alphabet()
