"""The body of a request: bounded in size and time, JSON to the letter, one object."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from foredraft.server.api_errors import ApiError, ClientGoneError

READ_SECONDS = 30.0
"""A body that takes longer than this to arrive is given up."""


async def read_object(request: Request, limit: int) -> dict[str, Any]:
    """The JSON object in the body. Raises ApiError: 413 over ``limit`` bytes, 415 another content type, 408 too
    slow, 400 not a JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"content-type: got {kind or 'none'}, expected application/json")
    try:
        async with asyncio.timeout(READ_SECONDS):
            body = await _read(request, limit)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {READ_SECONDS:.0f} seconds") from None
    except ClientDisconnect:
        raise ClientGoneError from None
    return parse_object(body)


async def _read(request: Request, limit: int) -> bytes:
    too_large = ApiError(413, f"the body is larger than {limit} bytes", code="request_too_large")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise too_large
    return bytes(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """Raises ApiError if ``body`` is not one JSON object in UTF-8 with each key once and finite numbers."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ApiError(400, f"the body is not JSON: {error.msg} ({where})") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ApiError(400, f"the body is not JSON that can be read: {reason}") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is a JSON {_kind(value)}, expected an object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} appears twice in one object")
    return found


def _kind(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names[type(value)]
