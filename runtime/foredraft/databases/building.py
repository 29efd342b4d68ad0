"""Builds databases: documents -> sorted runs -> their sum -> tables, streaming, on two cores, in bounded memory.

``count`` stops after the runs, so that the shards of a big corpus can be counted anywhere (Ray, Spark, a shell loop),
and ``merge`` adds such files, and whole databases, up. The spool of a build lies in a folder beside the target.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foredraft.databases.database import RECYCLED
from foredraft.databases.hashing import ORDERS
from foredraft.databases.identity import Identity
from foredraft.databases.runs import StoredRun, combined, count_chunk, merge, stored
from foredraft.databases.sources import Document
from foredraft.databases.tables import thresholds, write_order
from foredraft.databases.writer import writing
from foredraft.disk_space import naming_full_disk
from foredraft.errors import DatabaseError

CHUNK = 1 << 22
"""Tokens counted at once: a run takes some 200 MB while it is sorted."""
KIND_ORDERS = {"corpus": (1, 2, 3, 4), "model": ORDERS}
Progress = Callable[[int], None]
"""Told how many more tokens have been counted."""
Recycled = npt.NDArray[np.uint32]
"""Likely next tokens of each token, uint32 [vocab_size, 8]; 0xFFFFFFFF where there is none."""


@dataclass(slots=True)
class Counted:
    """Runs of each order, and what they were counted from."""

    runs: dict[int, list[StoredRun]]
    tokens: int = 0
    documents: int = 0


def count_documents(
    documents: Iterable[Document],
    identity: Identity,
    orders: Sequence[int],
    spool: Path,
    progress: Progress | None = None,
) -> Counted:
    """Count n-grams in chunks, each a run in ``spool``. Counting overlaps with whatever yields the documents."""
    counted = Counted({order: [] for order in orders})
    with ThreadPoolExecutor(1) as worker:
        running: Future[dict[int, StoredRun]] | None = None
        for number, chunk in enumerate(_chunks(documents)):
            _collect(running, counted)
            running = worker.submit(_count_chunk, chunk, tuple(orders), identity.vocab_size, spool, number)
            counted.tokens += sum(map(len, chunk))
            counted.documents += len(chunk)
            if progress is not None:
                progress(sum(map(len, chunk)))
        _collect(running, counted)
    return counted


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _count_chunk(
    chunk: list[Document], orders: tuple[int, ...], vocab_size: int, spool: Path, number: int
) -> dict[int, StoredRun]:
    tokens = np.concatenate(chunk)
    lengths = np.array([len(document) for document in chunk])
    ages = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return {
        order: stored(count_chunk(tokens, ages, order, vocab_size), spool / f"run-{order}-{number}") for order in orders
    }


def _collect(running: Future[dict[int, StoredRun]] | None, counted: Counted) -> None:
    if running is not None:
        for order, run in running.result().items():
            counted.runs[order].append(run)


def write_counts(path: Path | str, counted: Counted, identity: Identity, spool: Path) -> None:
    """Write a shard's counts: sections ``order-N/keys`` and ``order-N/counts``, to be merged later."""
    with writing(path, spool) as writer:
        for order, runs in counted.runs.items():
            keys = writer.section(f"order-{order}/keys", "uint64")
            counts = writer.section(f"order-{order}/counts", "uint32")
            for piece in merge(runs, identity.vocab_size):
                keys.append(piece.keys)
                counts.append(piece.counts)
        writer.finish(
            "counts",
            identity.tokenizer,
            identity.vocab_size,
            {"orders": list(counted.runs), "tokens": counted.tokens, "documents": counted.documents},
        )


def write_database(
    path: Path | str,
    kind: str,
    counted: Counted,
    identity: Identity,
    spool: Path,
    *,
    max_size: int | None = None,
    recycled: Recycled | None = None,
) -> None:
    """Add the runs up and write a database of at most about ``max_size`` bytes.

    Raise DatabaseError if nothing was counted or the size cannot be kept.
    """
    if not counted.tokens:
        raise DatabaseError(f"{path}: nothing to build from: the sources hold no tokens")
    vocab_size = identity.vocab_size
    runs = {o: combined(r, spool / f"sum-{o}", vocab_size) for o, r in sorted(counted.runs.items())}
    room = None if max_size is None else max_size - (recycled.nbytes if recycled is not None else 0)
    cut = thresholds(runs, vocab_size, room)
    with writing(path, spool) as writer:
        sizes = {order: write_order(writer, order, run, vocab_size, cut[order]) for order, run in runs.items()}
        if recycled is not None:
            writer.section("recycled", "uint32").append(_checked(recycled, vocab_size))
        facts = {
            "orders": list(runs),
            "tokens": counted.tokens,
            "documents": counted.documents,
            "contexts": {str(order): size[0] for order, size in sizes.items()},
            "entries": {str(order): size[1] for order, size in sizes.items()},
            "pruned_up_to": {str(order): threshold for order, threshold in cut.items()},
        }
        writer.finish(kind, identity.tokenizer, vocab_size, facts)


def _checked(recycled: Recycled, vocab_size: int) -> Recycled:
    if recycled.shape != (vocab_size, RECYCLED):
        raise DatabaseError(f"recycled table: shape {recycled.shape}, expected {(vocab_size, RECYCLED)}")
    return recycled


def build_database(
    path: Path | str,
    kind: str,
    documents: Iterable[Document],
    identity: Identity,
    *,
    max_size: int | None = None,
    recycled: Recycled | None = None,
    progress: Progress | None = None,
) -> None:
    """Count documents and write a database of ``kind`` ("corpus", "model"), whole or not at all."""
    with spool_beside(path) as spool:
        counted = count_documents(documents, identity, KIND_ORDERS[kind], spool, progress)
        write_database(path, kind, counted, identity, spool, max_size=max_size, recycled=recycled)


def recycled_table(rows: Mapping[int, Sequence[int]], vocab_size: int) -> Recycled:
    """The recycled table from {token: its likely next tokens, likeliest first}."""
    table = np.full((vocab_size, RECYCLED), 0xFFFFFFFF, np.uint32)
    for token, following in rows.items():
        kept = list(following)[:RECYCLED]
        table[token, : len(kept)] = kept
    return table


@contextmanager
def spool_beside(path: Path | str) -> Iterator[Path]:
    """A folder for runs beside ``path``; folders that killed builds of the same name left are removed first."""
    target = Path(path)
    if not target.parent.is_dir():
        raise DatabaseError(f"{target}: the folder {target.parent} does not exist; create it first")
    prefix = f".{target.name}.spool-"
    for stale in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        with naming_full_disk(target):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
