"""The values of a model's files, read by type: a wrong one is an error that says file, key, got and expected."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foredraft.errors import CheckpointError
from foredraft_exporter.sources.mapped import read_small

MOST = 2**31 - 1
"""The largest size that makes sense anywhere in a model."""
_MOST_NUMBER = 3e38  # graphs and kernels compute in float32


class Fields(Mapping[str, Any]):
    """One object of a file. As a mapping it has the values as they are; the methods have them checked.

    A key that is absent and has no default is an error. Null is what it is in Hugging Face's files, the same as
    absent, only where a method says so.
    """

    def __init__(
        self, values: Mapping[str, Any], where: str | Path, path: str = "", names: Mapping[str, str] | None = None
    ) -> None:
        """``path`` leads to this object inside the file; ``names`` are the file's own for full keys that differ."""
        self.where = str(where)
        self._values, self._path, self._names = values, path, names or {}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Fields:
        """``config`` itself if it knows its file."""
        return config if isinstance(config, Fields) else cls(config, "config")

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def replaced(self, **values: Any) -> Fields:
        """The same with other values."""
        return Fields({**self._values, **values}, self.where, self._path, self._names)

    def name(self, key: str) -> str:
        """The key as the file spells it, from the top."""
        return self._names.get(self._path + key, self._path + key)

    def fault(self, key: str, expected: str) -> CheckpointError:
        """The error for a value that is not ``expected``."""
        got = f"got {describe(self[key])}" if key in self else "missing"
        return CheckpointError(f"{self.where}: {self.name(key)}: {got}, expected {expected}")

    def whole(self, key: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        value = self.get(key, default)
        if type(value) is not int or not least <= value <= most:
            raise self.fault(key, f"a whole number from {least} to {most}")
        return value

    def whole_or_none(self, key: str, least: int = 1) -> int | None:
        """None for null, too."""
        return None if self.get(key) is None else self.whole(key, least=least)

    def number(self, key: str, default: float | None = None, above: float = 0.0) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float) or not above < value < _MOST_NUMBER:
            raise self.fault(key, f"a number{_above(above)}")
        return float(value)

    def number_or_none(self, key: str, above: float = 0.0) -> float | None:
        """None for null, too."""
        return None if self.get(key) is None else self.number(key, above=above)

    def numbers(self, key: str, above: float = -math.inf) -> list[float]:
        values = self.get(key)
        if not isinstance(values, list) or not all(
            type(value) in (int, float) and above < value < _MOST_NUMBER for value in values
        ):
            raise self.fault(key, f"a list of numbers{_above(above)}")
        return [float(value) for value in values]

    def flag(self, key: str, default: bool = False) -> bool:
        """The default for null, too."""
        value = self.get(key)
        if value is not None and type(value) is not bool:
            raise self.fault(key, "true or false")
        return default if value is None else value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.fault(key, "a text")
        if not is_unicode(value):
            raise self.fault(key, "a text in UTF-8")
        return value

    def text_or_none(self, key: str) -> str | None:
        """None for null, too."""
        return None if self.get(key) is None else self.text(key)

    def texts(self, key: str) -> list[str]:
        """Empty if absent or null."""
        values = [] if self.get(key) is None else self[key]
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self.fault(key, "a list of texts")
        if not is_unicode("".join(values)):
            raise self.fault(key, "a list of texts in UTF-8")
        return values

    def wholes(self, key: str, least: int, most: int) -> list[int]:
        """Empty if absent or null."""
        values = [] if self.get(key) is None else self[key]
        if not isinstance(values, list) or not all(type(v) is int and least <= v <= most for v in values):
            raise self.fault(key, f"a list of whole numbers from {least} to {most}")
        return values

    def ids(self, key: str) -> list[int]:
        """Tokens' ids: one, a list of them, or none for null; one below 0 stands for none, too."""
        value = self.get(key)
        values = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(item) is int for item in values):
            raise self.fault(key, "a token's id or a list of ids")
        return [item for item in values if item >= 0]

    def object(self, key: str) -> Fields:
        """Empty if absent or null."""
        value = {} if self.get(key) is None else self[key]
        if not isinstance(value, Mapping):
            raise self.fault(key, "an object")
        return Fields(value, self.where, f"{self._path}{key}.", self._names)

    def objects(self, key: str) -> list[Fields]:
        """Empty if absent or null."""
        values = [] if self.get(key) is None else self[key]
        if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
            raise self.fault(key, "a list of objects")
        return [Fields(v, self.where, f"{self._path}{key}[{i}].", self._names) for i, v in enumerate(values)]


def read_fields(path: Path) -> Fields:
    """A file that is one JSON object; without the file an empty one."""
    if not path.exists():
        return Fields({}, path)
    try:
        value = json.loads(read_small(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not valid JSON in UTF-8 ({error}); download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds {describe(value)}, expected an object")
    return Fields(value, path)


def read_text(path: Path) -> str:
    """A file of text; raises ``CheckpointError`` if it is in another encoding than UTF-8."""
    try:
        return read_small(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{path}: is not text in UTF-8 (byte {error.start}); save it in that encoding, or download it again"
        ) from error


def describe(value: object) -> str:
    """A value for a message, short whatever it is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"
    text = repr(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _above(above: float) -> str:
    return f" above {above:g}" if above > -math.inf else ""


def is_unicode(text: str) -> bool:
    """False for what was no UTF-8 in the file, and for lone surrogates, which JSON can spell."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
