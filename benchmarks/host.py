"""What the host does between two forwards: microseconds to pick a token and to draft a tree.

    python benchmarks/host.py

Rows are random, of 49,152 logits; texts are of 4000 random tokens. Every number is the least of many, so that a busy
machine disturbs it little.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np

from foredraft import SamplingParams, drafters
from foredraft.sampling.picking import make_picker

VOCABULARY, TEXT, NODES = 49_152, 4000, 16
SAMPLINGS = {
    "greedy": SamplingParams(),
    "temperature 1": SamplingParams(temperature=1.0),
    "temperature 1, top-p 0.95": SamplingParams(temperature=1.0, top_p=0.95),
}


def least_microseconds(call: Callable[[int], object], times: int = 50) -> float:
    """The quickest of ``call(0)``, ``call(1)``, ..."""
    seconds = []
    for number in range(times):
        started = time.perf_counter()
        call(number)
        seconds.append(time.perf_counter() - started)
    return min(seconds) * 1e6


def main() -> None:
    row = np.random.default_rng(0).standard_normal(VOCABULARY).astype(np.float32) * 3
    for name, params in SAMPLINGS.items():
        picker = make_picker(params)
        print(f"pick, {name}: {least_microseconds(lambda place: picker(row, place, [])):.0f} µs")  # noqa: B023
    for alphabet in (4, 50, 2000):
        text = random.Random(0).choices(range(alphabet), k=TEXT)
        drafter = drafters.create("context", vocab_size=2048)
        drafter.begin(text)
        least = least_microseconds(lambda _: drafter.propose(text, NODES))  # noqa: B023
        print(f"draft {NODES} nodes, text of {alphabet} different tokens: {least:.0f} µs")


if __name__ == "__main__":
    main()
