"""The Python API, pinned: a name or a signature changes only together with this file."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import foredraft
from foredraft.engines.select import EngineFields
from foredraft.request import Request, RequestFields

NAMES = ["AsyncSession", "Bundle", "Chunk", "ForedraftError", "Result", "SamplingParams", "Session", "Statistics"]
_WRITING = ("self", "prompt: str | Sequence[int] | None = None", "**fields: Unpack[RequestFields]")
SIGNATURES = {
    "Bundle.open": ("path: str | Path", "*", "require_signature: bool = False", "key: str | Path | None = None"),
    "Session.generate": _WRITING,
    "Session.stream": _WRITING,
    "Session.encode": _WRITING,
    "AsyncSession.__init__": ("self", "session: Session"),
    "AsyncSession.generate": _WRITING,
    "AsyncSession.stream": _WRITING,
    "AsyncSession.close": ("self",),
}
KEYWORDS = ["databases", "levels", "learn", "context", "policy", "engine"]
ENGINE_KEYWORDS = {"threads", "lowering", "device", "provider"}
FIELDS = {
    "SamplingParams": [
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "seed",
    ],
    "Result": ["text", "tokens", "finish_reason", "stats"],
    "Chunk": ["text", "tokens", "result", "round", "offsets"],
}
STATISTICS = {"drafter", "prompt_tokens", "cached_tokens", "tokens", "rounds", "drafted", "accepted", "levels"}


REQUEST = [
    "messages",
    "chat_template_kwargs",
    "split_special_tokens",
    "max_tokens",
    "sampling",
    "stop",
]


def find(name: str) -> object:
    owner, _, attribute = name.partition(".")
    return getattr(getattr(foredraft, owner), attribute)


def test_names() -> None:
    assert sorted(foredraft.__all__) == NAMES
    for name in NAMES:
        assert inspect.isclass(getattr(foredraft, name))


def test_the_fields_of_a_request() -> None:
    assert list(RequestFields.__annotations__) == REQUEST
    assert [field.name for field in dataclasses.fields(Request)] == ["prompt", *REQUEST]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    text = str(inspect.signature(find(name)))
    assert text.partition(" -> ")[0].replace("'", "") == f"({', '.join(SIGNATURES[name])})"


def test_the_session_is_opened_with_a_bundle_a_drafter_and_keywords() -> None:
    parameters = inspect.signature(foredraft.Session).parameters
    assert list(parameters)[:2] == ["bundle", "drafter"]
    for name in KEYWORDS:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["engine_fields"].annotation == "Unpack[EngineFields]"
    assert set(EngineFields.__annotations__) == ENGINE_KEYWORDS


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name: str) -> None:
    assert [field.name for field in dataclasses.fields(getattr(foredraft, name))] == FIELDS[name]


def test_statistics() -> None:
    assert {field.name for field in dataclasses.fields(foredraft.Statistics)} >= STATISTICS


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_are_complete(name: str) -> None:
    owner = getattr(foredraft, name)
    assert owner.__doc__
    for member, value in vars(owner).items():
        if inspect.isfunction(value) and not member.startswith("_"):
            obvious = isinstance(inspect.getattr_static(owner, member), property)
            assert value.__doc__ or obvious, f"{name}.{member}"
