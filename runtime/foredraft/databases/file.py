"""The container of token databases: one file of named, aligned, hashed arrays behind a checked header.

Layout, little-endian:

    0   magic      8 bytes   89 46 44 42 0D 0A 1A 0A ("FDB", mangled by any text-mode copy)
    8   major      uint16    a reader refuses a major version that it does not know
    10  minor      uint16    readers ignore it
    12  order      uint32    0x01020304
    16  length     uint64    bytes of the JSON that follows
    24  file size  uint64    of the whole file, so that a truncated one is refused
    32  sha256     32 bytes  of bytes 0..31 and of the JSON
    64  JSON       kind, tokenizer, vocab_size, sections [{name, offset, length, dtype, sha256}], and free facts
    ..  sections   each at a multiple of 64

Opening reads and checks the header and nothing else; ``verify`` hashes the sections. It knows nothing of n-grams.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from foredraft.errors import DatabaseError

MAGIC = b"\x89FDB\r\n\x1a\n"
MAJOR, MINOR = 1, 0
BYTE_ORDER = 0x01020304
ALIGNMENT = 64
MAX_HEADER = 1 << 20
PREFIX = struct.Struct("<8sHHIQQ")
"""Bytes 0 to 31."""
_JSON_START = PREFIX.size + 32
DTYPES = {"uint32": 4, "uint64": 8}
"""Accepted section types, and the bytes of one item."""


@dataclass(frozen=True, slots=True)
class Section:
    """Where an array lies: ``length`` bytes from ``offset``, items of type ``dtype``."""

    name: str
    offset: int
    length: int
    dtype: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says; ``facts`` are the free entries (orders, counts, sources)."""

    kind: str
    tokenizer: str
    vocab_size: int
    sections: dict[str, Section]
    facts: dict[str, Any]


class Container:
    """A container file, mapped read-only. A file that is replaced by renaming stays valid for who has it open."""

    def __init__(self, path: Path | str) -> None:
        """Raise DatabaseError if the file is missing, truncated, changed in its header, or of another version."""
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self.header = _read_header(file, size, self.path)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise DatabaseError(f"{self.path}: cannot be opened: {error.strerror}; check the path") from error
        self._view = memoryview(self._map)

    def view(self, name: str) -> memoryview[int]:
        """The section as a typed memoryview; indexing it gives Python integers. DatabaseError if it is missing."""
        section = self._section(name)
        raw = self._view[section.offset : section.offset + section.length]
        return raw.cast("I") if section.dtype == "uint32" else raw.cast("Q")

    def array(self, name: str) -> npt.NDArray[Any]:
        """The section as a read-only one-dimensional array over the map."""
        section = self._section(name)
        items = section.length // DTYPES[section.dtype]
        return np.frombuffer(self._map, dtype=section.dtype, count=items, offset=section.offset)

    def damaged(self) -> list[str]:
        """Names of the sections whose bytes do not have the hash that the header states. Reads the whole file."""
        return [
            s.name
            for s in self.header.sections.values()
            if hashlib.sha256(self._view[s.offset : s.offset + s.length]).hexdigest() != s.sha256
        ]

    def close(self) -> None:
        """Unmap, unless views are still in use: then the map goes with the last of them."""
        try:
            self._view.release()
            self._map.close()
        except BufferError:
            return

    def _section(self, name: str) -> Section:
        section = self.header.sections.get(name)
        if section is None:
            have = ", ".join(self.header.sections) or "none"
            raise DatabaseError(f"{self.path}: has no section '{name}' (it has: {have}); build it again")
        return section


def _read_header(file: BinaryIO, size: int, path: Path) -> Header:
    head = file.read(_JSON_START)
    if len(head) < _JSON_START or head[:8] != MAGIC:
        raise DatabaseError(f"{path}: is not a token database; build one with `foredraft db build`")
    _, major, _, order, length, stated_size = PREFIX.unpack(head[: PREFIX.size])
    if order != BYTE_ORDER or sys.byteorder != "little":
        raise DatabaseError(f"{path}: byte order {order:#010x}, this reader needs {BYTE_ORDER:#010x} (little-endian)")
    if major != MAJOR:
        raise DatabaseError(f"{path}: format version {major}, this reader knows {MAJOR}; build the database again")
    if stated_size != size:
        raise DatabaseError(f"{path}: {size} bytes, expected {stated_size}: truncated or overwritten; build it again")
    body = file.read(min(length, MAX_HEADER))
    digest = hashlib.sha256(head[: PREFIX.size] + body).digest()
    if len(body) != length or digest != head[PREFIX.size :]:
        raise DatabaseError(f"{path}: the header does not have its checksum: damaged; build the database again")
    try:
        return _parse(json.loads(body), size)
    except (KeyError, TypeError, ValueError) as error:
        raise DatabaseError(f"{path}: the header is malformed ({error}); build the database again") from error


def _parse(data: dict[str, Any], size: int) -> Header:
    sections: dict[str, Section] = {}
    end = 0
    for entry in data.pop("sections"):
        section = Section(**entry)
        item = DTYPES[section.dtype]
        aligned = section.offset % ALIGNMENT == 0 and section.length % item == 0
        if section.offset < end or section.length < 0 or section.offset + section.length > size or not aligned:
            raise ValueError(f"section {section.name} at {section.offset}, {section.length} bytes")
        end = section.offset + section.length
        sections[section.name] = section
    kind, tokenizer, vocab_size = str(data.pop("kind")), str(data.pop("tokenizer")), int(data.pop("vocab_size"))
    if not 0 < vocab_size < 1 << 31:
        raise ValueError(f"vocabulary of {vocab_size}")
    return Header(kind, tokenizer, vocab_size, sections, data)


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place, flushed, when the block ends without an error.

    A killed process leaves ``.NAME.PID.partial``, which opens as nothing and is removed by the next writer of the
    same name once that process is gone.
    """
    target = Path(path)
    for stale in target.parent.glob(f".{target.name}.*.partial"):
        owner = stale.name.split(".")[-2]
        if not (owner.isdigit() and _alive(int(owner))):
            stale.unlink(missing_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where folders can be synchronised."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
