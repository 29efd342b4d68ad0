"""What cannot be served is refused in OpenAI's shape, and the next request works."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runtime.server.process import Reply, Server

HELLO = [{"role": "user", "content": "hello"}]


def post(server: Server, path: str, fields: dict[str, Any]) -> Reply:
    base: dict[str, Any] = {"model": "tiny", "max_tokens": 4}
    base |= {"messages": HELLO} if "chat" in path else {"prompt": "hello"}
    return server.request("POST", path, base | fields)


def assert_works(server: Server) -> None:
    assert server.complete(max_tokens=4).status == 200


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("temperature", {"temperature": -1}, "from 0 to 100"),
    ("temperature", {"temperature": "hot"}, "a number"),
    ("temperature", {"temperature": True}, "a number"),
    ("temperature", {"temperature": 1e300}, "from 0 to 100"),
    ("top_p", {"top_p": 1.5}, "from 0 to 1"),
    ("top_p", {"top_p": -0.1}, "from 0 to 1"),
    ("top_k", {"top_k": -1}, "an integer"),
    ("top_k", {"top_k": 1.5}, "an integer"),
    ("min_p", {"min_p": [0.1]}, "a number"),
    ("seed", {"seed": -(2**63) - 1}, "an integer"),
    ("seed", {"seed": 2**64}, "an integer"),
    ("n", {"n": 0}, "from 1 to 16"),
    ("n", {"n": 10**6}, "from 1 to 16"),
    ("max_tokens", {"max_tokens": -1}, "an integer"),
    ("max_tokens", {"max_tokens": 10**30}, "an integer"),
    ("max_tokens", {"max_tokens": "12"}, "an integer"),
    ("presence_penalty", {"presence_penalty": 3}, "from -2 to 2"),
    ("frequency_penalty", {"frequency_penalty": -3}, "from -2 to 2"),
    ("repetition_penalty", {"repetition_penalty": 0}, "from 0.01"),
    ("stop", {"stop": ""}, "1 to 256 characters"),
    ("stop", {"stop": ["a", 1]}, "a list of"),
    ("stop", {"stop": ["x"] * 17}, "at most 16"),
    ("stop", {"stop": "x" * 300}, "1 to 256 characters"),
    ("stream", {"stream": "yes"}, "true or false"),
    ("stream_options", {"stream_options": {"include_usage": True}}, "needs stream"),
    ("stream_options.usage", {"stream": True, "stream_options": {"usage": True}}, "not known"),
    ("user", {"user": 5}, "a string"),
    ("foredraft.trace", {"foredraft": {"trace": True}}, "needs stream"),
    ("temprature", {"temprature": 1}, "did you mean 'temperature'"),
    ("model", {"model": None}, "missing"),
    ("model", {"model": 7}, "a string"),
]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(("param", "fields", "expected"), WRONG)
def test_wrong_values(server: Server, path: str, param: str, fields: dict[str, Any], expected: str) -> None:
    reply = post(server, path, fields)
    assert reply.status == 400
    assert reply.error["param"] == param
    assert reply.error["type"] == "invalid_request_error"
    assert param in reply.error["message"] and expected in reply.error["message"]


CALLING = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
CHAT_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "1 to 10000 items"),
    ({"messages": None}, "missing"),
    ({"messages": "hello"}, "a list"),
    ({"messages": ["hello"]}, "an object"),
    ({"messages": [{}]}, "role"),
    ({"messages": [{"role": "user"}]}, "content"),
    ({"messages": [{"role": "user", "content": None}]}, "content"),
    ({"messages": [{"role": "user", "content": 5}]}, "list of text parts"),
    ({"messages": [{"role": "function", "content": "x"}]}, "system or developer or user or assistant or tool"),
    ({"messages": [{"role": "user", "content": "x", "name": "Ann"}]}, "messages[0].name: not supported: this model's"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0]: image_url is not supported: this model reads text",
    ),
    ({"messages": [CALLING]}, "messages[0].tool_calls: not supported: this model's chat template leaves out calls"),
    ({"messages": [{"role": "user", "content": "x", "tool_call_id": "1"}]}, "only a message of role 'tool'"),
    ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call: this server"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "does not read it; it reads: none"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages: is not for a request to set"),
    ({"chat_template_kwargs": []}, "an object"),
    ({"split_special_tokens": 1}, "true or false"),
    ({"top_logprobs": 2}, "needs logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "from 0 to 20"),
    ({"logprobs": 2}, "true or false"),
]


@pytest.mark.parametrize(("fields", "expected"), CHAT_WRONG)
def test_wrong_chat_fields(server: Server, fields: dict[str, Any], expected: str) -> None:
    reply = post(server, "/v1/chat/completions", fields)
    assert reply.status == 400 and expected in reply.error["message"]
    assert reply.error["param"] and reply.error["message"].startswith(reply.error["param"])
    assert_works(server)


@pytest.mark.parametrize("prompt", [None, 5, {}, [[]], [], [1.5], [-1], [99999], ["a", 1], [[1], "a"], [None]])
def test_wrong_prompts(server: Server, prompt: object) -> None:
    reply = post(server, "/v1/completions", {"prompt": prompt})
    if prompt in ([], [[]]):
        assert reply.status == 200  # no text at all: the answer begins after BOS
    else:
        assert reply.status == 400 and reply.error["message"]
    assert_works(server)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "auto"),
        ("logit_bias", {"5": 10}),
        ("store", True),
        ("reasoning_effort", "high"),
        ("prediction", {"type": "content", "content": "x"}),
        ("parallel_tool_calls", True),
        ("echo", True),
        ("best_of", 2),
        ("best_of", True),
        ("suffix", "end"),
    ],
)
def test_what_is_not_supported_is_refused_and_not_ignored(server: Server, field: str, value: object) -> None:
    for path in ("/v1/chat/completions", "/v1/completions"):
        reply = post(server, path, {field: value})
        assert (reply.status, reply.error["param"]) == (400, field)
        assert reply.error["code"] == "unsupported_field"


def test_values_that_ask_for_nothing_are_accepted(server: Server) -> None:
    off = {"response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "logit_bias": {}, "store": False}
    off |= {"echo": False, "best_of": 1, "suffix": None, "functions": None, "temperature": None, "stop": None}
    off |= {"stream_options": {"include_usage": False}, "top_logprobs": 0, "chat_template_kwargs": {}}
    assert post(server, "/v1/chat/completions", off).status == 200


def test_values_of_openai_at_the_edges(server: Server) -> None:
    """Each means what OpenAI's API says it does."""
    greedy = server.chat("hi", max_tokens=12, temperature=0).text
    for edge in ({"temperature": 1e-7}, {"temperature": 2, "top_p": 0}):
        assert server.chat("hi", max_tokens=12, seed=-1, **edge).text == greedy
    negative = server.chat("hi", max_tokens=12, temperature=2, seed=-1).text
    assert negative == server.chat("hi", max_tokens=12, temperature=2, seed=2**64 - 1).text != greedy
    for limits in ((5, 5), (5, 9), (9, 5)):
        both = dict(zip(("max_tokens", "max_completion_tokens"), limits, strict=True))
        assert server.chat("hi", **both).json["usage"]["completion_tokens"] == 5


