"""JSON into frozen dataclasses, each value checked against its annotation. Knows nothing of their meaning."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from functools import cache
from typing import Any, NoReturn, TypeVar

from foredraft.errors import BundleError

Value = TypeVar("Value")


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """As ``load_object``, but raises BundleError, which names the file."""
    try:
        return load_object(data)
    except ValueError as error:
        raise BundleError(f"{where}: {error}") from error


def load_object(data: bytes) -> dict[str, Any]:
    """A JSON object without duplicate keys, at any depth.

    Raises ValueError for anything else, for NaN and Infinity (JSON has none) and for absurd nesting.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"not valid JSON ({reason})") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value


def build(kind: type[Value], value: object, where: str) -> Value:
    """An instance of a dataclass from JSON values; unknown keys are left aside, fields with a default may
    lack.

    Raises BundleError naming the field that is missing or of another type.
    """
    made = _build(kind, value, where, "")
    assert isinstance(made, kind)
    return made


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key[:100]!r}")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _build(kind: Any, value: Any, where: str, path: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _build(next(a for a in args if a is not type(None)), value, where, path)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, _expect(dict, "an object", value, where, path), where, path)
    if origin is tuple:
        items = _expect(list, "a list", value, where, path)
        return tuple(_build(args[0], item, where, f"{path}[{i}]") for i, item in enumerate(items))
    if origin is not None:
        pairs = _expect(dict, "an object", value, where, path)
        return {key: _build(args[1], item, where, f"{path}[{key[:100]!r}]") for key, item in pairs.items()}
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BundleError(f"{where}: {path} must be {kind.__name__}, got {_short(value)}")
    if kind is str and any("\ud800" <= character <= "\udfff" for character in value):
        raise BundleError(f"{where}: {path} is not valid Unicode")
    if kind is int and not 0 <= value < 2**53:
        raise BundleError(f"{where}: {path} is {_short(value)}, expected 0 to 2**53 - 1")
    return value


def _dataclass(kind: Any, value: dict[str, Any], where: str, path: str) -> Any:
    prefix = f"{path}." if path else ""
    parts = {}
    for name, annotation, required in _fields(kind):
        if name in value:
            parts[name] = _build(annotation, value[name], where, f"{prefix}{name}")
        elif required:
            raise BundleError(f"{where}: {prefix}{name} is missing")
    return kind(**parts)


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """(name, annotation, whether it must be given) of each field; evaluating annotations is slow."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return tuple(
        (f.name, hints[f.name], f.default is missing and f.default_factory is missing) for f in dataclasses.fields(kind)
    )


def _expect(kind: type[Value], what: str, value: object, where: str, path: str) -> Value:
    if not isinstance(value, kind):
        raise BundleError(f"{where}: {path or 'the whole'} must be {what}, got {type(value).__name__}")
    return value


def _short(value: object) -> str:
    """A value for a message; a hostile number may have a million digits."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
