"""From a run of counted n-grams to the tables of a database, and to which size they are pruned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft.databases.entry import MAX_ENTRIES
from foredraft.databases.hashing import context_mask, rest_token
from foredraft.databases.runs import MAX_COUNT, SortedRun, StoredRun, merge
from foredraft.databases.writer import ContainerWriter
from foredraft.errors import DatabaseError

CONTEXT_BYTES, ENTRY_BYTES = 17, 8
"""What a context (hash, row, its share of the directory) and an entry take in the file."""
CONTEXTS_PER_BUCKET = 4
MAX_ITEMS = 0xFFFFFFFF - 1
_LEVELS = 1024
"""Counts from here on are never pruned."""


@dataclass(frozen=True, slots=True)
class TablePiece:
    """Contexts with ascending ``hashes`` [n], their ``totals`` [n] and ``sizes`` [n]; entries laid end to end."""

    hashes: npt.NDArray[np.uint64]
    totals: npt.NDArray[np.uint32]
    sizes: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint32]

    def pruned(self, threshold: int) -> TablePiece:
        """Without the entries seen ``threshold`` times or less, and without the contexts that have no other."""
        if threshold <= 0:
            return self
        keep = self.counts > threshold
        owners = np.repeat(np.arange(len(self.sizes)), self.sizes)
        sizes = np.bincount(owners[keep], minlength=len(self.sizes))
        alive = sizes > 0
        return TablePiece(self.hashes[alive], self.totals[alive], sizes[alive], self.tokens[keep], self.counts[keep])


def pieces(run: StoredRun, vocab_size: int) -> Iterator[TablePiece]:
    """The contexts of a run in ascending pieces, each context's next tokens by falling count, at most 16."""
    for part in merge([run], vocab_size):
        yield _piece(part, vocab_size)


def _piece(run: SortedRun, vocab_size: int) -> TablePiece:
    contexts = run.keys & np.uint64(context_mask(vocab_size))
    starts = np.flatnonzero(np.concatenate(([True], contexts[1:] != contexts[:-1])))
    sizes = np.diff(starts, append=len(contexts))
    totals = np.minimum(np.add.reduceat(run.counts.astype(np.uint64), starts), MAX_COUNT).astype(np.uint32)
    tokens = (run.keys & np.uint64(rest_token(vocab_size))).astype(np.uint32)
    ranked = np.arange(len(tokens))
    owners = np.repeat(np.arange(len(sizes)), sizes)
    several = np.flatnonzero(sizes[owners] > 1)
    # Stable sorts: equal counts stay in the order of their token ids, whatever the pieces and the machine.
    weight = np.where(tokens == rest_token(vocab_size), 0, run.counts)[several].astype(np.int64)
    ranked[several] = several[np.lexsort((-weight, owners[several]))]
    position = np.arange(len(tokens)) - starts[owners]
    tokens, counts = tokens[ranked], run.counts[ranked]
    keep = (position < MAX_ENTRIES) & (tokens < vocab_size)
    kept = np.bincount(owners[keep], minlength=len(sizes))
    alive = kept > 0
    return TablePiece(contexts[starts][alive], totals[alive], kept[alive], tokens[keep], counts[keep])


def thresholds(runs: Mapping[int, StoredRun], vocab_size: int, max_size: int | None) -> dict[int, int]:
    """For each order the highest count that is pruned, so that the file takes at most ``max_size`` bytes.

    Singletons of the highest order go first, then those of the next, down to the lowest; then what was seen twice, and
    so on. Raise DatabaseError if nothing would be left.
    """
    chosen = dict.fromkeys(runs, 0)
    if max_size is None:
        return chosen
    sizes = {order: _sizes(run, vocab_size) for order, run in runs.items()}
    for level in range(1, _LEVELS):
        for order in sorted(runs, reverse=True):
            size = sum(int(sizes[o][t]) for o, t in chosen.items())
            if 0 < size <= max_size:
                return chosen
            chosen[order] = level
    raise DatabaseError(f"--max-size {max_size}: too small for these counts; allow more")


def _sizes(run: StoredRun, vocab_size: int) -> npt.NDArray[np.int64]:
    """Bytes that an order takes at each pruning threshold, int64 [_LEVELS]."""
    entries = np.zeros(_LEVELS + 1, np.int64)
    contexts = np.zeros(_LEVELS + 1, np.int64)
    for piece in pieces(run, vocab_size):
        first = np.cumsum(piece.sizes) - piece.sizes
        entries += np.bincount(np.minimum(piece.counts, _LEVELS), minlength=_LEVELS + 1)
        contexts += np.bincount(np.minimum(piece.counts[first], _LEVELS), minlength=_LEVELS + 1)
    pruned = np.cumsum(ENTRY_BYTES * entries + CONTEXT_BYTES * contexts)
    sizes: npt.NDArray[np.int64] = pruned[-1] - pruned[:_LEVELS]
    return sizes


def write_order(
    writer: ContainerWriter, order: int, run: StoredRun, vocab_size: int, threshold: int
) -> tuple[int, int]:
    """Write the sections of one order; returns its numbers of contexts and entries."""
    hashes = writer.section(f"order-{order}/hashes", "uint64")
    rows = writer.section(f"order-{order}/contexts", "uint32")
    entries = writer.section(f"order-{order}/entries", "uint32")
    directory = _Directory(len(run))
    context_count = entry_count = 0
    for whole in pieces(run, vocab_size):
        piece = whole.pruned(threshold)
        first = entry_count + np.cumsum(piece.sizes) - piece.sizes
        hashes.append(piece.hashes)
        rows.append(np.stack((first, piece.totals.astype(np.int64)), axis=1))
        entries.append(np.stack((piece.tokens, piece.counts), axis=1))
        directory.add(piece.hashes)
        context_count += len(piece.hashes)
        entry_count += len(piece.tokens)
        if max(context_count, entry_count) > MAX_ITEMS:
            raise DatabaseError(f"order {order}: over {MAX_ITEMS} contexts or entries; build several files or prune")
    rows.append(np.array([entry_count, 0]))
    writer.section(f"order-{order}/directory", "uint32").append(directory.starts(context_count))
    return context_count, entry_count


class _Directory:
    """Counts contexts by the leading bits of their hash, finely; coarsened once their number is known."""

    def __init__(self, most: int) -> None:
        self._bits = _bits_for(most)
        self._fine = np.zeros(1 << self._bits, np.uint32)

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Count a piece of ascending hashes."""
        if not len(hashes):
            return
        # Two shifts, since one by all 64 bits is undefined.
        bucket = ((hashes >> np.uint64(1)) >> np.uint64(63 - self._bits)).astype(np.int64)
        base = int(bucket[0])
        found = np.bincount(bucket - base)
        self._fine[base : base + len(found)] += found.astype(np.uint32)

    def starts(self, contexts: int) -> npt.NDArray[np.int64]:
        """The first context of each bucket and, last, the number of contexts."""
        bits = min(self._bits, _bits_for(contexts))
        coarse = self._fine.reshape(1 << bits, -1).sum(axis=1, dtype=np.int64)
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(coarse)))


def _bits_for(contexts: int) -> int:
    """Leading bits such that a bucket holds 4 to 8 contexts."""
    return max(0, (contexts // CONTEXTS_PER_BUCKET).bit_length() - 1)
