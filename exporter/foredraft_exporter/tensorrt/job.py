"""One engine to be built, as the worker process is told it; and what it tells. Values only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class BuildJob:
    """Paths are absolute; ``decode`` and ``prefill`` are the most nodes of the two profiles, ``slots`` the most cache
    rows. ``timing_cache`` is None where the library keeps none.
    """

    library: str
    graph: str
    engine: str
    targets: tuple[str, ...]
    decode: int
    prefill: int
    slots: int
    timing_cache: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BuildJob:
        values = json.loads(text)
        return cls(**{**values, "targets": tuple(values["targets"])})


def profile_shape(name: str, shape: Sequence[int], tokens: int, slots: int) -> tuple[int, ...]:
    """An input's shape for ``tokens`` nodes and ``slots`` cache rows; -1 marks what is open."""
    size = slots if name.startswith(("key_", "value_")) else tokens
    return tuple(size if dimension < 0 else dimension for dimension in shape)


def profile_sizes(job: BuildJob) -> list[list[tuple[int, int]]]:
    """For each profile its least, usual and greatest (nodes, cache rows)."""
    usual = min(2048, job.slots)
    decode = [(1, 1), (min(8, job.decode), usual), (job.decode, job.slots)]
    prefill = [(1, 1), (job.prefill, usual), (job.prefill, job.slots)]
    return [decode, prefill]