def test_messages_that_clients_send_back(server: Server) -> None:
    """``developer``, parts, a result of a tool, and what the official client adds to an answer."""
    plain = [{"role": "system", "content": "S"}, {"role": "user", "content": "ab"}, {"role": "tool", "content": "c"}]
    added = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": [], "name": None}
    sent = [
        {"role": "developer", "content": [{"type": "text", "text": "S"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], **added},
        {"role": "tool", "content": "c", "tool_call_id": "call_1", "name": "f"},
    ]
    answers = [post(server, "/v1/chat/completions", {"messages": messages}).json for messages in (plain, sent)]
    assert answers[0]["usage"]["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"] == 19


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "expected an object"),
        (b"null", "expected an object"),
        (b'"text"', "expected an object"),
        (b'{"model": "tiny", "model": "tiny"}', "appears twice"),
        (b'{"temperature": NaN}', "NaN is not a number"),
        (b'{"temperature": -Infinity}', "not a number"),
        (b'{"max_tokens": ' + b"9" * 5000 + b"}", "JSON that can be read"),
        (b'{"model": "tiny", "prompt": "x", "temperature": 1e999}', "from 0 to 100"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"model": "tiny", "prompt": "\\ud800"}', "surrogate"),
        (b'{"model": "\\ud800", "prompt": "x"}', "not served"),
    ],
)
def test_malformed_bodies(server: Server, body: bytes, expected: str) -> None:
    reply = server.request("POST", "/v1/completions", raw=body or b" ")
    assert reply.status in (400, 404) and expected in reply.error["message"]
    assert_works(server)


