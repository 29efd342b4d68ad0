"""``foredraft sign``: put a publisher's signature on a bundle."""

from __future__ import annotations

from pathlib import Path

import click

EPILOG = """
Examples:

\b
  openssl ecparam -name prime256v1 -genkey -noout -out private.pem
  openssl pkey -in private.pem -pubout -out public.pem
  foredraft sign smollm2.foredraft --key private.pem
  foredraft verify smollm2.foredraft --key public.pem
"""


@click.command(short_help="Sign a bundle with a private key.", epilog=EPILOG)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--key", required=True, type=click.Path(path_type=Path), metavar="PRIVATE.pem", help="An elliptic key.")
@click.option("--password", envvar="FOREDRAFT_KEY_PASSWORD", help="The key's password [or $FOREDRAFT_KEY_PASSWORD].")
def sign(bundle: Path, key: Path, password: str | None) -> None:
    """Sign the manifest and with it every file, in the format of OpenSSF model-signing (model.sig).

    Anybody with the public key can check it: with --key here, or with the model_signing tool.
    """
    from foredraft.distribution import open_bundle
    from foredraft.distribution.sign import sign as run

    click.echo(f"wrote {run(open_bundle(bundle), key.expanduser(), password)}", err=True)
