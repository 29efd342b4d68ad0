"""The learn log: accepted output, appended record by record while serving, folded into a model database later.

    file    magic "FDLOG\\r\\n\\x1a", vocab_size uint32, sha256 of tokenizer.json (32 bytes)
    record  length uint32 (tokens), crc32 uint32 (of length and tokens), tokens uint32 [length]

A record that is torn or damaged ends the log: it and what follows is ignored, never misread. Little-endian.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from foredraft.databases.database import check_tokenizer
from foredraft.databases.identity import Identity
from foredraft.databases.sources import Document
from foredraft.errors import DatabaseError

MAGIC = b"FDLOG\r\n\x1a"
_HEAD = struct.Struct("<8sI32s")
_RECORD = struct.Struct("<II")
MAX_RECORD = 1 << 20
"""Tokens of a record; longer outputs are split."""


class LearnLog:
    """Appends accepted outputs. Several processes may append to one log."""

    def __init__(self, path: Path | str, identity: Identity) -> None:
        """Check that an existing log is of this tokenizer (DatabaseError if not), and cut a torn record off its end."""
        self.path, self._identity = Path(path), identity
        if self.path.exists() and self.path.stat().st_size:
            with _locked(self.path) as descriptor:
                whole = sum(_RECORD.size + record.nbytes for record in read_log(self.path, identity))
                os.ftruncate(descriptor, _HEAD.size + whole)

    def append(self, tokens: Sequence[int]) -> None:
        """Append one output. DatabaseError if the log cannot be written."""
        records = b"".join(_record(tokens[i : i + MAX_RECORD]) for i in range(0, len(tokens), MAX_RECORD))
        try:
            with _locked(self.path) as descriptor:
                if os.fstat(descriptor).st_size == 0:
                    records = _head(self._identity) + records
                _write_whole(descriptor, records)
        except OSError as error:
            raise DatabaseError(
                f"{self.path}: cannot append to the learn log: {error.strerror}; make it writable, make room on its "
                "disk, or choose another file"
            ) from error


def _write_whole(descriptor: int, data: bytes) -> None:
    """Append all of it or nothing: a full disk takes a part, which would hide every later record."""
    before = os.fstat(descriptor).st_size
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        os.ftruncate(descriptor, before)
        raise


def read_log(path: Path, identity: Identity) -> Iterator[Document]:
    """The whole records of a log, uint32 [tokens] each, up to the first that is torn, damaged or out of vocabulary."""
    data = path.read_bytes()
    if not data:
        return
    _check_head(data, path, identity)
    place = _HEAD.size
    while place + _RECORD.size <= len(data):
        length, checksum = _RECORD.unpack_from(data, place)
        body = data[place + _RECORD.size : place + _RECORD.size + 4 * length]
        if length > MAX_RECORD or len(body) != 4 * length or checksum != _checksum(length, body):
            return
        tokens = np.frombuffer(body, "<u4").astype(np.uint32)
        if length and int(tokens.max()) >= identity.vocab_size:
            return
        yield tokens
        place += _RECORD.size + len(body)


@contextmanager
def folding(paths: Sequence[Path], identity: Identity) -> Iterator[Iterator[Document]]:
    """The documents of logs that are being folded in; the logs are removed when the block ends without an error.

    Each log is first renamed, so that what is appended meanwhile begins a new one. What an interrupted fold left is
    folded again.
    """
    taken: list[Path] = []
    for path in paths:
        aside = path.with_name(path.name + ".folding")
        if not path.exists() and not aside.exists():
            raise DatabaseError(f"{path}: no such learn log; check the path")
        if path.exists() and not aside.exists():
            with _locked(path):
                path.rename(aside)
            taken.append(aside)
        else:
            taken.extend([aside, path] if path.exists() else [aside])
    yield (document for log in taken for document in read_log(log, identity))
    for log in taken:
        log.unlink()


def _record(tokens: Sequence[int]) -> bytes:
    body = np.asarray(tokens, dtype="<u4").tobytes()
    return _RECORD.pack(len(tokens), _checksum(len(tokens), body)) + body


def _checksum(length: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<I", length)))


def _head(identity: Identity) -> bytes:
    return _HEAD.pack(MAGIC, identity.vocab_size, bytes.fromhex(identity.tokenizer))


def _check_head(data: bytes, path: Path, identity: Identity) -> None:
    if len(data) < _HEAD.size or data[:8] != MAGIC:
        raise DatabaseError(f"{path}: is not a learn log; name another file")
    _, vocab_size, digest = _HEAD.unpack_from(data)
    check_tokenizer(path, digest.hex(), identity.tokenizer)
    if vocab_size != identity.vocab_size:
        raise DatabaseError(f"{path}: vocabulary of {vocab_size}, expected {identity.vocab_size}")


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open for appending, alone; if the file was renamed while waiting, open the new one."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                current = path.stat().st_ino == os.fstat(descriptor).st_ino
            except FileNotFoundError:
                current = False
            if current:
                yield descriptor
                return
        finally:
            os.close(descriptor)
