"""The server on this machine: first token with a cached prefix, answers under load, memory.

    python benchmarks/serving.py bundles/smollm2-135m.foredraft [--threads 2] [--pairs 15] [--requests 200]
        [--clients 16] [--json OUT]

First token: prompts of 500 tokens, of which 400 are cached or none, taken in turn; medians. Load: every answer is
compared with the one that the same request gets alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

PROMPT, SHARED = 500, 400
QUESTIONS = ("What is the capital of France?", "Name three colours.", "Count to five.", "Say hello.", "What is water?")
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.2, "top_k": 40},
    {"temperature": 0.7, "min_p": 0.1},
)


class Client:
    """Speaks to one server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, http.client.HTTPResponse]:
        """The status, and a response that is not read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        connection.request("POST", path, json.dumps({"model": "served", **body}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response

    def first_token(self, tokens: list[int]) -> tuple[float, int]:
        """Seconds to the first token of an answer to a prompt, and how many tokens of the prompt were cached."""
        body = {"prompt": tokens, "max_tokens": 1, "temperature": 0, "stream": True}
        started = time.perf_counter()
        _, response = self.post("/v1/completions", {**body, "stream_options": {"include_usage": True}})
        response.readline()
        seconds = time.perf_counter() - started
        events = [json.loads(line[6:]) for line in response if line.startswith(b"data: {")]
        return seconds, events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]

    def chat(self, fields: dict[str, Any]) -> tuple[str, int, int]:
        """The answer's text, its tokens, and how often the queue was full before."""
        refused = 0
        while True:
            status, response = self.post("/v1/chat/completions", fields)
            body = json.loads(response.read())
            if status != 429:
                return body["choices"][0]["message"]["content"], body["usage"]["completion_tokens"], refused
            refused += 1
            time.sleep(0.3)


def first_tokens(client: Client, pairs: int) -> dict[str, Any]:
    """Cached and uncached prompts in turn."""
    random = np.random.default_rng(0)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in random.integers(1000, 20_000, count)]

    shared = tokens(SHARED)
    client.first_token(shared + tokens(PROMPT - SHARED))
    cold, warm, cached = [], [], []
    for _ in range(pairs):
        cold.append(client.first_token(tokens(PROMPT))[0])
        seconds, count = client.first_token(shared + tokens(PROMPT - SHARED))
        warm.append(seconds)
        cached.append(count)
    return {
        "uncached": median(cold),
        "cached": median(warm),
        "ratio": median(cold) / median(warm),
        "tokens": min(cached),
    }


def load(client: Client, requests: int, clients: int, max_tokens: int = 16) -> dict[str, Any]:
    """Requests of twenty kinds from several clients at once."""
    kinds = [
        {"messages": [{"role": "user", "content": question}], "seed": seed, "max_tokens": max_tokens, **sampling}
        for seed, sampling in enumerate(SAMPLINGS)
        for question in QUESTIONS
    ]
    alone = [client.chat(kind)[0] for kind in kinds]
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda i: client.chat(kinds[i % len(kinds)]), range(requests)))
    seconds = time.perf_counter() - started
    return {
        "requests": requests,
        "clients": clients,
        "seconds": seconds,
        "tokens_per_second": sum(tokens for _, tokens, _ in answers) / seconds,
        "different": sum(text != alone[i % len(kinds)] for i, (text, _, _) in enumerate(answers)),
        "refused": sum(refused for _, _, refused in answers),
    }


def memory(client: Client, process: psutil.Process, requests: int = 500) -> dict[str, float]:
    """The slope of the server's own memory over small requests, after the first hundred."""
    seen = []
    for i in range(requests):
        client.chat({"messages": [{"role": "user", "content": f"{i} " * (i % 9 + 1)}], "max_tokens": 2, "seed": i})
        if i >= 100 and i % 10 == 0:
            seen.append(process.memory_full_info().uss)
    slope = float(np.polyfit(np.arange(len(seen)) * 10, seen, 1)[0])
    return {"bytes_per_request": slope, "megabytes": seen[-1] / 1e6}


def start(bundle: Path, threads: int) -> tuple[subprocess.Popen[bytes], int]:
    """A server on a free port."""
    options = [
        "--port",
        "0",
        "--threads",
        str(threads),
        "--model-name",
        "served",
        "--queue",
        "8",
        "--log-level",
        "error",
    ]
    command = [sys.executable, "-m", "foredraft.cli", "serve", str(bundle), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    found = re.search(rb":(\d+)\s*$", process.stdout.readline())
    if not found:
        raise SystemExit("the server did not start")
    return process, int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    process, port = start(given.bundle, given.threads)
    try:
        client = Client(port)
        results = {
            "first_token": first_tokens(client, given.pairs),
            "load": load(client, given.requests, given.clients),
            "memory": memory(client, psutil.Process(process.pid)),
        }
    finally:
        process.terminate()
        process.wait()
    table = Table("", "figure", "value", title=f"{given.bundle.name}, {given.threads} threads", title_justify="left")
    for name, figures in results.items():
        for figure, value in figures.items():
            table.add_row(name, figure, f"{value:,.3f}" if isinstance(value, float) else str(value))
    Console().print(table)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
