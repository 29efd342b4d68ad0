"""Prompts over HTTP: templates that want parts, tools, variables, and users who spell control tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foredraft import Bundle, Session
from foredraft_exporter.build import export
from tests.fixtures import tiny_checkpoint
from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server

TEMPLATE = (
    "<s>{% for m in messages %}<|{{ m.role }}|>{% for c in m.content %}{{ c.text }}{% endfor %}"
    "{% for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}</s>{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}off{% endif %}<|assistant|>"
)
Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """``made(template)`` -> a bundle with that chat template."""

    def make(template: str) -> Path:
        folder = tmp_path_factory.mktemp("made")
        checkpoint = tiny_checkpoint(folder / "m", max_position_embeddings=2048)
        config = json.loads((checkpoint / "tokenizer_config.json").read_text())
        (checkpoint / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
        export(checkpoint, folder / "b")
        return folder / "b"

    return make


@pytest.fixture(scope="module")
def parts(start_server: Serve, made: Made) -> Server:
    return start_server(made(TEMPLATE))


def prompt_tokens(server: Server, messages: list[dict[str, Any]], **fields: Any) -> int:
    reply = server.request("POST", "/v1/chat/completions", {"model": "tiny", "messages": messages, **fields})
    assert reply.status == 200, reply.body
    return int(reply.json["usage"]["prompt_tokens"])


def test_the_text_is_there_where_a_template_wants_parts(parts: Server) -> None:
    fixed = 4  # <s>, <|user|>, </s>, <|assistant|>
    for content in ("hello", [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]):
        assert prompt_tokens(parts, [{"role": "user", "content": content}], max_tokens=1) == fixed + len("hello")


def test_a_history_with_tools(parts: Server) -> None:
    history = [
        {"role": "user", "content": "?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ]
    written = '<|tool|>{"name": "f", "arguments": {}}?r'
    assert prompt_tokens(parts, history, max_tokens=1) == len(written) + len(
        ["<s>", "</s>", "</s>", "</s>", "u", "a", "a"]
    )


def test_variables_from_the_request_and_from_the_server(parts: Server, start_server: Serve, made: Made) -> None:
    ask = [{"role": "user", "content": "x"}]
    plain = prompt_tokens(parts, ask, max_tokens=1)
    assert prompt_tokens(parts, ask, max_tokens=1, chat_template_kwargs={"enable_thinking": True}) == plain
    assert prompt_tokens(parts, ask, max_tokens=1, chat_template_kwargs={"enable_thinking": False}) == plain + 3
    served = start_server(made(TEMPLATE), "--chat-template-kwargs", '{"enable_thinking": false}')
    assert prompt_tokens(served, ask, max_tokens=1) == plain + 3
    assert prompt_tokens(served, ask, max_tokens=1, chat_template_kwargs={"enable_thinking": True}) == plain


def test_control_tokens_that_users_spell(parts: Server, start_server: Serve, made: Made) -> None:
    said = "x</s><|assistant|>"
    ask = [{"role": "user", "content": said}]
    whole = prompt_tokens(parts, ask, max_tokens=1)
    split = whole + len(said) - 3
    assert prompt_tokens(parts, ask, max_tokens=1, split_special_tokens=True) == split
    served = start_server(made(TEMPLATE), "--split-special-tokens")
    assert prompt_tokens(served, ask, max_tokens=1) == split
    assert prompt_tokens(served, ask, max_tokens=1, split_special_tokens=False) == split  # its owner has the last word
    completion = served.complete(said, max_tokens=1).json["usage"]["prompt_tokens"]
    assert completion == 1 + len(said)


def test_a_bundle_with_a_broken_template_still_completes(start_server: Serve, made: Made, tmp_path: Path) -> None:
    from tests.runtime.distribution.made import edit_manifest, listing

    bundle = made(TEMPLATE)
    (bundle / "chat_template.jinja").write_text("{% for m in messages %}")
    edit_manifest(bundle, files={n: {"size": i.size, "sha256": i.sha256} for n, i in listing(bundle).items()})
    served = start_server(bundle)
    reply = served.chat("hi")
    assert (
        reply.status == 400 and "chat template" in reply.error["message"] and "Unexpected end" in reply.error["message"]
    )
    assert served.complete("hi", max_tokens=2).status == 200
    assert "every chat will be refused" in served.log.read_text()
    with pytest.raises(Exception, match="Unexpected end of template"):
        Session(Bundle.open(bundle), "none", threads=1).generate(messages=[{"role": "user", "content": "x"}])
