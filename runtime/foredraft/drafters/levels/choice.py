"""Which levels a drafter uses: an ordered subset that the user names, checked against the databases that there are."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.databases.database import Database
from foredraft.drafters.levels import LEVEL_NAMES
from foredraft.errors import RequestError


def chosen_levels(
    levels: str | Sequence[str] | None,
    model: Database | None,
    corpus: Database | None,
    known: tuple[str, ...] = LEVEL_NAMES,
) -> tuple[str, ...]:
    """The levels to draft from, in order: ``levels`` ("context,model"), or all that there is a database for.

    Where there is a corpus, recycled logits add next to nothing to small trees, and take time: then they are left out
    unless asked for.

    Raise RequestError for a level that is unknown to the drafter, named twice, or without its database.
    """
    databases = {"model": model, "corpus": corpus}
    if levels is None:
        found = (name for name in known if databases.get(name, True) is not None)
        return tuple(name for name in found if name != "recycled" or corpus is None)
    names = tuple(part.strip() for part in levels.split(",")) if isinstance(levels, str) else tuple(levels)
    for name in names:
        if name not in known:
            raise RequestError(f"levels: got {name!r}, expected some of {', '.join(known)}")
        if databases.get(name, True) is None:
            raise RequestError(f"levels: {name!r} needs a database; give one or leave the level out")
    if not names or len(set(names)) != len(names):
        raise RequestError(f"levels: got {','.join(names) or 'nothing'!r}, expected one or more, each once")
    return names
