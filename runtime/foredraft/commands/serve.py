"""``foredraft serve``: a bundle over HTTP, as OpenAI's API does it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from foredraft.commands.options import EngineOptions, bundle_argument, engine_options, prompt_options

EPILOG = """
Examples:

\b
  foredraft serve BUNDLE
  foredraft serve BUNDLE --host 0.0.0.0 --port 8080 --sequences 8 --context 4096
  FOREDRAFT_API_KEY=secret foredraft serve BUNDLE
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "smollm2-135m", "messages": [{"role": "user", "content": "Hello"}]}'
"""
_NEEDED = ("anyio", "prometheus_client", "starlette", "uvicorn")


@click.command(short_help="Serve a bundle over HTTP, as OpenAI's API does.", epilog=EPILOG)
@bundle_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--api-key",
    envvar="FOREDRAFT_API_KEY",
    metavar="KEY",
    help="Clients must send it. Better given as FOREDRAFT_API_KEY: others can see a command line.",
)
@click.option("--model-name", metavar="NAME", help="What clients call the model [default: the bundle's name].")
@click.option("--sequences", type=click.IntRange(1), default=4, show_default=True, help="Answers written at once.")
@click.option("--queue", type=click.IntRange(0), default=64, show_default=True, help="Answers that may wait; then 429.")
@click.option(
    "--cache-mb", type=click.IntRange(0), default=1024, show_default=True, help="Prefix cache, in MiB; 0: off."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=600,
    show_default=True,
    help="Seconds that a request may take, waiting included.",
)
@click.option("--drain", type=click.FloatRange(1), default=60, show_default=True, help="Seconds to finish at shutdown.")
@click.option("--max-body", type=click.IntRange(1), default=2_097_152, show_default=True, help="Bytes of a body.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that share the port, each with its own engine, queue and cache.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@prompt_options
@engine_options
def serve(
    bundle: Path,
    host: str,
    port: int,
    api_key: str | None,
    model_name: str | None,
    sequences: int,
    queue: int,
    cache_mb: int,
    timeout: float,
    drain: float,
    max_body: int,
    workers: int,
    log_level: str,
    chat_template_kwargs: dict[str, Any],
    split_special_tokens: bool,
    engine: EngineOptions,
) -> None:
    """Serve a bundle over HTTP, as OpenAI's API does.

    Chat completions, completions and models are under /v1, a page to chat on at /, figures for Prometheus at
    /metrics. Drafting changes the speed and never the text.
    """
    session = engine.session_arguments()  # contradictions are found before anything is loaded
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise click.ClickException(f"serve needs {', '.join(missing)}: pip install 'foredraft[serve]'")
    from foredraft.server.main import run
    from foredraft.server.settings import Settings

    settings = Settings(
        bundle=str(bundle),
        session=session,
        model_name=model_name,
        api_key=api_key,
        sequences=sequences,
        queue=queue,
        cache_mb=cache_mb,
        timeout=timeout,
        max_body=max_body,
        chat_template_kwargs=chat_template_kwargs,
        split_special_tokens=split_special_tokens,
    )
    run(settings, host, port, workers, drain, log_level)
