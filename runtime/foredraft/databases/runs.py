"""Sorted runs of counted n-grams, and their merge. What is counted in shards is added up here, in bounded memory.

A run of one order is two arrays: ``keys`` uint64, strictly ascending (context hash | next token, see hashing.py), and
``counts`` uint32. Adding runs up is a merge by ranges of the key: hashes are uniform, so equal ranges hold about
equally many keys, and a range fits in memory whatever the sum does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foredraft.databases.hashing import context_mask, ngram_keys

RANGE = 1 << 22
"""Keys merged at once, about; takes some 300 MB."""
MAX_COUNT = 0xFFFFFFFF
Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Counted n-grams of one order in memory."""

    keys: Keys
    counts: Counts

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run on disk: where its two arrays begin. It is read in pieces, never mapped as a whole, so that memory stays
    bounded in fact and by every way of counting it."""

    keys: tuple[Path, int]
    counts: tuple[Path, int]
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self, start: int, end: int) -> SortedRun:
        """Items ``start`` to ``end``."""
        (keys, keys_offset), (counts, counts_offset) = self.keys, self.counts
        return SortedRun(
            np.fromfile(keys, np.uint64, end - start, offset=keys_offset + 8 * start),
            np.fromfile(counts, np.uint32, end - start, offset=counts_offset + 4 * start),
        )

    def search(self, bound: np.uint64) -> int:
        """The number of keys below ``bound``."""
        if not self.length:
            return 0
        keys = np.memmap(self.keys[0], np.uint64, "r", self.keys[1], (self.length,))
        return int(np.searchsorted(keys, bound))


def count_chunk(tokens: npt.NDArray[np.uint32], ages: npt.NDArray[np.int64], order: int, vocab_size: int) -> SortedRun:
    """Count the n-grams of one order in a chunk of documents.

    ``tokens`` [n] are the documents end to end, ``ages`` [n] each token's position in its own document: n-grams that
    would begin in the document before are left out.
    """
    keys = ngram_keys(tokens, order, vocab_size)
    keys = keys[ages[order:] >= order]
    keys.sort()
    return _summed(keys, None)


def merge(runs: Sequence[StoredRun], vocab_size: int) -> Iterator[SortedRun]:
    """Add runs up: ascending pieces of the sum, no context split between two of them."""
    total = sum(map(len, runs))
    parts = max(1, -(-total // RANGE))
    mask = context_mask(vocab_size)
    lower = [0] * len(runs)
    for part in range(1, parts + 1):
        bound = np.uint64((part << 64) // parts & mask) if part < parts else None
        upper = [len(run) if bound is None else run.search(bound) for run in runs]
        pieces = [run.read(a, b) for run, a, b in zip(runs, lower, upper, strict=True) if b > a]
        lower = upper
        if len(pieces) == 1:
            yield pieces[0]
        elif pieces:
            keys = np.concatenate([piece.keys for piece in pieces])
            counts = np.concatenate([piece.counts for piece in pieces])
            del pieces
            order = np.argsort(keys)
            yield _summed(keys[order], counts[order])


def _summed(keys: Keys, counts: Counts | None) -> SortedRun:
    """Collapse equal neighbours of sorted ``keys``; each counts 1 where ``counts`` is None. Sums saturate."""
    if not len(keys):
        return SortedRun(keys, np.empty(0, np.uint32))
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    if counts is None:
        sums = np.diff(first, append=len(keys)).astype(np.uint64)
    else:
        sums = np.add.reduceat(counts.astype(np.uint64), first)
    return SortedRun(keys[first], np.minimum(sums, MAX_COUNT).astype(np.uint32))


class RunFile:
    """A run that grows on disk; as a context it ends with its files closed, whatever happened."""

    def __init__(self, path: Path) -> None:
        self._paths = (path.with_suffix(".keys"), path.with_suffix(".counts"))
        self._files = [p.open("wb") for p in self._paths]
        self._length = 0

    def append(self, run: SortedRun) -> None:
        """Append keys above all earlier ones."""
        for file, values in zip(self._files, (run.keys, run.counts), strict=True):
            file.write(np.ascontiguousarray(values).data)
        self._length += len(run)

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            with suppress(OSError):  # a full disk has been told of by the write that failed
                file.close()

    def finish(self) -> StoredRun:
        """Close the files."""
        for file in self._files:
            file.close()
        return StoredRun((self._paths[0], 0), (self._paths[1], 0), self._length)


def stored(run: SortedRun, path: Path) -> StoredRun:
    """Write a run to disk."""
    with RunFile(path) as file:
        file.append(run)
        return file.finish()


def combined(runs: Sequence[StoredRun], path: Path, vocab_size: int) -> StoredRun:
    """The sum of ``runs`` as one run; written to ``path`` unless there is only one."""
    if len(runs) == 1:
        return runs[0]
    with RunFile(path) as file:
        for piece in merge(runs, vocab_size):
            file.append(piece)
        return file.finish()
