"""Mean accepted tokens (MAT) of every drafter by tree size, without a model: recorded answers are drafted again.

    python benchmarks/replay.py record BUNDLE --questions FILE --out traces.jsonl [--per-category 4] [--max-tokens 128]
    python benchmarks/replay.py run traces.jsonl --model model.fdb --corpus corpus.fdb [--sizes 8,16,32,64]

A drafter cannot change the text, so what it would have accepted follows from the text alone. MAT counts the model's own
token of each round. Every run starts from a fresh drafter: nothing that was learned from the same answers survives.
A trace is a JSON object a line: ``category``, ``prompt`` and ``output`` (token ids), ``top`` (for each output token the
ids of the 8 highest logits that chose it).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from foredraft import Bundle, Session, drafters
from foredraft.databases.database import Database
from foredraft.drafters.blend.drafter import Blend
from foredraft.drafters.levels.recycled import likeliest
from foredraft.drafters.pools import Pools
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.drafters.protocol import Drafter
from foredraft.drafters.recycling import Recycling
from foredraft.drafters.suffix import Suffix
from foredraft.loop.tree import TIP, Tree

Trace = dict[str, Any]
BUCKETS = 16


class Top:
    """Drafts like ``inner`` and keeps the 8 highest logits of every token of the answer."""

    wants_logits = True

    def __init__(self, inner: Drafter) -> None:
        self._inner, self.name, self.level_names = inner, inner.name, inner.level_names
        self.rows: list[list[int]] = []

    def begin(self, prompt: Sequence[int]) -> None:
        self.rows = []
        self._inner.begin(prompt)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        return self._inner.propose(context, budget, minimum)

    def commit(self, tokens: Sequence[int], logits: Any) -> None:
        self.rows += [likeliest(row) for row in logits[: len(tokens)]]
        self._inner.commit(tokens, None)

    def rewind(self, length: int) -> None:
        self._inner.rewind(length)

    def finish(self) -> None:
        self._inner.finish()


def record(options: argparse.Namespace) -> None:
    """Answer the first turns of the questions and write the traces."""
    bundle = Bundle.open(options.bundle)
    top = Top(drafters.create("context", vocab_size=bundle.manifest.model.vocab_size))
    session = Session(bundle, top)
    taken: dict[str, int] = defaultdict(int)
    with options.out.open("w") as out:
        for line in options.questions.read_text().splitlines():
            question = json.loads(line)
            category = question.get("category", "")
            if taken[category] >= options.per_category:
                continue
            taken[category] += 1
            prompt = session.encode(messages=[{"role": "user", "content": question["turns"][0]}])
            output = list(session.generate(prompt, max_tokens=options.max_tokens).tokens)
            trace = {"category": category, "prompt": prompt, "output": output, "top": top.rows[: len(output)]}
            out.write(json.dumps(trace) + "\n")


class Replay:
    """Drafts recorded answers with one drafter: tokens and rounds by category, node outcomes, times."""

    def __init__(self, drafter: Drafter, budget: int, vocab_size: int) -> None:
        self.drafter, self.budget, self._vocab_size = drafter, budget, vocab_size
        self.tokens: dict[str, int] = defaultdict(int)
        self.rounds: dict[str, int] = defaultdict(int)
        self.outcomes: list[tuple[float, bool]] = []
        self.seconds: list[float] = []

    def mat(self, category: str | None = None) -> float:
        """Tokens a round, overall or of one category."""
        names = list(self.tokens) if category is None else [category]
        return sum(self.tokens[name] for name in names) / max(1, sum(self.rounds[name] for name in names))

    def add(self, trace: Trace) -> None:
        """Replay one answer. Its first token comes from the prompt's forward and is not counted."""
        text, output = list(trace["prompt"]), trace["output"]
        self.drafter.begin(text)
        place = 0
        while place < len(output):
            accepted = 0
            if place:
                started = time.perf_counter()
                tree = self.drafter.propose(text, self.budget)
                self.seconds.append(time.perf_counter() - started)
                accepted = self._judge(tree, output[place:])
            end = min(place + accepted + 1, len(output))
            if place:
                self.tokens[trace["category"]] += end - place
                self.rounds[trace["category"]] += 1
            self.drafter.commit(output[place:end], self._logits(trace["top"][place:end]))
            text += output[place:end]
            place = end

    def _judge(self, tree: Tree, truth: list[int]) -> int:
        on_path, depths = {TIP}, tree.depths()
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if depths[node] <= len(truth):
                hit = parent in on_path and truth[depths[node] - 1] == token
                on_path.update([node] if hit else [])
                self.outcomes.append((tree.probabilities[node], hit))
        return len(on_path) - 1

    def _logits(self, rows: list[list[int]]) -> Any:
        if not self.drafter.wants_logits:
            return None
        logits = np.full((len(rows), self._vocab_size), -100.0, np.float32)
        for index, row in enumerate(rows):
            logits[index, row] = np.arange(len(row), 0, -1)
        return logits


