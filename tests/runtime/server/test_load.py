"""Under load: every answer is the one that the request gets alone, and memory stays flat."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server

PROMPTS = ["What is the capital of France?", "Name three colours.", "Count to five.", "Say hello.", "What is water?"]
CLIENTS, REQUESTS = 16, 200


def requests() -> list[dict[str, Any]]:
    """Twenty different ones: greedy and sampled, with stop strings and without."""
    kinds = [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9}, {"temperature": 1.2, "top_k": 40}]
    kinds.append({"temperature": 0.7, "min_p": 0.1, "stop": [".", "\n"], "frequency_penalty": 0.5})
    return [
        {"content": prompt, "seed": seed, "max_tokens": 8, **kind}
        for seed, kind in enumerate(kinds)
        for prompt in PROMPTS
    ]


def ask(server: Server, fields: dict[str, Any], statuses: Counter[int]) -> str:
    content = fields["content"]
    others = {name: value for name, value in fields.items() if name != "content"}
    while True:
        reply = server.chat(content, **others)
        statuses[reply.status] += 1
        if reply.status != 429:
            return reply.text
        time.sleep(0.3)


def test_answers_under_load_are_those_given_alone(smollm2_server: Server) -> None:
    server, kinds = smollm2_server, requests()
    alone = [ask(server, fields, Counter()) for fields in kinds]
    assert len(set(alone)) > 10
    statuses: Counter[int] = Counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = clients.map(lambda i: ask(server, kinds[i % len(kinds)], statuses), range(REQUESTS))
        for i, answer in enumerate(answers):
            assert answer == alone[i % len(kinds)]
    assert statuses[200] == REQUESTS and set(statuses) <= {200, 429}
    assert server.metric("active_sequences") == server.metric("waiting_requests") == 0


def test_memory_is_flat(start_server: Serve, tiny: Path) -> None:
    """500 requests of all kinds, once a small prefix cache is full: the slope of memory is next to nothing."""
    server = start_server(tiny, "--cache-mb", "2")
    process = psutil.Process(server.process.pid)

    def one(i: int) -> None:
        name = f"{i % 30}"
        if i % 5 == 0:
            server.complete(f"{name} again", max_tokens=20, stream=True)
        elif i % 5 == 1:
            server.chat(f"{name} wrong", temperature=-1)
        elif i % 5 == 2:
            connection, response = server.open_stream(prompt=f"{name} gone")
            response.readline()
            response.close()
            connection.close()
        else:
            server.chat(f"{name} hello ", seed=i, temperature=1, max_tokens=8, logprobs=True, top_logprobs=2)

    seen: list[float] = []
    for i in range(750):
        one(i)
        if i >= 250 and i % 10 == 0:
            seen.append(float(process.memory_full_info().uss))
    slope = np.polyfit(np.arange(len(seen)) * 10, seen, 1)[0]
    assert slope < 3 * 1024, f"{slope / 1024:.1f} KiB per request"
    assert process.num_threads() < 30
    assert server.complete(max_tokens=2).status == 200
    server.stop()
