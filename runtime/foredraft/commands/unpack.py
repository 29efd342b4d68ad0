"""``foredraft unpack``: a packed bundle back into a folder."""

from __future__ import annotations

from pathlib import Path

import click

from foredraft.commands.ship_options import force_option, quiet_option, signature_options

EPILOG = """
Examples:

\b
  foredraft unpack smollm2.foredraft.tar
  foredraft unpack smollm2.foredraft.tar --out models/smollm2 --key publisher.pub
"""


@click.command(short_help="Unpack a bundle's tar file.", epilog=EPILOG)
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The folder [default: ARCHIVE without .tar, here].")
@signature_options
@force_option
@quiet_option
def unpack(
    archive: Path, out: Path | None, require_signature: bool, key: Path | None, force: bool, quiet: bool
) -> None:
    """Unpack a bundle, checking names, sizes and hashes before anything is kept."""
    from foredraft.commands.progress import progress_bar
    from foredraft.disk_space import size_text
    from foredraft.distribution.unpack import unpack as run

    if require_signature and key is None:
        raise click.UsageError("--require-signature needs --key PUBLIC.pem")
    target = out or Path(archive.name.removesuffix(".tar"))
    if target == Path(archive.name) and out is None:
        raise click.UsageError(f"{archive} does not end in .tar; give --out FOLDER")
    with progress_bar(quiet) as progress:
        bundle = run(archive, target, replace=force, key=key, progress=progress)
    if not quiet:
        size = size_text(sum(info.size for info in bundle.manifest.files.values()))
        click.echo(f"wrote {target} ({size})", err=True)