def run(options: argparse.Namespace) -> None:
    """Print MAT by drafter and tree size, the categories of one size, and the blend's calibration."""
    traces = [json.loads(line) for line in options.traces.read_text().splitlines()]
    model, corpus = Database(options.model), Database(options.corpus)
    vocab = max(model.vocab_size, corpus.vocab_size)
    made: dict[str, Callable[[], Drafter]] = {
        "prompt-lookup": PromptLookup,
        "recycling": lambda: Recycling(model),
        "pools": lambda: Pools(vocab, None, model, corpus),
        "suffix": lambda: Suffix(vocab, None, model, corpus),
        "blend, context": lambda: Blend(vocab, "context"),
        "blend, context + model": lambda: Blend(vocab, "context,model", model),
        "blend, context + model + corpus": lambda: Blend(vocab, "context,model,corpus", model, corpus),
        "blend": lambda: Blend(vocab, None, model, corpus),
    }
    sizes = [int(size) for size in options.sizes.split(",")]
    table = Table("drafter", *(f"{size} nodes" for size in sizes), "ms, median")
    replays: dict[tuple[str, int], Replay] = {}
    for name, make in made.items():
        for size in sizes:
            replay = replays[name, size] = Replay(make(), size, vocab)
            for trace in traces:
                replay.add(trace)
        times = "/".join(f"{1000 * median(replays[name, size].seconds):.2f}" for size in sizes)
        table.add_row(name, *(f"{replays[name, size].mat():.2f}" for size in sizes), times)
    console = Console()
    console.print(table)
    _print_categories(console, replays, list(made), sizes)
    _print_calibration(console, replays["blend", sizes[min(1, len(sizes) - 1)]])


def _print_categories(
    console: Console, replays: dict[tuple[str, int], Replay], names: list[str], sizes: list[int]
) -> None:
    baselines = [name for name in names if not name.startswith("blend")]
    categories = list(replays["blend", sizes[0]].tokens)
    size = sizes[min(1, len(sizes) - 1)]
    table = Table(f"{size} nodes", *names)
    for category in categories:
        table.add_row(category, *(f"{replays[name, size].mat(category):.2f}" for name in names))
    console.print(table)
    for size in sizes:
        wins = [c for c in categories if _best(replays, baselines, size, c) < replays["blend", size].mat(c)]
        console.print(
            f"{size} nodes: the blend is ahead of every baseline in {len(wins)} of {len(categories)} categories"
        )


def _best(replays: dict[tuple[str, int], Replay], names: list[str], size: int, category: str) -> float:
    return max(replays[name, size].mat(category) for name in names)


def _print_calibration(console: Console, replay: Replay) -> None:
    buckets: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for probability, hit in replay.outcomes:
        buckets[min(BUCKETS, int(-2 * log2(probability)))].append((probability, hit))
    table = Table("path probability", "nodes", "predicted", "observed", "ratio", title=f"blend, {replay.budget} nodes")
    for bucket, outcomes in sorted(buckets.items()):
        predicted = sum(p for p, _ in outcomes) / len(outcomes)
        observed = sum(hit for _, hit in outcomes) / len(outcomes)
        row = (str(len(outcomes)), f"{predicted:.4f}", f"{observed:.4f}", f"{predicted / max(observed, 1e-9):.2f}")
        table.add_row(f"up to {2 ** (-bucket / 2):.3f}", *row)
    console.print(table)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record")
    recording.add_argument("bundle", type=Path)
    recording.add_argument("--questions", type=Path, required=True)
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--per-category", type=int, default=4)
    recording.add_argument("--max-tokens", type=int, default=128)
    recording.set_defaults(run=record)
    running = commands.add_parser("run")
    running.add_argument("traces", type=Path)
    running.add_argument("--model", type=Path, required=True)
    running.add_argument("--corpus", type=Path, required=True)
    running.add_argument("--sizes", default="8,16,32,64")
    running.set_defaults(run=run)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
