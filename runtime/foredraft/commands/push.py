"""``foredraft push``: a bundle into an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click

from foredraft.commands.ship_options import plain_http_option, quiet_option

EPILOG = """
Examples:

\b
  foredraft push smollm2.foredraft ghcr.io/me/smollm2:1.0
  foredraft push smollm2-int4.foredraft ghcr.io/me/smollm2:1.0 --add
"""


@click.command(short_help="Upload a bundle to an OCI registry.", epilog=EPILOG)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("reference")
@click.option("--add", is_flag=True, help="Keep the tag's other precisions beside this one.")
@plain_http_option
@quiet_option
def push(bundle: Path, reference: str, add: bool, plain_http: bool, quiet: bool) -> None:
    """Upload a bundle as REFERENCE (HOST/NAME:TAG); files that the registry has are not sent again.

    Logins are those of docker and oras (~/.docker/config.json).
    """
    from foredraft.commands.progress import progress_bar
    from foredraft.distribution import open_bundle
    from foredraft.distribution.push import push as run
    from foredraft.distribution.registry_reference import parse

    target = parse(reference)
    with progress_bar(quiet) as progress:
        done = run(open_bundle(bundle), target, add=add, plain_http=plain_http, progress=progress)
    if not quiet:
        click.echo(f"sent {len(done.sent)} files, {len(done.present)} were there already", err=True)
    click.echo(f"{target.registry}/{target.repository}@{done.digest}")
