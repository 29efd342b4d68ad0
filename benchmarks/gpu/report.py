"""A table of what was checked on a device: a line for each figure, and whether it is as it should be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

OK, FAILED, MEASURED, NOT_RUN = "ok", "FAILED", "measured", "not run"


@dataclass(frozen=True, slots=True)
class Line:
    step: str
    what: str
    value: str
    verdict: str


@dataclass(slots=True)
class Report:
    """Collects lines; ``failed`` if one of them is not as it should be."""

    lines: list[Line] = field(default_factory=list)

    def add(self, step: str, what: str, value: object, good: bool | None = None) -> None:
        """``good`` None: a figure that is only told."""
        self.lines.append(Line(step, what, str(value), MEASURED if good is None else OK if good else FAILED))

    def skip(self, step: str, what: str, reason: str) -> None:
        """What would have been done, and why it was not."""
        self.lines.append(Line(step, what, reason, NOT_RUN))

    @contextmanager
    def guarded(self, step: str) -> Iterator[None]:
        """An error in the block is a line, and the next step runs all the same."""
        try:
            yield
        except Exception as error:
            self.lines.append(Line(step, type(error).__name__, " ".join(str(error).split()), FAILED))

    @property
    def failed(self) -> bool:
        return any(line.verdict == FAILED for line in self.lines)

    def text(self) -> str:
        """The table."""
        rows = [("step", "what", "value", "verdict"), *(tuple(asdict(line).values()) for line in self.lines)]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{row[3]:9} {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}" for row in rows)

    def write(self, path: Path) -> None:
        """The lines as JSON."""
        path.write_text(json.dumps([asdict(line) for line in self.lines], indent=1) + "\n", encoding="utf-8")
