"""A folder of plain files, read without ever following a link. Knows nothing of manifests."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from foredraft.errors import BundleError

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)


def open_plain(root: Path, name: str) -> int:
    """A descriptor of the plain file ``name`` in ``root``, for the caller to close. ``name`` must be a safe
    path.

    Every folder on the way is opened relative to the one before it, so that nobody can slip in a link between
    a check and the opening. Raises BundleError for a missing file, a link on the way, or anything but a plain
    file.
    """
    parts = PurePosixPath(name).parts
    try:
        folder = os.open(root, os.O_RDONLY | _FOLDER)
    except OSError as error:
        raise BundleError(f"{root}: cannot be opened ({error.strerror})") from error
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | _FOLDER | _NO_LINKS, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(parts[-1], os.O_RDONLY | _NO_LINKS, dir_fd=folder)
    except OSError as error:
        raise _cannot_open(root, name, error) from error
    finally:
        os.close(folder)
    try:
        check_plain(root / name, os.fstat(descriptor))
    except BundleError:
        os.close(descriptor)
        raise
    return descriptor


def check_plain(path: Path, status: os.stat_result) -> None:
    """Refuse links and devices; raises BundleError."""
    if stat.S_ISLNK(status.st_mode):
        raise BundleError(f"{path}: a symbolic link; a bundle holds only plain files, copy the file itself there")
    if not stat.S_ISREG(status.st_mode):
        raise BundleError(f"{path}: a {_kind(status.st_mode)}, expected a plain file")
    if status.st_nlink > 1:
        raise BundleError(
            f"{path}: has {status.st_nlink} hard links, expected one, since it could be "
            "changed under its other name; copy the bundle's folder and use the copy"
        )


def scan(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below ``root`` but folders, as (path from ``root`` with '/', its own status), links not
    followed.
    """
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{name}/")
                else:
                    yield name, entry.stat(follow_symlinks=False)


def _cannot_open(root: Path, name: str, error: OSError) -> BundleError:
    path = root
    for part in PurePosixPath(name).parts:
        path = path / part
        if path.is_symlink():
            return BundleError(f"{path}: a symbolic link; a bundle holds only plain files, copy the file itself there")
    if isinstance(error, FileNotFoundError):
        return BundleError(f"{root / name}: missing; export or fetch the bundle again")
    return BundleError(f"{root / name}: cannot be opened ({error.strerror})")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")
