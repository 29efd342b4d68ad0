"""Logs as one JSON object per line on standard error. Prompts and answers are never logged."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

ACCESS = "foredraft.access"
"""The logger with one line per request."""


class JsonFormatter(logging.Formatter):
    """time, level, logger and message; then what ``extra={"fields": {...}}`` brought; then the traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_config(level: str) -> dict[str, Any]:
    """For ``logging.config.dictConfig``; uvicorn's own lines are brought into the same form."""
    names = ("foredraft", "uvicorn", "uvicorn.error")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "foredraft.server.logs.JsonFormatter"}},
        "handlers": {"json": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {name: {"handlers": ["json"], "level": level.upper(), "propagate": False} for name in names},
    }
