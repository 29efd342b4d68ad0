"""Is there room on the disk? Asked before work starts, not found out at its end."""

from __future__ import annotations

import shutil
from pathlib import Path

from foredraft.errors import ForedraftError


def check_space(path: Path, needed: int) -> None:
    """Raises ``ForedraftError`` if fewer than ``needed`` bytes are free on the disk of ``path``."""
    folder = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    available = shutil.disk_usage(folder).free
    if available < needed:
        raise ForedraftError(
            f"{path}: the export needs {needed / 1e9:.2f} GB on this disk, and {available / 1e9:.2f} GB "
            "are free; "
            "free some space or choose another folder"
        )
