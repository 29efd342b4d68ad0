"""``foredraft pack``: a bundle as one file."""

from __future__ import annotations

from pathlib import Path

import click

from foredraft.commands.ship_options import force_option, quiet_option

EPILOG = """
Examples:

\b
  foredraft pack smollm2.foredraft
  foredraft pack smollm2.foredraft --out /media/stick/smollm2.tar
"""


@click.command(short_help="Write a bundle as one tar file.", epilog=EPILOG)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The file [default: BUNDLE.tar, here].")
@force_option
@quiet_option
def pack(bundle: Path, out: Path | None, force: bool, quiet: bool) -> None:
    """Write a bundle as one tar file, checking every hash. The same bundle gives the same bytes."""
    from foredraft.commands.progress import progress_bar
    from foredraft.disk_space import size_text
    from foredraft.distribution import open_bundle
    from foredraft.distribution.pack import pack as run

    opened = open_bundle(bundle)
    target = out or Path(f"{opened.path.resolve().name}.tar")
    with progress_bar(quiet) as progress:
        size = run(opened, target, replace=force, progress=progress)
    if not quiet:
        click.echo(f"wrote {target} ({size_text(size)})", err=True)
