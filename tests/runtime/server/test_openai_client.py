"""The official ``openai`` client, which checks the shape of answers, streams and errors for us."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from foredraft import Bundle, SamplingParams, Session
from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="only 'tiny'"):
        client.models.retrieve("large")


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_chat_answer_is_that_of_the_session(client: openai.OpenAI, tiny: Path, temperature: float) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_completion_tokens=40, temperature=temperature, seed=7
    )
    sampling = SamplingParams(temperature=temperature, seed=7)
    alone = Session(Bundle.open(tiny), "none").generate(messages=QUESTION, max_tokens=40, sampling=sampling)
    assert answer.choices[0].message.content == alone.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == {"eos": "stop"}.get(alone.finish_reason, alone.finish_reason)
    assert answer.usage.prompt_tokens == alone.stats.prompt_tokens
    assert answer.usage.completion_tokens == len(alone.tokens)


def test_a_streamed_chat_answer_is_the_same(client: openai.OpenAI) -> None:
    fields = {"model": "tiny", "messages": QUESTION, "max_tokens": 40, "temperature": 0.7, "seed": 3}
    whole = client.chat.completions.create(**fields)
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_completions_whole_and_streamed(client: openai.OpenAI) -> None:
    fields = {"model": "tiny", "prompt": ["one two", "three"], "max_tokens": 12, "seed": 1, "n": 2}
    whole = client.completions.create(**fields)
    texts = [""] * 4
    for chunk in client.completions.create(**fields, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert whole.usage.completion_tokens <= 48


def test_the_second_answer_has_the_next_seed(client: openai.OpenAI) -> None:
    fields = {"model": "tiny", "prompt": "abc", "max_tokens": 12}
    both = client.completions.create(**fields, seed=5, n=2)
    single = [client.completions.create(**fields, seed=seed).choices[0].text for seed in (5, 6)]
    assert [choice.text for choice in both.choices] == single


def test_answers_without_a_seed_differ(client: openai.OpenAI) -> None:
    texts = {client.completions.create(model="tiny", prompt="abc", max_tokens=12).choices[0].text for _ in range(4)}
    assert len(texts) > 1


def test_errors_are_those_of_openai(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature: got 1000") as caught:
        client.chat.completions.create(model="tiny", messages=QUESTION, temperature=1000)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt", messages=QUESTION)
    assert missing.value.code == "model_not_found"


def test_an_answer_can_be_sent_back_as_a_message(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4)
    said = answer.choices[0].message.model_dump()
    messages = [*QUESTION, said, {"role": "user", "content": [{"type": "text", "text": "Go on."}]}]
    again = client.chat.completions.create(model="tiny", messages=messages, max_tokens=4)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens


def test_the_key_is_asked_for(start_server: Serve, tiny: Path) -> None:
    server = start_server(tiny, environment={"FOREDRAFT_API_KEY": "s3cret"})
    base = f"http://127.0.0.1:{server.port}/v1"
    for key in ("wrong", "s3cret2", "s3cre"):
        with pytest.raises(openai.AuthenticationError, match="Authorization: Bearer"):
            openai.OpenAI(base_url=base, api_key=key).models.list()
    assert openai.OpenAI(base_url=base, api_key="s3cret").models.list().data[0].id == "tiny"
    assert server.request("GET", "/health").status == 200
    assert server.request("GET", "/").status == 200
    assert server.stop() == 0


def test_usage_is_null_but_in_the_last_chunk(client: openai.OpenAI) -> None:
    """Where it was asked for; otherwise it is not there."""
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 8, "stream": True}
    for given, told in (({"include_usage": True}, True), ({"include_usage": False}, False), (None, False)):
        options = {"stream_options": given} if given is not None else {}
        for stream in (
            client.chat.completions.create(messages=[{"role": "user", "content": "hi"}], **asked, **options),
            client.completions.create(prompt="hi", **asked, **options),
        ):
            chunks = [chunk.to_dict() for chunk in stream]
            assert len(chunks) > 2
            assert [("usage" in chunk, chunk.get("usage") is None) for chunk in chunks[:-1]] == [(told, True)] * (
                len(chunks) - 1
            )
            assert ("usage" in chunks[-1], not chunks[-1]["choices"]) == (told, told)


def test_content_as_parts(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "hi."}]
    answers = [
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": content}], temperature=0, max_tokens=9
        )
        for content in ("Say hi.", parts)
    ]
    assert answers[0].usage.prompt_tokens == answers[1].usage.prompt_tokens
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
