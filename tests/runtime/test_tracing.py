"""Traces of real rounds: their texts join to the answer's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from foredraft import Bundle, Session
from foredraft.result import Result
from foredraft.tracing import RoundTrace, Tracer
from tests.runtime.bench.made import a_trace, knowing

PROMPT = "h\u00e9llo"


@pytest.fixture(scope="module")
def session(tiny_bundle: Callable[..., Path]) -> Session:
    """Drafts are right for the answer to ``PROMPT``, and wrong ones are among them."""
    opened = Bundle.open(tiny_bundle("int8", (1, 2)))
    oracle = knowing(Session(opened, "none", threads=1), PROMPT, 100)
    return Session(opened, oracle, policy="fixed:6", threads=1)


def traced(session: Session, prompt: str, **request: object) -> tuple[list[RoundTrace], Result]:
    tracer = Tracer(session.bundle.tokenizer, session.level_names)
    rounds = []
    for chunk in session.stream(prompt, **request):
        rounds.append(tracer.describe(chunk))
        result = chunk.result
    assert result is not None
    return rounds, result


@pytest.mark.parametrize("prompt", [PROMPT, "abcabcabc"])
def test_texts_and_tokens_join_to_the_answer(session: Session, prompt: str) -> None:
    rounds, result = traced(session, prompt, max_tokens=60)
    assert "".join(round_.text for round_ in rounds) == result.text
    assert [token for round_ in rounds for token in round_.tokens] == result.tokens
    assert sum(len(round_.nodes) for round_ in rounds) == result.stats.drafted
    assert sum(node.accepted for round_ in rounds for node in round_.nodes) == result.stats.accepted


def test_text_that_a_stop_string_takes_back_is_never_shown(session: Session) -> None:
    whole = traced(session, PROMPT, max_tokens=60)[1].text
    stops = [whole[start : start + length] for start in range(len(whole) - 3) for length in (1, 2, 3)]
    stops = [stop for stop in stops if "\ufffd" not in stop]
    assert len(stops) > 9
    for stop in stops:
        rounds, result = traced(session, PROMPT, max_tokens=60, stop=[stop])
        assert "".join(round_.text for round_ in rounds) == result.text == whole[: whole.index(stop)]
        assert [token for round_ in rounds for token in round_.tokens] == result.tokens


def test_levels_are_those_of_the_accepted_nodes(session: Session) -> None:
    rounds, result = traced(session, PROMPT, max_tokens=90)
    assert result.stats.accepted > 50  # or the test says nothing
    for round_ in rounds:
        accepted = [node for node in round_.nodes if node.accepted]
        assert list(round_.levels) == ([node.level for node in accepted] + [None])[: len(round_.tokens)]
        assert list(round_.tokens[: len(accepted)]) == [node.id for node in accepted][: len(round_.tokens)]


def test_an_exit_is_a_level(tiny_bundle: Callable[..., Path]) -> None:
    opened = Bundle.open(tiny_bundle("int8", (1, 2)))
    exits = Session(opened, "none", policy="self-spec", threads=1)
    rounds, _ = traced(exits, "abc", max_tokens=20)
    assert {node.level for round_ in rounds for node in round_.nodes} == {"exit-2"}


def test_nothing_asked_for(session: Session) -> None:
    rounds, result = traced(session, "abc", max_tokens=0)
    assert [round_.text for round_ in rounds] == [""] and result.tokens == []


@pytest.mark.slow
def test_rejected_branches_hang_where_the_model_went_another_way() -> None:
    round_ = a_trace()[1]
    assert [[node.id for node in branch] for branch in round_.rejected(0)] == [[3, 4]]
    assert [[node.id for node in branch] for branch in round_.rejected(1)] == [[5]]
    assert round_.rejected(2) == []
    value = round_.to_json()
    assert value["tokens"] == [
        {"id": 2, "text": " yes", "level": "context"},
        {"id": 6, "text": " end", "level": None},
    ]
    assert value["drafted"] == 4 and value["accepted"] == 1 and value["draft"][2]["parent"] == 1
