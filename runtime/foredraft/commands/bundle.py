"""``foredraft bundle``: change a bundle."""

from __future__ import annotations

from pathlib import Path

import click

EPILOG = """
Examples:

\b
  foredraft bundle add smollm2.foredraft --database wiki.fdb
  foredraft bundle add smollm2.foredraft --adapter exits.safetensors --name exits
"""


@click.group(short_help="Add a token database or an adapter to a bundle.", epilog=EPILOG)
def bundle() -> None:
    """Change what is in a bundle."""


@bundle.command(short_help="Add a token database or an adapter.", epilog=EPILOG)
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option("--database", type=click.Path(path_type=Path), metavar="FILE.fdb", help="A token database.")
@click.option("--adapter", type=click.Path(path_type=Path), metavar="FILE.safetensors", help="An exit's adapter.")
@click.option("--name", help="Its name in the bundle [default: the file's].")
def add(folder: Path, database: Path | None, adapter: Path | None, name: str | None) -> None:
    """Add a token database or an adapter to BUNDLE. The manifest changes, so the bundle must be signed again."""
    if (database is None) == (adapter is None):
        raise click.UsageError("give either --database or --adapter")
    from foredraft.bundle.manifest import SIGNATURE
    from foredraft.distribution import open_bundle
    from foredraft.distribution.add import add_adapter, add_database

    opened = open_bundle(folder)
    was_signed = (opened.path / SIGNATURE).exists()
    if database is not None:
        add_database(opened, database, name)
    elif adapter is not None:
        add_adapter(opened, adapter, name)
    click.echo(f"added {name or (database or adapter or folder).stem} to {opened.path}", err=True)
    if was_signed:
        click.echo(f"its signature is gone; sign it: foredraft sign {opened.path} --key PRIVATE.pem", err=True)
