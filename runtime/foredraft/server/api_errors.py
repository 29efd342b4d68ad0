"""Errors that a client sees, in OpenAI's shape."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from foredraft.errors import ForedraftError, RequestError

_FIELD = re.compile(r"(messages|chat_template_kwargs|split_special_tokens)(\.\w+|\[\d+\])*(?=: )")
"""Fields whose values are only checked where a prompt is made of them."""
_TYPES = {401: "authentication_error", 429: "rate_limit_error", 504: "timeout_error"}


class ApiError(Exception):
    """An answer with a status of 400 or more; ``param`` is the field that is wrong, ``code`` a word for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    def to_json(self) -> dict[str, Any]:
        """The body of the answer."""
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class ClientGoneError(Exception):
    """The client closed the connection; nobody reads the answer."""


def refuse(param: str | None, message: str, code: str | None = None) -> ApiError:
    """A 400 that names the field and what is expected there."""
    return ApiError(400, f"{param}: {message}" if param else message, param=param, code=code)


def as_api_error(error: BaseException) -> ApiError:
    """What a client is told about an error; of one that nobody expected, only that it happened."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestError):
        text = str(error)
        too_long = "the context holds" in text
        named = _FIELD.match(text)
        code = "context_length_exceeded" if too_long else None
        return ApiError(400, text, param=named[0] if named else None, code=code)
    if isinstance(error, asyncio.CancelledError):
        return ApiError(503, "the server is shutting down", code="shutting_down")
    if isinstance(error, ForedraftError):
        return ApiError(500, str(error), code="engine_error")
    return ApiError(500, "an unexpected error; the server's log has the details", code="internal_error")
