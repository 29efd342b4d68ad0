"""Which token ids a database is about."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from foredraft.errors import DatabaseError


@dataclass(frozen=True, slots=True)
class Identity:
    """sha256 (hex) of tokenizer.json, and the number of token ids (added tokens included)."""

    tokenizer: str
    vocab_size: int


def open_tokenizer(path: Path) -> tuple[Tokenizer, Identity]:
    """The tokenizer of a bundle (a folder with tokenizer.json) or in a file. DatabaseError if it cannot be read."""
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        data = file.read_bytes()
        tokenizer = Tokenizer.from_buffer(data)
    except OSError as error:
        raise DatabaseError(f"{file}: cannot be read: {error.strerror}; name a bundle or a tokenizer.json") from error
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise DatabaseError(f"{file}: is not a tokenizer.json: {error}") from error
    return tokenizer, Identity(hashlib.sha256(data).hexdigest(), tokenizer.get_vocab_size(with_added_tokens=True))
