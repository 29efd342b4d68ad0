"""The server as a Ray Serve application: replicas of one bundle behind Ray's proxy. Needs the extra ``[ray]``.

    serve run foredraft.server.ray:build bundle=/models/smollm2.foredraft replicas=2 threads=4

Every replica opens the bundle itself. On one machine they share its weights and databases through the page cache,
since both are mapped read-only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from ray import serve
from ray.serve import Application
from starlette.applications import Starlette

from foredraft.errors import RequestError
from foredraft.server.settings import Settings

_SESSION = {
    "drafter": str,
    "policy": str,
    "threads": int,
    "lowering": str,
    "context": int,
    "device": str,
    "provider": str,
}


def json_object(value: Any) -> dict[str, Any]:
    """An object, also from its JSON."""
    return dict(json.loads(value) if isinstance(value, str) else value)


def boolean(value: Any) -> bool:
    """True or false, also as a word."""
    return {"true": True, "false": False}[str(value).lower()]


_SERVER: dict[str, Callable[[Any], Any]] = {
    "model_name": str,
    "api_key": str,
    "sequences": int,
    "queue": int,
    "cache_mb": int,
    "timeout": float,
    "max_body": int,
    "chat_template_kwargs": json_object,
    "split_special_tokens": boolean,
}


def build(arguments: dict[str, Any]) -> Application:
    """The application for ``serve run`` and for configuration files.

    ``bundle``: its folder, at the same path on every node; ``replicas`` (1); ``cpus`` of each (its threads); and the
    options of ``foredraft serve`` under their names with underscores. Raises RequestError for any other argument.
    """
    given = dict(arguments)
    replicas = _convert("replicas", given.pop("replicas", 1), int)
    settings = read_settings({name: value for name, value in given.items() if name != "cpus"})
    cpus = _convert("cpus", given.get("cpus", settings.session.get("threads", 1)), float)
    # A replica's own queue answers 429; Ray must not hold back requests before it.
    limit = settings.sequences + settings.queue + 16

    def make_app() -> Starlette:
        from foredraft.server.app import create_app

        return create_app(settings)

    deployment = serve.deployment(
        name="foredraft",
        num_replicas=replicas,
        max_ongoing_requests=limit,
        ray_actor_options={"num_cpus": cpus},
        graceful_shutdown_timeout_s=60,
    )(serve.ingress(make_app)())
    return deployment.bind()


def read_settings(arguments: dict[str, Any]) -> Settings:
    """Settings from a flat dictionary, whose values may be texts, as ``serve run name=value`` gives them."""
    known: dict[str, Callable[[Any], Any]] = {"bundle": str, **_SESSION, **_SERVER}
    if unknown := sorted(set(arguments) - set(known)):
        raise RequestError(f"argument {unknown[0]!r}: expected one of {', '.join([*known, 'replicas', 'cpus'])}")
    if "bundle" not in arguments:
        raise RequestError("argument 'bundle' is missing: the folder of the bundle to serve")
    values = {name: _convert(name, value, known[name]) for name, value in arguments.items()}
    session = {name: value for name, value in values.items() if name in _SESSION}
    server = {name: value for name, value in values.items() if name not in _SESSION}
    return dataclasses.replace(Settings(**server), session=session)


def _convert(name: str, value: Any, kind: Callable[[Any], Any]) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError, KeyError):
        raise RequestError(f"argument {name!r}: got {value!r}, expected a value of type {kind.__name__}") from None
