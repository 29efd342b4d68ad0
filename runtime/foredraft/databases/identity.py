"""Which token ids a database is about."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FILE_NAME, Manifest
from foredraft.errors import DatabaseError


@dataclass(frozen=True, slots=True)
class Identity:
    """sha256 (hex) of tokenizer.json, and how many token ids there are that tokenizer and model know."""

    tokenizer: str
    vocab_size: int


def identity_of(manifest: Manifest) -> Identity:
    """That of a bundle. Its tokenizer may have added tokens beyond the model's, which no text holds for the model."""
    info = manifest.tokenizer
    return Identity(info.sha256, min(info.vocab_size, manifest.model.vocab_size))


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
    if (path / FILE_NAME).is_file():
        return tokenizer, identity_of(Bundle.open(path).manifest)
    return tokenizer, Identity(hashlib.sha256(data).hexdigest(), tokenizer.get_vocab_size(with_added_tokens=True))
