"""What a forward of T nodes takes on this machine: measured once, kept in the user's cache folder, refreshed in use."""

from __future__ import annotations

import contextlib
import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from foredraft.cache_folder import cache_folder, write_atomically

SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 33, 48, 65)
"""Forward sizes that are measured; between them the cost is interpolated."""
REPEATS = 5
_SHARED, _OWN = 0.1, 0.004
"""Weights of a new measurement in the common scale (a growing context slows every size) and in its own size."""
_OUTLIER = 2.0
_REFRESH = 16


class CostCurve:
    """Seconds of a forward of T nodes, never falling with T."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        """``seconds`` of at least T = 1; ValueError if it lacks that or holds what is not positive."""
        if 1 not in seconds or min(seconds.values()) <= 0.0:
            raise ValueError(f"cost curve: got {dict(seconds)}, expected positive seconds, T = 1 among them")
        self._knots = dict(sorted(seconds.items()))
        self._scale = 1.0
        self._age = 0
        self._table: list[float] = []
        self._tabulate()

    @classmethod
    def measured(cls, measure: Callable[[int], float], sizes: tuple[int, ...] = SIZES) -> CostCurve:
        """The medians of several measurements; ``measure(T)`` runs a forward of T nodes and returns its seconds."""
        return cls({size: median(measure(size) for _ in range(REPEATS)) for size in sizes})

    def seconds(self, nodes: int) -> float:
        """Expected seconds of a forward of ``nodes`` nodes; beyond the largest that is known, by the last slope."""
        table = self._table
        if nodes < len(table):
            return table[nodes] * self._scale
        return (table[-1] + (nodes - len(table) + 1) * self._slope) * self._scale

    def slope(self) -> float:
        """Seconds that one more node adds, over the first eight."""
        return (self.seconds(9) - self.seconds(1)) / 8

    def refresh(self, nodes: int, seconds: float) -> None:
        """Learn from one forward. A single slow one counts at most double, a fast one at least half."""
        expected = self.seconds(nodes)
        seconds = min(max(seconds, expected / _OUTLIER), expected * _OUTLIER)
        self._scale *= 1.0 + _SHARED * (seconds / expected - 1.0)
        own = self._knots.get(nodes, expected / self._scale)
        self._knots[nodes] = own + _OWN * (seconds / self._scale - own)
        self._age += 1
        if self._age % _REFRESH == 0:
            self._tabulate()

    def as_dict(self) -> dict[int, float]:
        """Seconds by size."""
        return {size: value * self._scale for size, value in sorted(self._knots.items())}

    def _tabulate(self) -> None:
        sizes, values = zip(*sorted(self._knots.items()), strict=True)
        table, highest = [0.0], 0.0
        for nodes in range(1, sizes[-1] + 1):
            right = bisect_left(sizes, nodes)
            if sizes[right] == nodes:
                value = values[right]
            else:
                share = (nodes - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
                value = values[right - 1] + share * (values[right] - values[right - 1])
            highest = max(highest, value)
            table.append(highest)
        self._table = table
        last = len(table) - 1
        self._slope = (table[last] - table[1]) / (last - 1) if last > 1 else table[1]


def cached_curve(key: str, measure: Callable[[int], float]) -> CostCurve:
    """The curve kept under ``key`` (bundle, backend, threads, machine), or a new one that is then kept.

    A file that cannot be read or written is no error: the curve is measured, and measured again next time.
    """
    try:
        stored = json.loads(_place(key).read_text(encoding="utf-8"))
        if stored["key"] == key:
            return CostCurve({int(size): float(value) for size, value in stored["seconds"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    curve = CostCurve.measured(measure)
    save_curve(key, curve)
    return curve


def save_curve(key: str, curve: CostCurve) -> None:
    """Keep ``curve`` under ``key``, if the cache folder can be written."""
    data = json.dumps({"key": key, "seconds": curve.as_dict()}).encode()
    with contextlib.suppress(OSError):
        write_atomically(_place(key), data)


def _place(key: str) -> Path:
    return cache_folder() / "curves" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
