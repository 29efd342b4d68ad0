"""Which form of content a chat template wants, and templates that lose a message's text."""

from __future__ import annotations

import pytest

from foredraft.errors import BundleError
from foredraft.text.template_probe import read_traits

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PARTS = "{% for m in messages %}[{{ m.role }}]{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}"
GUARD = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% for c in m['content'] %}"
    "{% if c['type'] == 'text' %}{{ m['role'] }}: {{ c['text'] }}{% endif %}{% endfor %}{% endfor %}"
)
BOTH = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %}{% endfor %}"
)
NEEDS_LIST = "{% if messages[0].content is string %}{{ raise_exception('a list, please') }}{% endif %}" + PARTS
NEEDS_SYSTEM = "{% if messages[0].role != 'system' %}{{ raise_exception('no system message') }}{% endif %}" + CHATML
ONE_TURN = "{% if messages | length > 1 %}{{ raise_exception('one turn') }}{% endif %}{{ messages[0].content }}"


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (CHATML, "string"),
        (PARTS, "parts"),
        (GUARD, "parts"),
        (BOTH, "string"),
        (NEEDS_LIST, "parts"),
        (NEEDS_SYSTEM, "string"),
        (ONE_TURN, "string"),
        (
            "{{ bos_token + messages[0].content }}{% for m in messages[1:] %}{{ m.content | tojson }}{% endfor %}",
            "string",
        ),
    ],
)
def test_the_form_in_which_the_text_arrives(source: str, form: str) -> None:
    assert read_traits(source).content == form


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{% for m in messages %}<{{ m.role }}>{% endfor %}", "loses the text of a user message"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "loses the text of an assistant"),
        ("{{ messages[-1].content }}", "loses the text of a user message"),
        ("{% for m in messages %}{% for c in m.content %}{{ c.words }}{% endfor %}{% endfor %}", "loses the text"),
        ("{{ raise_exception('never  mind') }}", r"refuses a message that only says one word \(never mind\)"),
        ("{{ messages.x.y }}", "refuses a message"),
        ("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "did not end within"),
    ],
)
def test_a_template_that_loses_text_or_takes_none_is_refused(source: str, what: str) -> None:
    with pytest.raises(BundleError, match=what):
        read_traits(source)


@pytest.mark.parametrize(
    ("source", "drops"),
    [
        (CHATML, False),
        (PARTS, False),
        ("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", True),
        ("{% if messages[0].role == 'system' %}{{ raise_exception('none here') }}{% endif %}" + CHATML, False),
    ],
)
def test_a_system_message_that_is_lost_without_a_word(source: str, drops: bool) -> None:
    assert read_traits(source).system is not drops


TOOLS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for call in m.tool_calls or [] %}"
    "<call>{{ call.function | tojson }}{% endfor %}{% endfor %}"
)
NAMES = "{% for m in messages %}{{ m.name or m.role }}: {{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "names", "calls", "results"),
    [
        (CHATML, False, False, True),
        (TOOLS, False, True, True),
        (NAMES, True, False, True),
        ("{% for m in messages if m.role != 'tool' %}{{ m.content }}{% endfor %}", False, False, False),
        ("{% for m in messages %}{{ m.content }}{% if m.role == 'tool' %}{{ m.x.y }}{% endif %}{% endfor %}", 0, 0, 0),
    ],
)
def test_what_else_reaches_the_prompt(source: str, names: bool, calls: bool, results: bool) -> None:
    traits = read_traits(source)
    assert (traits.names, traits.tool_calls, traits.tool_results) == (names, calls, results)


def test_the_variables_that_a_template_reads() -> None:
    source = (
        "{% set own = enable_thinking | default(true) %}{% if custom is defined and own %}{{ strftime_now('%Y') }}"
        "{% endif %}{{ bos_token }}{% for i in range(1) %}{{ tools }}{{ documents }}{% endfor %}" + CHATML
    )
    assert read_traits(source).variables == {"enable_thinking", "custom", "documents"}
    assert read_traits(CHATML).variables == frozenset()
