"""Runs the application under uvicorn: one process, or several that share a port."""

from __future__ import annotations

import contextlib
import logging.config
import os
import signal
import socket
import sys
import tempfile
from dataclasses import replace
from typing import Any

import click
import uvicorn

from foredraft.bundle import Bundle
from foredraft.errors import RequestError
from foredraft.server.logs import log_config
from foredraft.server.metrics import MULTIPROCESS
from foredraft.server.service import threads_of_worker
from foredraft.server.settings import ENVIRONMENT, Settings

_BACKLOG = 1024


def run(settings: Settings, host: str, port: int, workers: int, drain: float, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM; streams then have ``drain`` seconds to finish.

    Raises ForedraftError before anything is served: a bundle that cannot be opened, a port that is taken.
    """
    logging.config.dictConfig(log_config(log_level))
    listener = listen(host, port)
    with contextlib.closing(listener):
        options: dict[str, Any] = {
            "log_config": log_config(log_level),
            "access_log": False,
            "server_header": False,
            "lifespan": "on",
            "timeout_graceful_shutdown": max(1, round(drain)),
            "ws": "none",
            "backlog": _BACKLOG,
        }
        if workers == 1:
            _one(settings, listener, options)
        else:
            _several(settings, listener, options, workers)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address. Raises RequestError if that is not possible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # from now on nobody is turned away: early clients wait until the model is loaded
    except OSError as error:
        reason = error.strerror or error
        raise RequestError(f"cannot listen on {host} port {port}: {reason}; choose another --port or --host") from error
    listener.set_inheritable(True)
    return listener


def _one(settings: Settings, listener: socket.socket, options: dict[str, Any]) -> None:
    from foredraft.server.app import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(settings), **options))
    # uvicorn raises the signal that ended it once more when all is done: that shall be an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _announce(listener)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def _several(settings: Settings, listener: socket.socket, options: dict[str, Any], workers: int) -> None:
    Bundle.open(settings.bundle)  # what is wrong with it is said once, here
    if settings.session.get("threads") is None:
        settings = replace(settings, session={**settings.session, "threads": threads_of_worker(workers)})
    os.environ[ENVIRONMENT] = settings.to_json()
    with tempfile.TemporaryDirectory(prefix="foredraft-metrics-") as folder:
        os.environ[MULTIPROCESS] = folder
        _announce(listener)
        uvicorn.run(
            "foredraft.server.app:from_environment",
            factory=True,
            workers=workers,
            fd=listener.fileno(),
            **options,
        )


def _announce(listener: socket.socket) -> None:
    """Where to go, on standard output: logs are on standard error."""
    host, port = listener.getsockname()[:2]
    click.echo(f"Foredraft listens on http://{f'[{host}]' if ':' in host else host}:{port}")
    sys.stdout.flush()
