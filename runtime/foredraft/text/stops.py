"""Stop strings, found in text as it comes. Knows nothing of how ids become text.

A stop string may hold special tokens, which are no part of an answer's text. For these the text is looked through with
a mark for each special token: a lone surrogate, which no text has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from foredraft.errors import RequestError

MAX_STOPS = 16
MAX_STOP_LENGTH = 256
"""In characters. Both bound the work per token."""

_FIRST_MARK, _OTHER_MARK = 0xD800, 0xDFFF
_MARKS = re.compile("[\ud800-\udfff]")
_LONG_RUN = re.compile(f"[\ud800-\udfff]{{2,}}([\ud800-\udfff]{{{MAX_STOP_LENGTH}}})")
"""More marks in a row than a stop string can have; only the last ones count."""


class Stops:
    """Finds ``stops`` in marked text, each as it stands and, if special tokens are spelled in it, with these as tokens.

    ``specials`` maps the spelling of each special token to its id.
    """

    def __init__(self, stops: Sequence[str], specials: Mapping[str, int]) -> None:
        self._plain = check_stops(stops)
        self._marks: dict[int, str] = {}
        self._marked = self._with_marks(specials) if specials and self._plain else ()

    def __bool__(self) -> bool:
        return bool(self._plain)

    def mark(self, token_id: int, special: bool) -> str:
        """What stands for this token in marked text; empty if no stop string asks for it."""
        if not special or not self._marked:
            return ""
        return self._marks.get(token_id, chr(_OTHER_MARK))

    def cut(self, text: str) -> str | None:
        """What comes before the stop string that begins first, without marks; None if there is no stop string."""
        seen = unmarked(text)
        starts = [start for stop in self._plain if (start := seen.find(stop)) >= 0]
        starts += [len(unmarked(text[:start])) for stop in self._marked if (start := text.find(stop)) >= 0]
        return seen[: min(starts)] if starts else None

    def release(self, text: str) -> tuple[str, str]:
        """Split marked text without a stop string: what can be shown, and what may be the beginning of one."""
        place = min(_safe_length(text, self._marked), _place(text, _safe_length(unmarked(text), self._plain)))
        return unmarked(text[:place]), _LONG_RUN.sub(chr(_OTHER_MARK) + r"\1", text[place:])

    def _with_marks(self, specials: Mapping[str, int]) -> tuple[str, ...]:
        longest_first = sorted(specials, key=len, reverse=True)
        spelled = re.compile("|".join(map(re.escape, longest_first)))

        def mark(found: re.Match[str]) -> str:
            return self._marks.setdefault(specials[found[0]], chr(_FIRST_MARK + len(self._marks)))

        return tuple(marked for stop in self._plain if (marked := spelled.sub(mark, stop)) != stop)


def unmarked(text: str) -> str:
    """The text itself."""
    return _MARKS.sub("", text)


def _place(text: str, length: int) -> int:
    """Where in marked text its first ``length`` characters without marks end."""
    for place, character in enumerate(text):
        if not length:
            return place
        length -= not _MARKS.match(character)
    return len(text)


def _safe_length(text: str, stops: Sequence[str]) -> int:
    """How much of ``text`` cannot be the beginning of a stop string that the text to come completes."""
    longest = max(map(len, stops), default=1) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        if any(stop.startswith(text[start:]) for stop in stops):
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