UNUSUAL = [
    "",
    " ",
    "\0",
    "\u202e\u200b",
    "\U0001f468\u200d\U0001f469" * 20,
    "\U0010ffff",
    "e\u0301" * 30,
    "<s></s><|user|>",
    "\t",
]


@pytest.mark.parametrize("content", UNUSUAL)
def test_unusual_texts_are_answered(server: Server, content: str) -> None:
    assert server.chat(content, max_tokens=4).status == 200
    assert server.complete(content, max_tokens=4).status == 200


def test_an_empty_prompt_and_no_tokens(server: Server) -> None:
    assert server.complete("", max_tokens=4).json["usage"]["prompt_tokens"] == 1  # BOS, once
    none = server.chat("hello", max_tokens=0).json
    assert none["usage"]["completion_tokens"] == 0
    assert (none["choices"][0]["message"]["content"], none["choices"][0]["finish_reason"]) == ("", "length")
    assert server.complete("", max_tokens=0).status == 200


@pytest.mark.slow
def test_a_prompt_of_a_megabyte_names_the_limit(server: Server) -> None:
    for reply in (server.complete("a b " * 250_000), server.chat("a b " * 250_000)):
        assert reply.status == 400
        assert "2048" in reply.error["message"] and reply.error["code"] == "context_length_exceeded"
    assert_works(server)


def test_a_body_that_is_too_large(server: Server) -> None:
    reply = server.complete("x" * 3_000_000)
    assert reply.status == 413 and "2097152" in reply.error["message"]

    def chunks() -> Any:
        yield from (b"x" * 65536 for _ in range(48))

    connection = server.connection()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", chunks(), headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    assert_works(server)


def test_other_content_types_paths_and_methods(server: Server) -> None:
    body = json.dumps({"model": "tiny", "prompt": "x"}).encode()
    form = server.request("POST", "/v1/completions", raw=body, headers={"Content-Type": "text/plain"})
    assert form.status == 415 and "application/json" in form.error["message"]
    assert server.request("GET", "/v1/nothing").error["message"] == "there is nothing at /v1/nothing"
    wrong = server.request("GET", "/v1/completions")
    assert wrong.status == 405 and wrong.error and "POST" in wrong.headers["allow"]


def test_a_model_without_a_chat_template_says_so(start_server: Any, tmp_path: Any) -> None:
    from foredraft_exporter.build import export
    from tests.fixtures import tiny_checkpoint

    checkpoint = tiny_checkpoint(tmp_path / "checkpoint")
    config = json.loads((checkpoint / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(config))
    export(checkpoint, tmp_path / "plain.foredraft")
    server = start_server(tmp_path / "plain.foredraft")
    assert "no chat template" in server.chat("hello").error["message"]
    assert_works(server)
    server.stop()
