"""Folders and files that appear complete or not at all, whatever happens while they are written.

Knows nothing of what is in them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from foredraft.disk_space import naming_full_disk
from foredraft.errors import ForedraftError


def refuse_sources(target: Path, sources: Iterable[Path]) -> None:
    """Raises ForedraftError if ``target`` is, holds or lies in one of ``sources``: writing it would destroy that."""
    real = target.resolve()
    for source in sources:
        other = source.expanduser().resolve()
        if other.exists() and (real == other or real in other.parents or other in real.parents):
            how = "is" if real == other else "holds" if real in other.parents else "lies in"
            raise ForedraftError(
                f"{target}: {how} the source {source}, which would be lost or changed; choose another --out"
            )


@contextmanager
def staged_folder(
    target: Path, replace: bool = False, salvage: Callable[[Path], None] | None = None, *, marker: str
) -> Iterator[Path]:
    """Yield an empty folder beside ``target``; on success it is flushed and renamed there, on any error removed.

    A lock file keeps two writers of one target apart (the second gets an error at once). What a killed writer left is
    removed first; ``salvage`` may take from that folder what was dear. Raises ForedraftError if ``target`` exists,
    unless ``replace``; and even then if it is anything but an empty folder or one that holds the file ``marker``, by
    which ours are known.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    _refuse_existing(target, replace)
    _refuse_other_folders(target, marker)
    staging = target.parent / f".{target.name}.staging"
    with locked(target):
        _recover(target)
        _refuse_existing(target, replace)
        _refuse_other_folders(target, marker)
        if salvage and staging.is_dir():
            salvage(staging)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            with naming_full_disk(target):
                yield staging
                _flush_all(staging)
            _swap(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


@contextmanager
def staged_file(target: Path, replace: bool = False, *, ours: Callable[[Path], bool]) -> Iterator[BinaryIO]:
    """Yield a new file beside ``target``; on success it is flushed and renamed there, on any error removed.

    Locks and raises as ``staged_folder`` does; ``ours`` says whether a file is of the kind that may be replaced.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    _refuse_existing(target, replace)
    if target.exists() and not (target.is_file() and ours(target)):
        raise ForedraftError(f"{target}: {_OTHER}")
    staging = target.parent / f".{target.name}.staging"
    with locked(target):
        _refuse_existing(target, replace)
        staging.unlink(missing_ok=True)
        try:
            with naming_full_disk(target), staging.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            staging.replace(target)
            _flush(target.parent)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Be the only writer of ``target``; raises ForedraftError if another process is.

    The system drops the lock with the process, so a killed writer never blocks the next one.
    """
    path = target.parent / f".{target.name}.lock"
    with _lock(path, target):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path, target: Path) -> Iterator[None]:
    """Hold the lock of the file that is at ``path``: its last holder may have removed the one opened."""
    while True:
        with _opened(path, target) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ForedraftError(f"{target}: another process is writing it; wait for it to finish") from None
            if _is_at(path, file.fileno()):
                yield
                return


def _opened(path: Path, target: Path) -> TextIO:
    try:
        return path.open("w")
    except OSError as error:
        raise ForedraftError(
            f"{target}: cannot be written in its folder ({error.strerror}); choose another, or make it writable"
        ) from error


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one that ``path`` names now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def put_inside(folder: Path, name: str, data: bytes) -> None:
    """Write or replace one file of a finished folder; it is the old one or the new one, and nothing lies
    beside it.

    The caller holds the folder's lock.
    """
    incoming = incoming_path(folder)
    try:
        with naming_full_disk(folder / name), incoming.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        incoming.replace(folder / name)
    finally:
        incoming.unlink(missing_ok=True)


def incoming_path(folder: Path) -> Path:
    """Where a file of a finished folder is written before it is renamed into it: beside the folder, on its
    disk.
    """
    return folder.parent / f".{folder.name}.incoming"


_OTHER = "is not something that this command writes, so --force does not replace it; choose another --out"


def _refuse_other_folders(target: Path, marker: str) -> None:
    if not target.exists() or (target.is_dir() and ((target / marker).is_file() or not any(target.iterdir()))):
        return
    raise ForedraftError(f"{target}: {_OTHER}")


def _refuse_existing(target: Path, replace: bool) -> None:
    if target.exists() and not replace:
        raise ForedraftError(f"{target}: already exists; pass --force to replace it, or choose another --out")


def _flush_all(folder: Path) -> None:
    for path in [*sorted(folder.rglob("*")), folder]:
        _flush(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replaced(target: Path) -> Path:
    return target.parent / f".{target.name}.replaced"


def _recover(target: Path) -> None:
    """Put back what a writer that was killed in the middle of ``_swap`` had moved aside."""
    if not target.exists() and _replaced(target).exists():
        _replaced(target).rename(target)


def _swap(staging: Path, target: Path) -> None:
    """A folder cannot be renamed over a full one: the old one steps aside first and is then deleted."""
    old = _replaced(target)
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    staging.rename(target)
    _flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)
