"""A bar on standard error for work that takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from foredraft.bundle import Progress


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """Yield a function to call with (bytes done, bytes in all, what); the bar is gone when the block ends."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    console = Console(stderr=True, quiet=quiet)
    with Bar(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield show
