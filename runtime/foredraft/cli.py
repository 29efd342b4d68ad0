"""The ``foredraft`` command. Subcommands are imported when used, so that ``--help`` loads no engine."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

import foredraft
from foredraft.errors import ForedraftError

_OWN = {
    "generate": "Write an answer to one prompt.",
    "chat": "Talk with a model in the terminal.",
    "serve": "Serve a bundle over HTTP, as OpenAI's API does.",
    "inspect": "Show what is inside a bundle and what of it this machine can run.",
    "verify": "Check that a bundle is whole, unchanged and signed.",
    "sign": "Sign a bundle with a private key.",
    "pack": "Write a bundle as one tar file.",
    "unpack": "Unpack a bundle's tar file.",
    "push": "Upload a bundle to an OCI registry.",
    "pull": "Fetch a bundle from an OCI registry.",
    "bundle": "Add a token database or an adapter to a bundle.",
    "cache": "Show or clear what is kept between runs.",
    "db": "Build, grow and check token databases.",
    "bench": "Compare drafters or policies on a file of questions.",
    "trace": "Watch which level drafts which token.",
}
"""This package's commands: ``foredraft.commands.NAME`` holds a click command of the same name."""
_GROUP = "foredraft.commands"
"""Entry points under which other packages (the exporter) add theirs."""
_EXTRA_OF = {"foredraft_exporter": "export", "foredraft_graphs": "export"}
_INTERRUPTED, _BROKEN_PIPE = 130, 141
"""128 + SIGINT and 128 + SIGPIPE, as a shell reports them."""

EPILOG = """
Examples:

\b
  foredraft export HuggingFaceTB/SmolLM2-135M-Instruct --out smollm2.foredraft
  foredraft generate smollm2.foredraft --chat --prompt "What is a KV cache?"
  foredraft chat smollm2.foredraft
  foredraft inspect smollm2.foredraft
"""


class Commands(click.Group):
    """Own commands and those of installed packages, loaded by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Own commands first, in the order of use."""
        return [*_OWN, *sorted(set(_added()) - set(_OWN))]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command; raises click.ClickException if what it needs is not installed."""
        added = _added()
        if name in _OWN:
            command = getattr(importlib.import_module(f"foredraft.commands.{name}"), name)
        elif name in added:
            command = _load(added[name])
        else:
            return None
        return _with_debug(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, with the closest command in the error."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f", expected one of {', '.join(known)}"
            raise click.UsageError(f"no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """As in click, which would turn a broken pipe into a plain error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _broken_pipe()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each command; own ones are not imported for it."""
        rows = list(_OWN.items())
        for name in self.list_commands(ctx)[len(_OWN) :]:
            try:
                command = self.get_command(ctx, name)
                rows.append((name, command.get_short_help_str(100) if command else ""))
            except click.ClickException as error:
                rows.append((name, f"({error.message})"))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(foredraft.__version__, prog_name="foredraft", message="%(prog)s %(version)s")
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=lambda *args: _debug(*args),
    help="Show where an error comes from.",
)
def cli() -> None:
    """Exact speculative decoding: several tokens per step, and not one of them changed."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 (error), 2 (usage), 130 (Ctrl-C), 141 (broken
    pipe).
    """
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # a terminal without Unicode shows '?', and does not end the answer
    settings: dict[str, Any] = {}
    try:
        code = cli.main(args, prog_name="foredraft", standalone_mode=False, obj=settings)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except SystemExit as error:  # a command that chose its own exit code
        return error.code if isinstance(error.code, int) else 1
    except BrokenPipeError:
        return _broken_pipe()
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except click.UsageError as error:
        where = f"; see: {error.ctx.command_path} --help" if error.ctx else ""
        return _fail(f"{error.format_message()}{where}", settings, error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), settings, error.exit_code)
    except (ForedraftError, OSError) as error:
        return _fail(str(error), settings, 1)


def _fail(message: str, settings: dict[str, Any], code: int) -> int:
    if settings.get("debug"):
        traceback.print_exc()
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"error: {' '.join(message.split())}", err=True)
    return code


def _broken_pipe() -> int:
    """Nobody reads standard output any more: what is still buffered must not fail at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE


def _added() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP)}


def _load(point: EntryPoint) -> click.Command:
    """Import an added command, or say in one line what to install."""
    try:
        command = point.load()
    except ImportError as error:
        package = point.module.partition(".")[0]
        extra = point.extras[0] if point.extras else _EXTRA_OF.get(package)
        missing = f"{point.name}: {error}"
        hint = f"; install it with: pip install 'foredraft[{extra}]'" if extra else ""
        raise click.ClickException(missing + hint) from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{point.name}: {point.value} is not a command")
    return command


def _with_debug(command: click.Command) -> click.Command:
    """Let every command take ``--debug`` too: that is where it is typed when something has just failed."""
    if all(parameter.name != "debug" for parameter in command.params):
        command.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=_debug,
                help="Show where an error comes from.",
            )
        )
    return command


def _debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and isinstance(ctx.obj, dict):
        ctx.obj["debug"] = True


if __name__ == "__main__":
    sys.exit(main())
