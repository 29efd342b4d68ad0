"""Counting files, as one call: what a worker of any cluster runs on its shard before the counts are merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foredraft.databases.building import KIND_ORDERS, Counted, Progress, count_documents, spool_beside, write_counts
from foredraft.databases.identity import open_tokenizer
from foredraft.databases.sources import expand, read_documents


def count_files(
    out: Path | str,
    files: Sequence[Path | str],
    tokenizer: Path | str,
    kind: str = "corpus",
    progress: Progress | None = None,
) -> Counted:
    """Count the n-grams of ``files`` (text, JSONL, token files, folders) into the file ``out``, whole or not at all.

    ``tokenizer`` is a bundle or a tokenizer.json; ``kind`` is that of the database to be ("corpus", "model").
    DatabaseError names what cannot be read.
    """
    tool, identity = open_tokenizer(Path(tokenizer))
    with spool_beside(out) as spool:
        documents = read_documents(expand(files), tool, identity.vocab_size)
        counted = count_documents(documents, identity, KIND_ORDERS[kind], spool, progress)
        write_counts(out, counted, identity, spool)
    return counted
