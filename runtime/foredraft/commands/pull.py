"""``foredraft pull``: a bundle from an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click

from foredraft.commands.ship_options import (
    force_option,
    parts_list,
    plain_http_option,
    quiet_option,
    signature_options,
)

EPILOG = """
Examples:

\b
  foredraft pull ghcr.io/me/smollm2:1.0
  foredraft generate ghcr.io/me/smollm2:1.0 --prompt "Once upon a time"
  foredraft pull ghcr.io/me/smollm2:1.0 --only portable,int4
  foredraft pull ghcr.io/me/smollm2:1.0 --key publisher.pub --out smollm2.foredraft
"""


@click.command(short_help="Fetch a bundle from an OCI registry.", epilog=EPILOG)
@click.argument("reference")
@click.option(
    "--only",
    callback=parts_list,
    metavar="PARTS",
    help="Fetch only these: lowerings (kernels, portable), databases and adapters by name, a precision; "
    "or onnxruntime, databases, adapters for all of a kind.",
)
@click.option("--out", type=click.Path(path_type=Path), help="The folder [default: in the cache].")
@signature_options
@plain_http_option
@force_option
@quiet_option
def pull(
    reference: str,
    only: list[str],
    out: Path | None,
    require_signature: bool,
    key: Path | None,
    plain_http: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Fetch a bundle; REFERENCE (HOST/NAME:TAG or HOST/NAME@sha256:...) then works wherever a folder does.

    A pull that was interrupted goes on where it was. Pulling again with other parts adds them.
    """
    from foredraft.commands.progress import progress_bar
    from foredraft.disk_space import size_text
    from foredraft.distribution.pull import pull as run
    from foredraft.distribution.registry_reference import parse

    if require_signature and key is None:
        raise click.UsageError("--require-signature needs --key PUBLIC.pem")
    with progress_bar(quiet) as progress:
        done = run(
            parse(reference),
            only=only,
            out=out,
            replace=force,
            key=key,
            plain_http=plain_http,
            progress=progress,
        )
    if not quiet:
        click.echo(f"fetched {size_text(done.fetched)}, {size_text(done.reused)} were here already", err=True)
        click.echo(f"holds {', '.join(done.parts)}; {done.digest}", err=True)
    click.echo(done.path)
