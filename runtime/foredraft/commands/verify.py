"""``foredraft verify``: is a bundle whole, unchanged and signed."""

from __future__ import annotations

from pathlib import Path

import click

from foredraft.commands.ship_options import quiet_option, signature_options

EPILOG = """
Examples:

\b
  foredraft verify smollm2.foredraft
  foredraft verify smollm2.foredraft --full
  foredraft verify smollm2.foredraft --require-signature --key publisher.pub
"""


@click.command(short_help="Check that a bundle is whole, unchanged and signed.", epilog=EPILOG)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--full", is_flag=True, help="Read every file again, also those checked on this machine before.")
@signature_options
@quiet_option
def verify(bundle: Path, full: bool, require_signature: bool, key: Path | None, quiet: bool) -> None:
    """Check a bundle's manifest, paths, sizes and hashes, and with --key its signature.

    Big files that were checked on this machine and have not been touched since are not read again, unless
    --full.
    """
    from foredraft.commands.progress import progress_bar
    from foredraft.disk_space import size_text
    from foredraft.distribution import open_bundle

    opened = open_bundle(bundle, require_signature=require_signature, key=key)
    with progress_bar(quiet) as progress:
        opened.verify(full, progress)
    if quiet:
        return
    files = opened.manifest.files
    size = size_text(sum(info.size for info in files.values()))
    signed = f"signed by {key}" if key else "signature not checked (no --key)"
    part = "" if opened.complete else ", a part of what was published"
    click.echo(f"{opened.path}: {len(files)} files, {size}{part}; all as the manifest says; {signed}")
