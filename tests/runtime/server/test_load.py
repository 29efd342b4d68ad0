"""Under load: every answer is the one that the request gets alone, and memory stays flat."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Reply, Server
from tests.waiting import until

pytestmark = pytest.mark.slow

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

    def taken() -> Reply | None:
        reply = server.chat(content, **others)
        statuses[reply.status] += 1
        return reply if reply.status != 429 else None

    reply = until(taken, "there is room in the queue", pause=0.3)
    assert reply is not None
    return reply.text


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
    """Memory settles: 500 requests of all kinds add next to nothing, once the sequences have seen all there is to see.

    How soon that is depends on how busy the machine is, which decides how far answers get whose client is gone. The
    median, because another of a few threads may start at any time, which takes megabytes, once.
    """
    server = start_server(tiny, "--cache-mb", "2")
    process = psutil.Process(server.process.pid)

    def one(i: int) -> None:
        name = f"{i % 30}"
        if i % 5 == 0:
            server.complete(f"{name} again", max_tokens=20, stream=True)
        elif i % 5 == 1:
            server.chat(f"{name} wrong", temperature=-1)
        elif i % 5 == 2:
            # How far such an answer comes depends on the machine; a kept text takes memory by its length.
            connection, response = server.open_stream(prompt=f"{name} gone", max_tokens=60)
            response.readline()
            response.close()
            connection.close()
        else:
            server.chat(f"{name} hello ", seed=i, temperature=1, max_tokens=8, logprobs=True, top_logprobs=2)

    for i in range(250):
        one(i)
    for start in range(250, 6 * 500, 500):
        seen: list[float] = []
        for i in range(start, start + 500):
            one(i)
            if i % 10 == 0:
                seen.append(float(process.memory_full_info().uss))
        added = float(np.median(np.diff(seen))) / 10
        if added < 2 * 1024:
            break
    assert added < 2 * 1024, f"{added / 1024:.1f} KiB per request"
    assert process.num_threads() < 30
    assert server.complete(max_tokens=2).status == 200
    server.stop()
