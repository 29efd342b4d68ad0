"""Options that the commands around shipping share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def signature_options(command: Command) -> Command:
    """``require_signature`` and ``key``, as ``Bundle.open`` takes them."""
    command = click.option(
        "--key",
        type=click.Path(path_type=Path),
        metavar="PUBLIC.pem",
        help="The publisher's public key; the bundle must be signed by it.",
    )(command)
    return click.option(
        "--require-signature", is_flag=True, help="Refuse to go on without a key that the bundle is signed by."
    )(command)


def quiet_option(command: Command) -> Command:
    """``quiet``."""
    return click.option("--quiet", is_flag=True, help="Print nothing but errors.")(command)


def force_option(command: Command) -> Command:
    """``force``."""
    return click.option("--force", is_flag=True, help="Replace what is there.")(command)


def plain_http_option(command: Command) -> Command:
    """``plain_http``."""
    return click.option(
        "--plain-http", is_flag=True, help="A registry without TLS; on this machine that needs no option."
    )(command)


def parts_list(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[str]:
    """``a,b`` as a list."""
    if value is None:
        return []
    parts = [part.strip() for part in value.split(",")]
    if not all(parts):
        raise click.BadParameter(f"{value!r}: expected names separated by commas, such as portable,int4")
    return parts
