"""Reads what a database is counted from, in pieces: text, JSONL and token files become documents of token ids.

* ``*.jsonl``: one object a line; its ``text`` (string), else its ``prompt`` (string), else its ``turns`` (strings),
  each string a document.
* ``*.npy``: one-dimensional integer array of token ids; ``*.bin`` and ``*.u32``: raw little-endian uint32. In both,
  the value 0xFFFFFFFF (or -1) ends a document.
* anything else: UTF-8 text (bad bytes are replaced). A file is a document; a long one is read in pieces that end at
  a line's end, and no n-gram spans two pieces. Folders are walked, names sorted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from foredraft.errors import DatabaseError

Document = npt.NDArray[np.uint32]
END_OF_DOCUMENT = 0xFFFFFFFF
PIECE = 1 << 16
"""Characters of a text piece, about; also what one thread tokenizes at a time."""
BATCH = 1 << 21
"""Characters given to the tokenizer at once: bounds its memory to some hundred megabytes."""
TOKEN_PIECE = 1 << 22
"""Tokens of a token file that are read at once."""
_TOKEN_SUFFIXES = (".npy", ".bin", ".u32")


def expand(paths: Iterable[Path | str]) -> list[Path]:
    """The files behind ``paths``, folders walked in the order of their names. DatabaseError if one is missing."""
    files: list[Path] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            files.extend(sorted(p for p in path.rglob("*") if p.is_file()))
        elif path.is_file():
            files.append(path)
        else:
            raise DatabaseError(f"{path}: no such file or folder; check the path")
    return files


def read_documents(paths: Iterable[Path], tokenizer: Tokenizer, vocab_size: int) -> Iterator[Document]:
    """The documents of ``paths`` as token ids, uint32 [tokens]; DatabaseError names the file that is malformed."""
    waiting: list[str] = []
    size = 0
    for path in paths:
        if path.suffix in _TOKEN_SUFFIXES:
            yield from _token_documents(path, vocab_size)
            continue
        for text in _texts(path):
            waiting.append(text)
            size += len(text)
            if size >= BATCH:
                yield from _tokenized(waiting, tokenizer, vocab_size)
                waiting, size = [], 0
    yield from _tokenized(waiting, tokenizer, vocab_size)


def _tokenized(texts: list[str], tokenizer: Tokenizer, vocab_size: int) -> Iterator[Document]:
    """A document of each text; a token that the model has not ends one."""
    for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False) if texts else ():
        document = np.array(encoding.ids, dtype=np.uint32)
        unknown = np.flatnonzero(document >= vocab_size)
        yield document[: unknown[0]] if len(unknown) else document
        for start, stop in zip(unknown, [*unknown[1:], len(document)], strict=True) if len(unknown) else ():
            yield document[start + 1 : stop]


def _texts(path: Path) -> Iterator[str]:
    try:
        if path.suffix == ".jsonl":
            yield from _jsonl_texts(path)
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            while piece := file.read(PIECE):
                yield piece + file.readline(PIECE)
    except OSError as error:
        raise DatabaseError(f"{path}: cannot be read: {error.strerror}") from error


def read_prompts(path: Path) -> Iterator[str]:
    """The first text of each line of a JSONL file: its ``text``, ``prompt`` or first turn."""
    try:
        for texts in _jsonl_records(path):
            yield from texts[:1]
    except OSError as error:
        raise DatabaseError(f"{path}: cannot be read: {error.strerror}") from error


def _jsonl_texts(path: Path) -> Iterator[str]:
    for texts in _jsonl_records(path):
        for text in texts:
            yield from (text[i : i + PIECE] for i in range(0, len(text), PIECE))


def _jsonl_records(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                texts = _fields(json.loads(line))
            except ValueError as error:
                raise DatabaseError(f"{path}:{number}: not a JSON object: {error}") from error
            if texts is None:
                raise DatabaseError(f"{path}:{number}: expected 'text', 'prompt' or 'turns' (strings)")
            yield texts


def _fields(record: Any) -> list[str] | None:
    if not isinstance(record, dict):
        raise ValueError(f"got {type(record).__name__}")
    for key in ("text", "prompt"):
        if isinstance(record.get(key), str):
            return [record[key]]
    turns = record.get("turns")
    if isinstance(turns, list) and all(isinstance(turn, str) for turn in turns):
        return turns
    return None


def _token_documents(path: Path, vocab_size: int) -> Iterator[Document]:
    try:
        if path.suffix == ".npy":
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            values = np.memmap(path, dtype="<u4", mode="r") if path.stat().st_size else np.empty(0, "<u4")
    except (OSError, ValueError) as error:
        raise DatabaseError(f"{path}: is not a token file: {error}") from error
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DatabaseError(f"{path}: {values.dtype} with shape {values.shape}, expected one dimension of integers")
    for start in range(0, len(values), TOKEN_PIECE):
        piece = np.asarray(values[start : start + TOKEN_PIECE]).astype(np.int64)
        piece[piece == -1] = END_OF_DOCUMENT
        bad = np.flatnonzero(((piece < 0) | (piece >= vocab_size)) & (piece != END_OF_DOCUMENT))
        if len(bad):
            raise DatabaseError(
                f"{path}: token {piece[bad[0]]} at position {start + bad[0]}, the vocabulary has {vocab_size}: "
                "made with another tokenizer"
            )
        ends = np.flatnonzero(piece == END_OF_DOCUMENT)
        for begin, end in zip([0, *(ends + 1)], [*ends, len(piece)], strict=True):
            if end > begin:
                yield piece[begin:end].astype(np.uint32)
