"""Foredraft's runtime: a bundle in, text out, several tokens at a time and not one of them changed."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foredraft.async_session import AsyncSession
    from foredraft.bundle import Bundle
    from foredraft.errors import ForedraftError
    from foredraft.result import Chunk, Result, Statistics
    from foredraft.sampling.params import SamplingParams
    from foredraft.session import Session

__all__ = ["AsyncSession", "Bundle", "Chunk", "ForedraftError", "Result", "SamplingParams", "Session", "Statistics"]
__version__ = "0.1.0"

# ONNX Runtime's packages begin to collect usage data when they are imported, unless this is set before.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOME = {
    "AsyncSession": "async_session",
    "Bundle": "bundle",
    "Chunk": "result",
    "ForedraftError": "errors",
    "Result": "result",
    "SamplingParams": "sampling.params",
    "Session": "session",
    "Statistics": "result",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line's help need not load an engine."""
    if name not in _HOME:
        raise AttributeError(f"module 'foredraft' has no attribute {name!r}")
    return getattr(import_module(f"foredraft.{_HOME[name]}"), name)
