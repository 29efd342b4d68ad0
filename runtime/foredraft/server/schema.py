"""Checks JSON values against a small part of JSON Schema, and says in words what is wrong. Knows no field by name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from foredraft.server.api_errors import refuse

Schema = Mapping[str, Any]
"""``type``, ``minimum``, ``maximum``, ``minLength``, ``maxLength``, ``minItems``, ``maxItems``, ``items``, ``enum``,
``properties`` with ``required`` (no others allowed; without it any object is), ``anyOf`` with a ``description`` of what
is expected.
"""
_TYPES: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}
_NAMES = {"number": "a number", "integer": "an integer", "boolean": "true or false", "string": "a string"}
_NAMES |= {"array": "a list", "object": "an object"}


def check(where: str, value: Any, schema: Schema) -> Any:
    """The value (a whole float as an int where an integer is wanted); raises ApiError, naming ``where``."""
    if "anyOf" in schema:
        return _any_of(where, value, schema)
    kind = schema["type"]
    if not fits(value, schema):
        raise refuse(where, f"got {show(value)}, expected {_NAMES[kind]}{_range(schema)}")
    if kind == "array":
        return [check(f"{where}[{i}]", item, schema["items"]) for i, item in enumerate(value)]
    if kind == "object" and "properties" in schema:
        return check_object(where, value, schema)
    return int(value) if kind == "integer" else value


def check_object(where: str, value: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """An object's own fields, null ones left out; one that is unknown or missing is refused."""
    known: Mapping[str, Schema] = schema["properties"]
    prefix = f"{where}." if where else ""
    for name in value:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise refuse(prefix + name[:80], f"this field is not known here{hint}", "unknown_field")
    given = {name: item for name, item in value.items() if item is not None}
    for name in schema.get("required", ()):
        if name not in given:
            raise refuse(prefix + name, "this field is missing")
    return {name: check(prefix + name, item, known[name]) for name, item in given.items()}


def fits(value: Any, schema: Schema) -> bool:
    """Type and bounds of the value itself, not of what is in it."""
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, int | float):
        whole = kind != "integer" or isinstance(value, int) or value.is_integer()
        return whole and bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    if not isinstance(value, str | list):
        return True
    unit = "Length" if kind == "string" else "Items"
    return bool(schema.get(f"min{unit}", 0) <= len(value) <= schema.get(f"max{unit}", len(value)))


def show(value: Any) -> str:
    """A value in an error: short, and never a long text that belongs to a user."""
    if isinstance(value, str):
        return f"a string of {len(value)} characters" if len(value) > 40 else repr(value)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _any_of(where: str, value: Any, schema: Schema) -> Any:
    for option in schema["anyOf"]:
        if fits(value, option) and (option["type"] != "array" or _items_fit(value, option["items"])):
            return check(where, value, option)
    raise refuse(where, f"got {show(value)}, expected {schema['description']}")


def _items_fit(items: list[Any], schema: Schema) -> bool:
    return all(fits(item, schema) for item in items)


def _range(schema: Schema) -> str:
    if "enum" in schema:
        return f": {' or '.join(map(str, schema['enum']))}"
    kind = schema["type"]
    suffix = {"array": "Items", "string": "Length"}.get(kind, "imum")
    unit = {"array": " items", "string": " characters"}.get(kind, "")
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if high is not None:
        return f" of {low or 0} to {high}{unit}" if unit else f" from {low or 0} to {high}"
    return f" of at least {low}{unit}" if low is not None else ""
