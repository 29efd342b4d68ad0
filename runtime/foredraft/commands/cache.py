"""``foredraft cache``: what is kept between runs, and forgetting it."""

from __future__ import annotations

import click

EPILOG = """
Examples:

\b
  foredraft cache list
  foredraft cache clear curves hashes
"""


@click.group(short_help="Show or clear what is kept between runs.", epilog=EPILOG)
def cache() -> None:
    """Show or clear what is kept between runs: pulled bundles, downloads, checked hashes, timing curves.

    It lies where the platform keeps caches, or in $FOREDRAFT_CACHE.
    """


@cache.command("list", short_help="Show what is kept, and where.")
def list_() -> None:
    """Show each kind of what is kept, with its size."""
    from foredraft.cache_folder import cache_folder, kept
    from foredraft.disk_space import size_text

    click.echo(cache_folder())
    for entry in kept():
        click.echo(f"  {entry.kind:10} {entry.files:6} files {size_text(entry.size):>12}   {entry.description}")


@cache.command(short_help="Forget all of it, or some kinds.")
@click.argument("kinds", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(kinds: tuple[str, ...], yes: bool) -> None:
    """Forget the KINDS named (see list), or everything. Pulled bundles must then be pulled again."""
    from foredraft.cache_folder import cache_folder
    from foredraft.cache_folder import clear as run
    from foredraft.disk_space import size_text

    what = ", ".join(kinds) or "everything"
    if not yes:
        click.confirm(f"Remove {what} from {cache_folder()}?", abort=True, err=True)
    for entry in run(kinds):
        if entry.files:
            click.echo(f"removed {entry.kind}: {entry.files} files, {size_text(entry.size)}", err=True)
