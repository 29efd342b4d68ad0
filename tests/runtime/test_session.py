"""A session on a real engine with a tiny model: exact, bounded, and clear about what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft import Bundle, SamplingParams, Session
from foredraft.drafters import names
from foredraft.errors import RequestError
from foredraft.loop.chain import HEAD
from foredraft.loop.tree import Tree
from foredraft.request import Request
from foredraft.sampling.logits import whole
from tests.fixtures import BOS, EOS

Bundles = Callable[..., Path]


class Oracle:
    """Drafts what it was told the model will write, and may go on beyond it."""

    name, level_names, wants_logits = "oracle", ("oracle",), False

    def __init__(self, prompt_length: int, answer: list[int]) -> None:
        self.length, self.answer = prompt_length, answer

    def begin(self, prompt: object) -> None: ...

    def propose(self, context: list[int], budget: int, minimum: float = 0.0) -> Tree:
        return Tree.chain(self.answer[len(context) - self.length :][:budget])

    def commit(self, tokens: object, logits: object) -> None: ...

    def rewind(self, length: int) -> None: ...

    def finish(self) -> None: ...


def session(path: Path, drafter: object = "none", policy: str = "fixed:8", **options: object) -> Session:
    return Session(Bundle.open(path), drafter, threads=1, policy=policy, **options)


PROMPT = "the cat sat on the mat, the cat sat on the hat, the cat sat"


@pytest.mark.parametrize("drafter", names())
@pytest.mark.parametrize("exits", [(), (1, 2)])
@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_every_drafter_writes_the_tokens_of_plain_decoding(
    tiny_bundle: Bundles, drafter: str, exits: tuple[int, ...], precision: str
) -> None:
    path = tiny_bundle(precision, exits)
    for temperature in (0.0, 0.5, 1.0, 1.5):
        sampling = SamplingParams(temperature=temperature, top_p=0.9, seed=5)
        plain = session(path).generate(PROMPT, max_tokens=60, sampling=sampling)
        drafted = session(path, drafter).generate(PROMPT, max_tokens=60, sampling=sampling)
        assert drafted.tokens == plain.tokens
        assert drafted.text == plain.text and drafted.finish_reason == plain.finish_reason
        assert drafted.stats.drafter == drafter


@settings(max_examples=25)
@given(
    prompt=st.lists(st.integers(0, 255), min_size=1, max_size=40),
    drafter=st.sampled_from([n for n in names() if n != "none"]),
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.0, 0.7, 1.3]),
    penalty=st.sampled_from([1.0, 1.2]),
    budget=st.integers(1, 40),
)
def test_any_request_is_exact(
    tiny_bundle: Bundles,
    prompt: list[int],
    drafter: str,
    seed: int,
    temperature: float,
    penalty: float,
    budget: int,
) -> None:
    path = tiny_bundle("int4", (1, 2))
    sampling = SamplingParams(temperature=temperature, seed=seed, repetition_penalty=penalty, top_k=20)
    plain = session(path).generate(prompt, max_tokens=30, sampling=sampling)
    drafted = session(path, drafter, policy=f"fixed:{budget}").generate(prompt, max_tokens=30, sampling=sampling)
    assert drafted.tokens == plain.tokens


def test_a_session_that_goes_on_writes_what_a_fresh_one_does(tiny_bundle: Bundles) -> None:
    path = tiny_bundle("int8")
    kept = session(path, "context")
    for prompt in (PROMPT, PROMPT + " and", PROMPT[:20], "quite another text", PROMPT):
        fresh = session(path, "context").generate(prompt, max_tokens=25)
        again = kept.generate(prompt, max_tokens=25)
        assert again.tokens == fresh.tokens and again.text == fresh.text
    assert again.stats.prompt_tokens == len(PROMPT) + 1
    assert kept.generate(PROMPT, max_tokens=1).stats.cached_tokens == len(PROMPT)


def test_no_layer_runs_twice(tiny_bundle: Bundles) -> None:
    result = session(tiny_bundle("int8", (1, 2)), "context").generate(PROMPT, max_tokens=40)
    stats = result.stats
    assert stats.layer_runs == 4 * (stats.rounds + stats.drafted)
    assert stats.layer_passes == 4 * stats.rounds
    assert stats.rows_moved <= stats.accepted  # only rows of accepted paths ever move


def test_a_draft_past_the_context_limit_is_cut(tiny_bundle: Bundles) -> None:
    path = tiny_bundle("int8")
    plain = session(path).generate(PROMPT, max_tokens=12)
    length = len(PROMPT) + 1
    near = session(path, Oracle(length, plain.tokens), context=length + 3).generate(PROMPT)
    assert near.tokens == plain.tokens[:3] and near.finish_reason == "length"


def test_max_tokens_ends_exactly_there(tiny_bundle: Bundles) -> None:
    path = tiny_bundle("int8")
    plain = session(path).generate(PROMPT, max_tokens=20)
    for limit in range(1, 12):
        result = session(path, Oracle(len(PROMPT) + 1, plain.tokens)).generate(PROMPT, max_tokens=limit)
        assert result.tokens == plain.tokens[:limit] and result.stats.tokens == limit
    nothing = session(path).generate(PROMPT, max_tokens=0)
    assert nothing.tokens == [] and nothing.text == "" and nothing.finish_reason == "length"


def test_eos_inside_an_accepted_draft(tiny_bundle: Bundles, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_bundle("int8")
    plain = session(path).generate(PROMPT, max_tokens=20).tokens
    place = next(i for i in range(3, 20) if plain[i] not in plain[:i])
    writer = session(path, Oracle(len(PROMPT) + 1, plain))
    info = writer.bundle.manifest.tokenizer
    object.__setattr__(info, "eos_ids", (plain[place],))
    result = writer.generate(PROMPT, max_tokens=20)
    assert result.tokens == plain[: place + 1] and result.finish_reason == "eos"
    assert writer.chain.arena.settled == len(PROMPT) + 1 + place


def test_a_stop_string_cuts_text_ids_and_counts_together(tiny_bundle: Bundles) -> None:
    path = tiny_bundle("int8")
    free = session(path).generate(PROMPT, max_tokens=30)
    place = next(i for i in range(4, 28) if 32 < free.tokens[i] < 127 and free.tokens[i] not in free.tokens[:i])
    stop = chr(free.tokens[place])
    for drafter in ("none", Oracle(len(PROMPT) + 1, free.tokens)):
        result = session(path, drafter).generate(PROMPT, max_tokens=30, stop=[stop])
        assert result.finish_reason == "stop"
        assert result.tokens == free.tokens[: place + 1] and result.stats.tokens == place + 1
        assert result.text == bytes(t for t in free.tokens[:place] if t < 256).decode(errors="replace")


def test_a_stream_joins_to_the_result(tiny_bundle: Bundles) -> None:
    chunks = list(session(tiny_bundle("int8"), "context").stream(PROMPT, max_tokens=50))
    result = chunks[-1].result
    assert result is not None and all(c.result is None for c in chunks[:-1])
    assert "".join(c.text for c in chunks) == result.text
    assert [t for c in chunks for t in c.tokens] == result.tokens


def test_exactly_one_bos(tiny_bundle: Bundles) -> None:
    writer = session(tiny_bundle("int8"))
    assert writer.encode("ab") == [BOS, 97, 98]
    assert writer.encode("<s>ab") == [BOS, 97, 98]
    messages = [{"role": "user", "content": "ab"}]
    assert writer.encode(messages=messages).count(BOS) == 1
    assert EOS in writer.encode(messages=messages)


def test_an_empty_prompt_starts_from_bos(tiny_bundle: Bundles) -> None:
    writer = session(tiny_bundle("int8"))
    assert writer.encode("") == [BOS]
    assert writer.generate("", max_tokens=3).stats.prompt_tokens == 1
    assert writer.generate([], max_tokens=3).stats.prompt_tokens == 1
    assert len(writer.generate("a", max_tokens=3).tokens) == 3


def test_a_prompt_of_one_token(tiny_bundle: Bundles) -> None:
    path = tiny_bundle("int8")
    plain = session(path).generate([65], max_tokens=20).tokens
    for drafter in ("context", "prompt-lookup", Oracle(1, plain)):
        assert session(path, drafter).generate([65], max_tokens=20).tokens == plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either a prompt or messages"),
        ({"prompt": "a", "messages": []}, "either a prompt or messages"),
        ({"prompt": [999]}, "token id 999"),
        ({"prompt": "a" * 300}, "prompt of 301 tokens: the context holds 256"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens -1"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens True"),
        ({"prompt": "a", "stop": "x"}, "stop"),
        ({"prompt": "a", "stop": [""]}, "stop"),
        ({"messages": [{"role": "user"}]}, "content"),
    ],
)
def test_bad_requests_are_refused_and_the_next_one_works(tiny_bundle: Bundles, arguments: dict, message: str) -> None:
    writer = session(tiny_bundle("int8"))
    with pytest.raises(RequestError, match=message):
        writer.stream(**arguments)
    assert len(writer.generate("a", max_tokens=2).tokens) == 2


def test_bad_options_are_refused(tiny_bundle: Bundles) -> None:
    path = tiny_bundle("int8")
    with pytest.raises(RequestError, match="context 999: this bundle allows 1 to 256"):
        session(path, context=999)
    with pytest.raises(RequestError, match="policy"):
        session(path, policy="fast")
    with pytest.raises(RequestError, match="drafter"):
        session(path, "magic")


def test_a_stream_that_is_dropped_leaves_the_session_usable(tiny_bundle: Bundles) -> None:
    path = tiny_bundle("int8")
    writer = session(path, "context")
    stream = writer.stream(PROMPT, max_tokens=50)
    next(stream)
    next(stream)
    stream.close()
    assert writer.generate(PROMPT, max_tokens=20).tokens == session(path).generate(PROMPT, max_tokens=20).tokens


def test_two_sessions_share_an_engine(tiny_bundle: Bundles) -> None:
    first = session(tiny_bundle("int8"), "context")
    second = Session(first.bundle, "none", engine=first.engine)
    a, b = first.stream(PROMPT, max_tokens=30), second.stream("another", max_tokens=30)
    mixed = [[], []]
    for chunk_a, chunk_b in zip(a, b, strict=False):
        mixed[0] += chunk_a.tokens
        mixed[1] += chunk_b.tokens
    alone = Session(first.bundle, "none", engine=first.engine).generate(PROMPT, max_tokens=30).tokens
    assert mixed[0] == alone[: len(mixed[0])] and np.size(mixed[1])


@pytest.mark.slow
@pytest.mark.parametrize("drafter", names())
def test_the_portable_lowering_drafts_single_paths_and_is_exact(tiny_bundle: Bundles, drafter: str) -> None:
    path = tiny_bundle("int8", (1, 2))
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(temperature=temperature, seed=2)
        plain = session(path, lowering="portable").generate(PROMPT, max_tokens=40, sampling=sampling)
        for policy in ("fixed:16", "auto"):
            drafted = session(path, drafter, policy, lowering="portable").generate(
                PROMPT, max_tokens=40, sampling=sampling
            )
            assert drafted.tokens == plain.tokens
    for chunk in session(path, "context", "fixed:16", lowering="portable").stream(PROMPT, max_tokens=40):
        if chunk.round:
            assert chunk.round.tree.parents == list(range(-1, len(chunk.round.tree) - 1))
    with pytest.raises(RequestError, match="exact for trees"):
        session(path, policy="hispec", lowering="portable")


def test_a_round_shows_the_rows_that_chose_its_tokens_while_it_is_observed(tiny_bundle: Bundles) -> None:
    session = Session(Bundle.open(tiny_bundle()), "context", policy="fixed:6", threads=1)
    rounds = []
    for chunk in session.stream("abcabcabc", max_tokens=40):
        if chunk.round is not None:
            assert chunk.round.prompt is (not rounds)
            assert [int(np.argmax(whole(row))) for row in chunk.round.rows] == chunk.round.tokens
            assert chunk.round.forwards[-1] == (HEAD, 1 if chunk.round.prompt else chunk.round.verified)
            assert 0 <= chunk.round.seconds_learn <= chunk.round.seconds_verify
            rounds.append(chunk.round)
    assert len(rounds) > 3 and not any(round_.rows for round_ in rounds[:-1])


def test_a_request_is_checked_without_an_engine(tiny_bundle: Bundles) -> None:
    bundle = Bundle.open(tiny_bundle())
    request = Request("abc", max_tokens=9, stop=["x"])
    checked = request.check(bundle, 64)
    session = Session(bundle, "none", context=64, threads=1)
    assert checked == session.check(request)
    chunks = [*session.answer(checked)]
    assert chunks[-1].result is not None
    assert chunks[-1].result.tokens == session.generate("abc", max_tokens=9, stop=["x"]).tokens
    with pytest.raises(RequestError, match="the context holds 2"):
        request.check(bundle, 2)
