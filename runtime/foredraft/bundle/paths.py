"""Which names a bundle's files may have: names that mean the same file on every system, inside the folder."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from foredraft.errors import BundleError

MAX_NAME = 100
"""Longest name in bytes of UTF-8: what every tar reader understands."""
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(1, 10))}
"""Windows opens a device under these names, whatever the suffix."""


def check_paths(names: Iterable[str], where: str, taken: Collection[str] = ()) -> None:
    """Refuse names that could leave the folder, are ``taken``, or mean two things on some system.

    Raises BundleError with the name and the reason.
    """
    spellings: dict[str, tuple[str, bool]] = {}
    for name in names:
        if name in taken:
            raise BundleError(f"{where}: {name!r} may not be listed: the name is the bundle's own")
        check_path(name, where)
        for folder in reversed(PurePosixPath(name).parents[:-1]):
            _claim(spellings, str(folder), False, where)
        _claim(spellings, name, True, where)


def check_path(name: str, where: str) -> None:
    """Refuse one unsafe name; raises BundleError."""
    if reason := _unsafe(name):
        raise BundleError(f"{where}: {name[:MAX_NAME]!r} is not a path for a file of a bundle: it {reason}")


def _claim(spellings: dict[str, tuple[str, bool]], name: str, is_file: bool, where: str) -> None:
    """One spelling for each name, and a name is a file or a folder. Folds as case-insensitive systems do."""
    folded = unicodedata.normalize("NFC", name).casefold()
    twin, twin_is_file = spellings.setdefault(folded, (name, is_file))
    if twin != name:
        raise BundleError(f"{where}: {name!r} and {twin!r} differ only in case or in how accents are written")
    if is_file != twin_is_file:
        raise BundleError(f"{where}: {name!r} is listed as a file and as a folder")


def _unsafe(name: str) -> str | None:
    """Why the name is refused, as the end of a sentence; None if it is safe."""
    if "\0" in name:
        return "contains NUL"
    if "\\" in name:
        return "contains a backslash"
    if name.startswith("/"):
        return "is absolute"
    if ":" in name:
        return "contains a colon"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "contains a control character"
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if length > MAX_NAME:
        return f"has {length} bytes, more than {MAX_NAME}"
    return next(filter(None, map(_unsafe_part, name.split("/"))), None)


def _unsafe_part(part: str) -> str | None:
    if part == "..":
        return "leaves the folder ('..')"
    if part in ("", "."):
        return "has an empty part"
    if part[-1] in ". ":
        return "has a part that ends in a dot or a space"
    if part.partition(".")[0].casefold() in _DEVICES:
        return "is the name of a device on Windows"
    return None
