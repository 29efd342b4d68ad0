"""Adds databases and shard counts up, and folds learn logs into a model database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foredraft.databases.building import KIND_ORDERS, Counted, Recycled, count_documents, spool_beside, write_database
from foredraft.databases.database import RECYCLED, check_tokenizer
from foredraft.databases.file import Container
from foredraft.databases.hashing import rest_token
from foredraft.databases.identity import Identity
from foredraft.databases.log import folding
from foredraft.databases.runs import RunFile, SortedRun, StoredRun
from foredraft.databases.sources import Document
from foredraft.errors import DatabaseError

_CONTEXTS_AT_ONCE = 1 << 20


def merge_files(
    path: Path | str, sources: Sequence[Path | str], *, kind: str | None = None, max_size: int | None = None
) -> None:
    """Write the sum of shard counts and databases. ``kind`` is that of the first database unless it is given.

    Raise DatabaseError if the sources are of different tokenizers. Where a source was pruned, so is its share of the
    sum; of recycled rows the last source's are kept.
    """
    containers = [_sound(source) for source in sources]
    identity = _common_identity(containers)
    kind = kind or next((c.header.kind for c in containers if c.header.kind != "counts"), "corpus")
    with spool_beside(path) as spool:
        counted = Counted({order: [] for order in KIND_ORDERS[kind]})
        for number, container in enumerate(containers):
            _add(container, counted, spool, number)
        recycled = _recycled(containers) if kind == "model" else None
        write_database(path, kind, counted, identity, spool, max_size=max_size, recycled=recycled)


def add_logs(path: Path | str, logs: Sequence[Path | str], *, max_size: int | None = None) -> int:
    """Fold learn logs into a model database: a new version takes its place. Returns the number of tokens added.

    Whoever has the old version open keeps it. The logs are gone afterwards; what is appended meanwhile is kept.
    """
    container = _sound(path)
    header = container.header
    if header.kind != "model":
        raise DatabaseError(f"{path}: is a {header.kind} file; logs are folded into model databases only")
    identity = Identity(header.tokenizer, header.vocab_size)
    with spool_beside(path) as spool, folding([Path(log) for log in logs], identity) as documents:
        learned: list[Document] = list(documents)
        counted = count_documents(learned, identity, header.facts["orders"], spool)
        added = counted.tokens
        _add(container, counted, spool, 0)
        write_database(path, "model", counted, identity, spool, max_size=max_size, recycled=_recycled([container]))
    return added


def _sound(path: Path | str) -> Container:
    """Open a source whose every section has its hash: a damaged one must not get into a new database."""
    container = Container(path)
    if damaged := container.damaged():
        raise DatabaseError(f"{path}: damaged sections: {', '.join(damaged)}; build it again")
    return container


def _common_identity(containers: Sequence[Container]) -> Identity:
    if not containers:
        raise DatabaseError("nothing to merge: name at least one file")
    first = containers[0].header
    for other in containers[1:]:
        check_tokenizer(other.path, other.header.tokenizer, first.tokenizer)
        if other.header.vocab_size != first.vocab_size:
            raise DatabaseError(
                f"{other.path}: vocabulary of {other.header.vocab_size}, {containers[0].path} has {first.vocab_size}"
            )
    return Identity(first.tokenizer, first.vocab_size)


def _add(container: Container, counted: Counted, spool: Path, number: int) -> None:
    """Add a file's runs. An order that it lacks stays without its counts."""
    facts = container.header.facts
    for order in set(facts["orders"]) & set(counted.runs):
        if container.header.kind == "counts":
            run = _run_in(container, order)
        else:
            run = _unfolded(container, order, spool / f"file-{order}-{number}")
        counted.runs[order].append(run)
    counted.tokens += int(facts["tokens"])
    counted.documents += int(facts["documents"])


def _run_in(container: Container, order: int) -> StoredRun:
    """A shard's run, read where it lies."""
    keys = container.header.sections[f"order-{order}/keys"]
    counts = container.header.sections[f"order-{order}/counts"]
    return StoredRun((container.path, keys.offset), (container.path, counts.offset), keys.length // 8)


def _unfolded(container: Container, order: int, path: Path) -> StoredRun:
    """A database's table as a run; what its totals hold beyond the listed tokens is carried as the rest token."""
    hashes = container.array(f"order-{order}/hashes")
    rows = container.array(f"order-{order}/contexts").reshape(-1, 2).astype(np.int64)
    entries = container.array(f"order-{order}/entries").reshape(-1, 2)
    rest = np.uint64(rest_token(container.header.vocab_size))
    with RunFile(path) as file:
        for start in range(0, len(hashes), _CONTEXTS_AT_ONCE):
            end = min(start + _CONTEXTS_AT_ONCE, len(hashes))
            first, sizes = rows[start, 0], np.diff(rows[start : end + 1, 0])
            listed = entries[first : rows[end, 0]]
            keys = np.repeat(hashes[start:end], sizes) | listed[:, 0].astype(np.uint64)
            sums = np.add.reduceat(listed[:, 1].astype(np.int64), rows[start:end, 0] - first)
            unlisted = np.maximum(rows[start:end, 1] - sums, 0)
            more = unlisted > 0
            keys = np.concatenate((keys, hashes[start:end][more] | rest), dtype=np.uint64)
            counts = np.concatenate((listed[:, 1], unlisted[more].astype(np.uint32)))
            order_of = np.argsort(keys)
            file.append(SortedRun(keys[order_of].astype(np.uint64, copy=False), counts[order_of]))
        return file.finish()


def _recycled(containers: Sequence[Container]) -> Recycled | None:
    table: Recycled | None = None
    for container in containers:
        if "recycled" not in container.header.sections:
            continue
        rows = container.array("recycled").reshape(-1, RECYCLED)
        if table is None:
            table = rows.copy()
        else:
            known = rows[:, 0] != 0xFFFFFFFF
            table[known] = rows[known]
    return table
