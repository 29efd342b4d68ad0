"""How fast the engine is on this machine: plain decoding, the cost of T nodes in one forward, opening a session.

    python benchmarks/speed.py bundles/smollm2-135m.foredraft [--threads 1,2] [--rounds 30] [--json OUT]

Times are medians of interleaved runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from foredraft import Bundle
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.loop.chain import Chain

SIZES = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (256, 1024)

OPENING = """
import json, os, sys, time
import psutil, numpy, onnxruntime, tokenizers, jinja2, foredraft.session
from foredraft import Bundle, Session
before, start = psutil.Process().memory_full_info().uss, time.perf_counter()
session = Session(Bundle.open(sys.argv[1]), "none", threads=int(sys.argv[2]))
opened = time.perf_counter() - start
session.generate("Hello", max_tokens=8)
print(json.dumps({"seconds": opened, "bytes": psutil.Process().memory_full_info().uss - before}))
"""


def forward_times(chain: Chain, context: int, rounds: int) -> dict[int, float]:
    """Median seconds of one verification of T nodes (a tree of T-1 drafts) above ``context`` settled tokens."""
    arena, random = chain.arena, np.random.default_rng(0)
    if arena.settled < context:
        chain.prefill(random.integers(100, 1000, context - arena.settled).tolist())
    arena.rewind(context)
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    for turn in range(rounds + 1):
        for size in SIZES:
            parents = [context - 1] + [context + int(random.integers(0, i)) for i in range(1, size)]
            slots = arena.extend(random.integers(100, 1000, size).tolist(), parents)
            start = time.perf_counter()
            chain.verify(slots)
            if turn:  # the first turn binds buffers
                times[size].append(time.perf_counter() - start)
            arena.drop_window()
    return {size: median(seconds) for size, seconds in times.items()}


def opening(bundle: Path, threads: int, repeats: int = 5) -> dict[str, float]:
    """Median seconds to open bundle and session in a fresh process, and the private memory it adds after 8 tokens."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, "-c", OPENING, str(bundle), str(threads)]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {key: median(run[key] for run in runs) for key in ("seconds", "bytes")}


def show(console: Console, threads: int, context: int, times: dict[int, float]) -> None:
    table = Table(title=f"{threads} thread(s), context {context}", title_justify="left")
    table.add_column("nodes in one forward")
    for size in SIZES:
        table.add_column(str(size), justify="right")
    table.add_row("ms", *(f"{1000 * times[size]:.2f}" for size in SIZES))
    table.add_row("t(T)/t(1)", *(f"{times[size] / times[1]:.2f}" for size in SIZES))
    console.print(table)
    console.print(f"plain decoding: {1 / times[1]:.1f} tokens/s\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", default="1,2", help="comma-separated thread counts")
    parser.add_argument("--rounds", type=int, default=30, help="forwards per size")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    console, figures = Console(highlight=False), {}
    bundle = Bundle.open(arguments.bundle)
    for threads in (int(count) for count in arguments.threads.split(",")):
        engine = OnnxRuntimeEngine(bundle, threads)
        layers = [segment.last - segment.first for segment in bundle.manifest.segments]
        chain = Chain(engine.open_sequence(CONTEXTS[-1] + 256), layers)
        for context in CONTEXTS:
            times = forward_times(chain, context, arguments.rounds)
            figures[f"threads={threads} context={context}"] = times
            show(console, threads, context, times)
    opened = opening(arguments.bundle, 1)
    figures["opening"] = opened
    console.print(f"opening a session: {opened['seconds']:.3f} s, {opened['bytes'] / 1e6:.1f} MB of private memory")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
