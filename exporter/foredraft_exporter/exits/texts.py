"""Text files as short pieces, some of them held out. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.errors import RequestError

PIECE = 2048
"""Characters after which a piece ends at the next line: some 500 tokens."""
HELD_OUT = 8
"""One piece in so many is held out."""
_LONGEST = 2 * PIECE


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A run of text; ``held_out``: only measured on, never fitted to."""

    text: str
    held_out: bool


def read_texts(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The texts of files and, recursively, of folders, in order of their names.

    Raises RequestError for a path that is missing or a file that is not UTF-8; inside folders, files that are not
    are passed over.
    """
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file())
            yield from ((p, text) for p in inside if (text := _decoded(p)) is not None)
            continue
        try:
            text = _decoded(path)
        except OSError as error:
            raise RequestError(f"{path}: cannot be read ({error.strerror})") from error
        if text is None:
            raise RequestError(f"{path}: not UTF-8 text")
        yield path, text


def read_pieces(paths: Sequence[Path], seed: int = 0) -> list[TextPiece]:
    """All pieces, shuffled, with every eighth held out as evenly as the files allow.

    Of a long text its end is held out, of short ones every eighth; so no held-out piece continues a fitted one but
    at one place per file. Raises RequestError if there is too little text to hold anything out.
    """
    fitted: list[TextPiece] = []
    held: list[TextPiece] = []
    for _, text in read_texts(paths):
        parts = list(_cut(text))
        short = len(parts) < HELD_OUT
        ends = len(parts) - len(parts) // HELD_OUT
        for i, part in enumerate(parts):
            out = len(held) * (HELD_OUT - 1) < len(fitted) if short else i >= ends
            (held if out else fitted).append(TextPiece(part, out))
    if not held or not fitted:
        raise RequestError(
            f"{', '.join(map(str, paths))}: too little text to fit on, expected {2 * PIECE} characters or more"
        )
    random = np.random.default_rng(seed)
    return list(_interleaved(_shuffled(fitted, random), _shuffled(held, random)))


def _shuffled(pieces: list[TextPiece], random: np.random.Generator) -> list[TextPiece]:
    return [pieces[i] for i in random.permutation(len(pieces))]


def _interleaved(fitted: list[TextPiece], held: list[TextPiece]) -> Iterator[TextPiece]:
    """A held-out piece first, then the right share of them wherever reading stops."""
    step = len(fitted) / len(held)
    for i, piece in enumerate(held):
        yield piece
        yield from fitted[round(i * step) : round((i + 1) * step)]


def _cut(text: str) -> Iterator[str]:
    held = ""
    for line in text.splitlines(keepends=True):
        for at in range(0, len(line), _LONGEST):
            held += line[at : at + _LONGEST]
            if len(held) >= PIECE:
                yield held
                held = ""
    if len(held) >= PIECE // 4:
        yield held


def _decoded(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
