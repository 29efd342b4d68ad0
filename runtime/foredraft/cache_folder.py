"""The user's cache folder: what may be forgotten at any time."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foredraft.errors import ForedraftError

KINDS = {
    "bundles": "bundles pulled from registries",
    "downloads": "unfinished downloads",
    "hashes": "files already checked on this machine",
    "curves": "measured timing curves",
    "timings": "what TensorRT's builder measured",
    "kernels": "kernels that TensorRT for RTX finished for this device",
    "models": "downloaded checkpoints",
}
"""The cache's folders: each keeps to one of these."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of what is cached: how many files, and their bytes."""

    kind: str
    files: int
    size: int

    @property
    def description(self) -> str:
        """What the kind is for, in words."""
        return KINDS[self.kind]


def cache_folder() -> Path:
    """``FOREDRAFT_CACHE`` if set, else the platform's convention."""
    if configured := os.environ.get("FOREDRAFT_CACHE"):
        return Path(configured).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "foredraft" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "foredraft"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foredraft"


def kept() -> list[Kept]:
    """What is cached, every kind, empty ones too."""
    found = []
    for kind in KINDS:
        sizes = [path.lstat().st_size for path in (cache_folder() / kind).rglob("*") if not path.is_dir()]
        found.append(Kept(kind, len(sizes), sum(sizes)))
    return found


def clear(kinds: Sequence[str] = ()) -> list[Kept]:
    """Forget these kinds (all if none is named) and say what there was; nothing else in the folder is
    touched.

    Raises ForedraftError for an unknown kind, or a folder that cannot be removed.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ForedraftError(f"cache: no kind {kind!r}, expected some of {', '.join(KINDS)}")
    chosen = [entry for entry in kept() if entry.kind in (kinds or KINDS)]
    for entry in chosen:
        try:
            shutil.rmtree(cache_folder() / entry.kind)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ForedraftError(f"{error.filename}: cannot be removed ({error.strerror})") from error
    return chosen


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path`` and rename it there, so that readers see the old file or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
