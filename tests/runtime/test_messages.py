"""Chat messages as clients send them: what reaches the prompt, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from foredraft.errors import RequestError
from foredraft.text import ChatTemplate

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
PARTS = "{% for m in messages %}[{{ m.role }}]{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}"
TOOLS = (
    "{% for m in messages %}[{{ m.name or m.role }}]{{ m.content }}{% for call in m.tool_calls or [] %}"
    "<{{ call.id }} {{ call.function.name }} {{ call.function.arguments | tojson }}>{% endfor %}"
    "{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}{% endfor %}"
)
NO_SYSTEM = "{% for m in messages if m.role in ('user', 'assistant') %}{{ m.content }}{% endfor %}"
DEVELOPER = PLAIN + "{# knows developer #}"


def part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def call(arguments: object) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}


@pytest.mark.parametrize(
    ("source", "messages", "prompt"),
    [
        (PLAIN, [{"role": "user", "content": "a b"}], "[user]a b"),
        (PLAIN, [{"role": "user", "content": [part("a"), part(" b")]}], "[user]a b"),
        (PLAIN, [{"role": "user", "content": []}], "[user]"),
        (PARTS, [{"role": "user", "content": "a b"}], "[user]a b"),
        (PARTS, [{"role": "user", "content": [part("a"), part(" b")]}], "[user]a b"),
        (PLAIN, [{"role": "developer", "content": "x"}], "[system]x"),
        (DEVELOPER, [{"role": "developer", "content": "x"}], "[developer]x"),
        (PLAIN, [{"role": "tool", "content": "x", "tool_call_id": "c1", "name": "weather"}], "[tool]x"),
        (TOOLS, [{"role": "user", "content": "x", "name": "Ann"}], "[Ann]x"),
        (
            TOOLS,
            [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": None, "tool_calls": [call('{"city": "Rome"}')]},
                {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
            ],
            '[user]?[assistant]<c1 weather {"city": "Rome"}>[tool]sunny(c1)',
        ),
        (
            TOOLS,
            [{"role": "assistant", "tool_calls": [call({"city": "Rome"})]}],
            '[assistant]<c1 weather {"city": "Rome"}>',
        ),
        (PLAIN, [{"role": "assistant", "content": "x", "tool_calls": [], "name": None}], "[assistant]x"),
    ],
)
def test_what_reaches_the_prompt(source: str, messages: list[dict[str, Any]], prompt: str) -> None:
    assert ChatTemplate(source).render(messages) == prompt


@pytest.mark.parametrize(
    ("source", "message", "said"),
    [
        (
            PLAIN,
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            r"content\[0\]: image_url",
        ),
        (PLAIN, {"role": "user", "content": [part("a"), {"type": "input_audio"}]}, r"content\[1\]: input_audio is not"),
        (PLAIN, {"role": "user", "content": ["a"]}, r'content\[0\]: expected {"type": "text"'),
        (PLAIN, {"role": "user", "content": [part("a") | {"x": 1}]}, r"content\[0\]: expected"),
        (PLAIN, {"role": "user", "content": [{"type": "text", "text": 1}]}, r"content\[0\].text: got int"),
        (PLAIN, {"role": "user", "content": 5}, "content: got int, expected a string, or a list of text parts"),
        (PLAIN, {"role": "user", "content": None}, "content: missing"),
        (PLAIN, {"role": "user", "content": "x", "name": "Ann"}, "name: not supported: this model's chat template"),
        (TOOLS, {"role": "user", "content": "x", "name": 1}, "name: got int"),
        (PLAIN, {"role": "assistant", "tool_calls": [call("{}")]}, "tool_calls: not supported: this model's chat"),
        (TOOLS, {"role": "user", "tool_calls": [call("{}")]}, "tool_calls: only an assistant calls tools"),
        (TOOLS, {"role": "assistant", "tool_calls": {"a": 1}}, "tool_calls: got dict"),
        (TOOLS, {"role": "assistant", "tool_calls": [{"function": 1}]}, r"tool_calls\[0\]: expected"),
        (TOOLS, {"role": "assistant", "tool_calls": [call(5)]}, r"tool_calls\[0\].function.arguments: expected JSON"),
        (PLAIN, {"role": "user", "content": "x", "tool_call_id": "1"}, "tool_call_id: only a message of role 'tool'"),
        (NO_SYSTEM, {"role": "system", "content": "x"}, "role: 'system' is not supported: this model's chat template"),
        (NO_SYSTEM, {"role": "developer", "content": "x"}, "role: 'system' is not supported"),
        (NO_SYSTEM, {"role": "tool", "content": "x"}, "role: 'tool' is not supported"),
        (PLAIN, {"role": 5, "content": "x"}, "role: got int"),
    ],
)
def test_what_would_be_lost_is_refused(source: str, message: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=rf"^messages\[1\].{said}"):
        ChatTemplate(source).render([{"role": "user", "content": "x"}, message])


THINKING = PLAIN + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


def test_variables_of_the_template() -> None:
    template = ChatTemplate(THINKING)
    messages = [{"role": "user", "content": "x"}]
    assert template.render(messages, {"enable_thinking": False}) == "[user]x<think></think>"
    assert template.render(messages, {"enable_thinking": True}) == template.render(messages) == "[user]x"
    with pytest.raises(RequestError, match=r"chat_template_kwargs\.thinking: .* it reads: enable_thinking"):
        template.render(messages, {"thinking": False})
    for name in ("messages", "tools", "bos_token", "add_generation_prompt"):
        with pytest.raises(RequestError, match=f"chat_template_kwargs.{name}: is not for a request"):
            template.render(messages, {name: "x"})
    with pytest.raises(RequestError, match="chat_template_kwargs: got list"):
        template.render(messages, ["x"])  # type: ignore[arg-type]
