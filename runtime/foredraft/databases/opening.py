"""Which token databases a session drafts from: the bundle's own, and the ones that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foredraft.bundle import Bundle
from foredraft.databases.database import Database
from foredraft.errors import RequestError


def open_databases(bundle: Bundle, files: Sequence[str | Path | Database] = ()) -> dict[str, Database]:
    """Open databases by kind, ``model`` and ``corpus``; one given in ``files`` takes the place of the bundle's.

    Raises DatabaseError for one of another tokenizer or that cannot be opened, RequestError for two of a kind.
    """
    manifest, found = bundle.manifest, dict[str, Database]()
    for path in manifest.databases.values():
        database = _opened(bundle, bundle.file(path))
        found.setdefault(database.kind, database)
    given: dict[str, Database] = {}
    for file in files:
        database = file if isinstance(file, Database) else _opened(bundle, file)
        if database.kind in given:
            raise RequestError(
                f"databases: {given[database.kind].path} and {database.path} are both of kind {database.kind}; "
                "give one, or merge them with: foredraft db merge"
            )
        given[database.kind] = database
    return found | given


def _opened(bundle: Bundle, path: str | Path) -> Database:
    return Database(path, bundle.manifest.tokenizer.sha256, bundle.manifest.model.vocab_size)
