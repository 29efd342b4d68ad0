"""Tokenizer, chat template and streaming text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from foredraft.errors import BundleError, RequestError
from foredraft.text import ChatTemplate, TextStream, Tokenizer
from tests.runtime.answer_texts import BYTES, SPACES, TOKENIZERS, answer_text, text_of
from tests.runtime.tokenizers_for_tests import KINDS
from tests.work import instructions

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
USER = [{"role": "user", "content": "Hi"}]


# Tokenizer


@pytest.mark.parametrize("name", KINDS)
def test_exactly_one_bos(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    for text in ("the cat", "<s>the cat", ""):
        assert tokenizer.encode(text, add_bos=True).count(0) == 1
        assert tokenizer.encode(text) == tokenizer.encode(text, add_bos=True)
    assert 0 not in tokenizer.encode("the cat", add_bos=False)
    assert 0 not in Tokenizer(KINDS[name], bos_id=None).encode("the cat", add_bos=True)


def test_neither_truncated_nor_padded() -> None:
    assert len(BYTES.encode("x" * 50, add_bos=False)) == 50
    assert len(BYTES.encode("x", add_bos=False)) == 1


def test_decode_skips_special_and_unknown_ids() -> None:
    ids = BYTES.encode("<s>the<|end|> cat<tool>")
    assert BYTES.decode(ids) == "the cat<tool>"
    assert BYTES.decode([*ids, 10_000]) == "the cat<tool>"
    assert BYTES.token_text(0) == "<s>"
    assert BYTES.token_text(10_000) == ""
    assert BYTES.vocab_size == Backend.from_str(KINDS["byte_level"].decode()).get_vocab_size()


def test_what_is_no_tokenizer_or_text_is_refused() -> None:
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        Tokenizer(b"{}")
    with pytest.raises(RequestError, match="got int"):
        BYTES.encode(3)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="character 1"):
        BYTES.encode("a\ud800")


# Streaming


def streamed(
    tokenizer: Tokenizer, ids: list[int], stop: list[str], cuts: list[int], prompt: list[int] | None = None
) -> tuple[str, int, bool, list[str]]:
    """Text, kept ids and whether it stopped, with the ids pushed in the parts that ``cuts`` makes; and the
    parts.
    """
    stream = TextStream(tokenizer, stop, prompt or [])
    bounds = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    updates = [stream.push(ids[a:b]) for a, b in itertools.pairwise(bounds)]
    parts = [update.text for update in updates]
    rest = stream.finish()
    return "".join(parts) + rest, sum(update.kept for update in updates), updates[-1].stopped, parts


def expected(tokenizer: Tokenizer, ids: list[int], stop: list[str]) -> tuple[str, int, bool]:
    """The definition: the first id after which the decoded text contains a stop string ends the text."""
    for count in range(1, len(ids) + 1):
        text = text_of(tokenizer, ids[:count])
        starts = [text.find(s) for s in stop if s in text]
        if starts:
            return text[: min(starts)], count, True
    return text_of(tokenizer, ids), len(ids), False


@st.composite
def answers(draw: st.DrawFn) -> tuple[Tokenizer, list[int]]:
    tokenizer = TOKENIZERS[draw(st.sampled_from(sorted(TOKENIZERS)))]
    valid = st.text(alphabet="the catsop.END\n你好é🙂👩‍👧", max_size=20).map(lambda s: tokenizer.encode(s, False))
    anything = st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=20)
    return tokenizer, draw(valid) + draw(anything) + draw(valid)


@settings(max_examples=300)
@given(answer=answers(), cuts=st.lists(st.integers(0, 1000), max_size=5))
def test_joined_stream_is_decode_of_all_ids(answer: tuple[Tokenizer, list[int]], cuts: list[int]) -> None:
    tokenizer, ids = answer
    text, kept, stopped, _ = streamed(tokenizer, ids, [], cuts)
    assert (text, kept, stopped) == (text_of(tokenizer, ids), len(ids), False)


@settings(max_examples=600)
@given(answer=answers(), cut=st.integers(0, 1000), cuts=st.lists(st.integers(0, 1000), max_size=5))
def test_an_answer_goes_on_where_the_prompt_ends(
    answer: tuple[Tokenizer, list[int]], cut: int, cuts: list[int]
) -> None:
    """Wherever a text is cut into prompt and answer, and however the answer comes."""
    tokenizer, ids = answer
    prompt, rest = ids[: cut % (len(ids) + 1)], ids[cut % (len(ids) + 1) :]
    expected = answer_text(tokenizer, prompt, rest)
    assert streamed(tokenizer, rest, [], cuts, prompt)[0] == expected
    offsets = [len(answer_text(tokenizer, prompt, rest[:count])) for count in range(len(rest))]
    assert [*TextStream(tokenizer, [], prompt).push(rest).offsets] == offsets


@pytest.mark.parametrize("name", TOKENIZERS)
def test_prompt_and_answer_are_the_text_of_all_ids(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode("the cat a cat", add_bos=True)
    for place in range(len(ids) + 1):
        prompt, answer = ids[:place], ids[place:]
        assert tokenizer.decode(prompt) + streamed(tokenizer, answer, [], [], prompt)[0] == tokenizer.decode(ids)


def test_the_space_between_prompt_and_answer_is_kept() -> None:
    the, cat = (Backend.from_str(KINDS["sentencepiece"].decode()).token_to_id(piece) for piece in ("▁the", "▁cat"))
    assert streamed(SPACES, [cat], [], [], [0, the])[0] == " cat"
    assert streamed(SPACES, [cat], [], [], [0])[0] == "cat"


@pytest.mark.parametrize("tokenizer", [BYTES, SPACES])
def test_half_a_character_belongs_to_the_answer_that_completes_it(tokenizer: Tokenizer) -> None:
    text = "é 🙈你 "
    ids = tokenizer.encode(text, add_bos=False)
    for place in range(len(ids) + 1):
        first = streamed(tokenizer, ids[:place], [], [])[0]
        assert text.startswith(first)
        assert first + streamed(tokenizer, ids[place:], [], [], ids[:place])[0] == text


def test_bytes_that_are_no_text_and_the_character_for_them_stay() -> None:
    never = BYTES.encode("ÿ", add_bos=False)[-1:]  # no character goes on with it
    assert streamed(BYTES, never, [], [])[0] == "\ufffd"
    for tokenizer in (BYTES, SPACES, TOKENIZERS["metaspace"]):
        assert streamed(tokenizer, tokenizer.encode("a\ufffd", add_bos=False), [], [])[0] == "a\ufffd"


def test_offsets_are_places_of_characters() -> None:
    ids = [*BYTES.encode("a🙈b", add_bos=False), 0, *BYTES.encode("你c", add_bos=False)]
    stream = TextStream(BYTES, ["c"], BYTES.encode("x", add_bos=False))
    offsets = [place for token in ids for place in stream.push([token]).offsets]
    split = len(BYTES.encode("🙈", add_bos=False)), len(BYTES.encode("你", add_bos=False))
    assert min(split) > 1
    assert offsets == [0, *[1] * split[0], 2, 3, *[3] * split[1], 4]


@pytest.mark.parametrize(
    ("stop", "answer", "text", "kept"),
    [
        ("<|end|>", "cat<|end|>a", "cat", 4),
        ("t<|end|>", "cat<|end|>a", "ca", 4),
        ("<|end|>a", "cat<|end|>ax", "cat", 5),
        ("t<|end|><s>a", "cat<|end|><s>ax", "ca", 6),
        ("<s><s>", "a<s>b<s><s>c", "ab", 5),
        ("<|end|>", "é<|end|>a", "é", 3),
        ("<|end|>a", "cat<|end|>x", "catx", None),
        ("t<|end|>a", "cat<s><|end|>a", "cata", None),
        ("end", "cat<|end|>a", "cata", None),
        ("ta", "cat<|end|>ax", "ca", 5),
    ],
)
@pytest.mark.parametrize("other", [[], ["never<s>"]])
def test_a_stop_string_may_hold_special_tokens(
    stop: str, answer: str, text: str, kept: int | None, other: list[str]
) -> None:
    ids = BYTES.encode(answer, add_bos=False)
    for cuts in ([], list(range(len(ids)))):
        result = streamed(BYTES, ids, [stop, *other], cuts)
        assert result[:3] == (text, kept or len(ids), kept is not None)


@settings(max_examples=300)
@given(answer=answers(), cuts=st.lists(st.integers(0, 1000), max_size=5), data=st.data())
def test_stop_strings_with_special_tokens_are_found_where_these_are_spelled_out(
    answer: tuple[Tokenizer, list[int]], cuts: list[int], data: st.DataObject
) -> None:
    tokenizer, others = answer
    special = st.sampled_from(sorted(tokenizer.special_tokens.values()))
    ids = [token for other in others for token in ([data.draw(special)] if data.draw(st.booleans()) else []) + [other]]
    spelled = st.sampled_from(["", "a", "t", " ", "你", "<s>", "<|end|>"])
    stop = data.draw(spelled) + data.draw(st.sampled_from(["<s>", "<|end|>"])) + data.draw(spelled)
    text, kept, stopped, _ = streamed(tokenizer, ids, [stop], cuts)

    def marked(text: str) -> str:
        return text.replace("<s>", "\ud800").replace("<|end|>", "\ud801")

    seen, shown = "", ""
    for count, token in enumerate(ids, 1):
        after = text_of(tokenizer, ids[:count])
        seen += after[len(shown) :]
        shown = after
        if token in tokenizer.special_tokens.values():
            seen += marked(tokenizer.token_text(token))
        if (place := seen.find(marked(stop))) >= 0:
            cut = len(seen[:place].replace("\ud800", "").replace("\ud801", ""))
            assert (text, kept, stopped) == (shown[:cut], count, True)
            return
    assert (text, kept, stopped) == (shown, len(ids), False)


@settings(max_examples=300)
@given(answer=answers(), cuts=st.lists(st.integers(0, 1000), max_size=5), data=st.data())
def test_stop_strings_cut_text_and_ids_at_the_same_place(
    answer: tuple[Tokenizer, list[int]], cuts: list[int], data: st.DataObject
) -> None:
    tokenizer, ids = answer
    text = tokenizer.decode(ids).replace("�", "")
    places = st.tuples(st.integers(0, max(len(text) - 1, 0)), st.integers(1, 4))
    stops = [text[a : a + n] or "x" for a, n in data.draw(st.lists(places, min_size=1, max_size=3))]
    stops += data.draw(st.lists(st.sampled_from(["stop", "the cat", " ", "\n\n", "opst"]), max_size=1))
    result = streamed(tokenizer, ids, stops, cuts)
    assert result[:3] == expected(tokenizer, ids, stops)


@settings(max_examples=200)
@given(answer=answers(), stop=st.sampled_from(["stop", "the", "a", "\n\n", "你好"]))
def test_what_was_shown_is_never_taken_back(answer: tuple[Tokenizer, list[int]], stop: str) -> None:
    tokenizer, ids = answer
    text, _, _, parts = streamed(tokenizer, ids, [stop], list(range(len(ids))))
    shown = ""
    for part in parts:
        shown += part
        assert text.startswith(shown)
        assert stop not in shown


def test_no_half_character_is_shown() -> None:
    ids = BYTES.encode("a🙂b", add_bos=False)
    stream = TextStream(BYTES, [], [])
    assert [stream.push([token]).text for token in ids] == ["a", *[""] * (len(ids) - 3), "🙂", "b"]


def test_beginning_of_a_stop_string_is_held_back_until_it_is_none() -> None:
    stream = TextStream(BYTES, ["stop!"], [])
    shown = [stream.push([token]).text for token in BYTES.encode("x stopped", add_bos=False)]
    assert "".join(shown[:4]) == "x "
    assert "".join(shown) + stream.finish() == "x stopped"
    held = TextStream(BYTES, ["stop!"], [])
    assert held.push(BYTES.encode("x stop", add_bos=False)).text == "x "
    assert held.finish() == "stop"
    assert held.finish() == ""


def test_ids_after_the_stop_are_not_kept() -> None:
    ids = BYTES.encode("a.b.c", add_bos=False)
    stream = TextStream(BYTES, ["."], [])
    update = stream.push(ids)
    assert (update.text, update.kept, update.stopped) == ("a", 2, True)
    again = stream.push(ids)
    assert (again.text, again.kept, again.stopped) == ("", 0, True)
    assert stream.finish() == ""


def test_cost_of_a_token_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    decode, decoded = Tokenizer.decode, [0]

    def counted(self: Tokenizer, ids: Sequence[int]) -> str:
        decoded[0] += len(ids)
        return decode(self, ids)

    monkeypatch.setattr(Tokenizer, "decode", counted)
    stream = TextStream(BYTES, ["never"], [])
    bad = BYTES.encode("é", add_bos=False)[:1]  # the first of two bytes: never a character
    for ids in (BYTES.encode("the cat. ", add_bos=False), bad):
        stream.push(ids * 200)
        costs = []
        for _ in range(10):
            before = decoded[0]
            costs.append((instructions(lambda: stream.push(ids * 100)), decoded[0] - before))  # noqa: B023
        assert len(set(costs)) == 1


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ("x", "got str"),
        ([""], "0 characters"),
        ([1], "got int"),
        (["x"] * 17, "17 strings"),
        (["x" * 257], "257"),
        (["�"], "FFFD"),
    ],
)
def test_unusable_stop_strings_are_refused(stop: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        TextStream(BYTES, stop, [])  # type: ignore[arg-type]


# Chat template


def test_chat_template_renders_as_hugging_face_does() -> None:
    template = ChatTemplate(CHATML)
    assert template.render(USER) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(USER, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "<é&>"}]'),
        ("{% if tools is not none %}tools{% endif %}", ""),
        ("{% if x %}{{ x }}{% endif %}", "7"),
        ("  {% if true %}\nyes\n  {% endif %}\n", "yes\n"),
        ("{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        (
            "{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{{ loop.length }}{% endfor %}",
            "0True1",
        ),
        ("{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ 'a' ~ ns.n ~ 'b' }}", "2a2b"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "<é&>"),
        ("{{ strftime_now('%Y') }}", datetime.now().strftime("%Y")),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('a') }}{{ dict(a=1).a }}", "[a]1"),
    ],
)
def test_what_templates_may_use(source: str, text: str) -> None:
    template = ChatTemplate(f"{source}{PLAIN}", bos_token="<s>", eos_token="</s>")
    given = {"x": 7} if "if x" in source else {}
    assert template.render([{"role": "user", "content": "<é&>"}], given) == text + "<é&>"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ raise_exception.__globals__.os }}", "unsafe"),
        ("{{ ('%s' | attr('__class__')) }}{{ cycler.__init__.__globals__.os }}", "unsafe|undefined"),
        ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "__class__"),
        ("{{ 1 / 0 }}", "zero"),
        ("{{ nothing.at.all }}", "undefined"),
        ("{{ 'x' * 999999999 }}", "4194304"),
        ("{{ 9 ** 99999 }}", "bits"),
        ("{{ 'x'.ljust(999999999) }}", "too large"),
        ("{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}", "4194304"),
        (
            "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            "4194304",
        ),
        (
            "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
            "4194304",
        ),
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "steps"),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "nested"),
        (
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
            "steps",
        ),
    ],
)
def test_a_bad_template_is_one_clear_error(source: str, message: str) -> None:
    with pytest.raises(BundleError, match=f"refuses a message.*{message}"):
        ChatTemplate(source + PLAIN).render(USER)
    with pytest.raises(RequestError, match=message):
        ChatTemplate(f"{{% if messages[0].content == 'Hi' %}}{source}{{% endif %}}{PLAIN}").render(USER)


def test_a_template_that_is_no_jinja_is_refused_with_its_line() -> None:
    with pytest.raises(BundleError, match="line 2"):
        ChatTemplate("a\n{% if %}")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("Hi", "got str"),
        ([], "got 0"),
        (["Hi"], r"messages\[0\]: got str"),
        ([*USER, {"role": "user"}], r"messages\[1\].content: missing"),
        ([{"content": "x"}], r"messages\[0\].role: missing"),
        ([{"role": "user", "content": None}], r"messages\[0\].content: missing"),
        ([{"role": "", "content": "x"}], "role: empty"),
        ([{"role": "user", "content": "x", "rle": "y"}], "'rle'"),
    ],
)
def test_messages_are_checked(messages: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ChatTemplate(CHATML).render(messages)  # type: ignore[arg-type]


def test_template_and_tokenizer_together_give_one_bos() -> None:
    prompt = ChatTemplate("{{ bos_token }}" + CHATML, bos_token="<s>").render(USER)
    assert BYTES.encode(prompt, add_bos=True).count(0) == 1


def test_kinds_really_carry_a_post_processor() -> None:
    assert all(json.loads(data)["post_processor"] for data in KINDS.values())
