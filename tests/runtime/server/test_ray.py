"""The Ray Serve application on one machine: two replicas behind Ray's proxy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from foredraft.errors import RequestError
from tests.runtime.server.process import Server

pytestmark = pytest.mark.slow

try:
    import ray
    from ray import serve
except ImportError:
    ray = None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def address(tiny: Path) -> Iterator[str]:
    if ray is None:
        pytest.fail("needs Ray: pip install 'foredraft[ray]'")
    from foredraft.server.ray import build

    port = free_port()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        arguments = {"bundle": str(tiny), "replicas": "2", "threads": "1", "model_name": "tiny"}
        serve.run(build(arguments), route_prefix="/")
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


def test_replicas_answer_as_one_server_does(address: str, server: Server) -> None:
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    expected = server.complete("abc", max_tokens=20, temperature=1, seed=3).text
    fields = {"model": "tiny", "prompt": "abc", "max_tokens": 20, "temperature": 1, "seed": 3}
    for _ in range(6):
        assert client.completions.create(**fields).choices[0].text == expected
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(**fields, stream=True))
    assert streamed == expected
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(**{**fields, "temperature": -1})


def test_arguments_that_make_no_sense_are_refused() -> None:
    if ray is None:
        pytest.fail("needs Ray: pip install 'foredraft[ray]'")
    from foredraft.server.ray import build

    for arguments, expected in (
        ({}, "'bundle' is missing"),
        ({"bundle": "x", "thread": "2"}, "'thread'"),
        ({"bundle": "x", "threads": "two"}, "type int"),
        ({"bundle": "x", "sequences": 0}, "sequences"),
    ):
        with pytest.raises(RequestError, match=expected):
            build(arguments)
