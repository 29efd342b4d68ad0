"""Writes the container of file.py: sections grow in chunks, the header comes last: a killed writer leaves nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from foredraft.databases.file import ALIGNMENT, BYTE_ORDER, MAGIC, MAJOR, MAX_HEADER, MINOR, PREFIX, replacing
from foredraft.errors import DatabaseError

HEADER_ROOM = 16 * 1024
"""Bytes kept free for the header in front of the first section."""


class SectionWriter:
    """One section under construction, spooled to its own file until the container is put together."""

    def __init__(self, name: str, dtype: str, path: Path) -> None:
        self.name, self.dtype, self.path = name, dtype, path
        self.length = 0
        self._hash = hashlib.sha256()
        self._file: IO[bytes] = path.open("wb")

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append items; they are converted to the section's dtype."""
        if not values.size:
            return
        data = np.ascontiguousarray(values, dtype=np.dtype(self.dtype).newbyteorder("<")).data.cast("B")
        self._hash.update(data)
        self._file.write(data)
        self.length += len(data)

    def close(self) -> str:
        """Finish the spool file and return the section's sha256."""
        self._file.close()
        return self._hash.hexdigest()

    def abandon(self) -> None:
        """Close the spool file, whether or not what is left fits on the disk."""
        with suppress(OSError):
            self._file.close()


class ContainerWriter:
    """Collects sections and facts; ``finish`` writes the file. Made by ``writing``."""

    def __init__(self, path: Path, spool: Path) -> None:
        self._path, self._spool = path, spool
        self._sections: list[SectionWriter] = []

    def section(self, name: str, dtype: str) -> SectionWriter:
        """Begin a section."""
        writer = SectionWriter(name, dtype, self._spool / f"section-{len(self._sections)}")
        self._sections.append(writer)
        return writer

    def finish(self, kind: str, tokenizer: str, vocab_size: int, facts: dict[str, Any]) -> None:
        """Put header and sections together. Raise DatabaseError if the header does not fit."""
        table, offset = [], HEADER_ROOM
        for section in self._sections:
            table.append(
                {
                    "name": section.name,
                    "offset": offset,
                    "length": section.length,
                    "dtype": section.dtype,
                    "sha256": section.close(),
                }
            )
            offset = _aligned(offset + section.length)
        body = json.dumps(
            {"kind": kind, "tokenizer": tokenizer, "vocab_size": vocab_size, "sections": table, **facts}
        ).encode()
        if len(body) > min(MAX_HEADER, HEADER_ROOM - 64):
            raise DatabaseError(f"{self._path}: header of {len(body)} bytes, at most {HEADER_ROOM - 64} fit")
        prefix = PREFIX.pack(MAGIC, MAJOR, MINOR, BYTE_ORDER, len(body), offset)
        with self._path.open("wb") as file:
            file.write(bytes(HEADER_ROOM))
            for section in self._sections:
                _copy(section.path, file)
                file.write(bytes(_aligned(section.length) - section.length))
                section.path.unlink()
            file.seek(0)
            file.write(prefix + hashlib.sha256(prefix + body).digest() + body)

    def abandon(self) -> None:
        """Close what is still open."""
        for section in self._sections:
            section.abandon()


@contextmanager
def writing(path: Path | str, spool: Path) -> Iterator[ContainerWriter]:
    """Write a container to ``path`` atomically; section data waits in the folder ``spool``."""
    with replacing(path) as temporary:
        writer = ContainerWriter(temporary, spool)
        try:
            yield writer
        finally:
            writer.abandon()


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _copy(source: Path, target: IO[bytes]) -> None:
    with source.open("rb") as file:
        while chunk := file.read(1 << 22):
            target.write(chunk)
