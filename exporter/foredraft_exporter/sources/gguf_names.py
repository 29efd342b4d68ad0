"""Names of GGUF files; those in parts are ``NAME-00001-of-00003.gguf``. Reads no file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def model_name(path: Path) -> str:
    """The file's name without its ending and without its number among the parts."""
    found = _PART.fullmatch(path.name)
    return found[1] if found else path.stem


def by_model(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """The files of each model under the first of them, in the order of their names."""
    models: dict[tuple[Path, str, str], list[Path]] = {}
    for path in sorted(paths):
        found = _PART.fullmatch(path.name)
        models.setdefault((path.parent, found[1], found[3]) if found else (path, "", ""), []).append(path)
    return {files[0]: files for files in models.values()}


def parts_like(path: Path, count: int) -> list[Path]:
    """The paths of all ``count`` parts by that of one; none if it is not named as one of so many."""
    found = _PART.fullmatch(path.name)
    if found is None or int(found[3]) != count:
        return []
    return [path.with_name(f"{found[1]}-{number:05d}-of-{found[3]}.gguf") for number in range(1, count + 1)]
