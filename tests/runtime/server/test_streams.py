"""Streams: stop strings, characters in pieces, log probabilities and traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foredraft import Bundle, SamplingParams, Session
from tests.fixtures import EOS
from tests.runtime.answer_texts import text_of
from tests.runtime.server.conftest import Serve
from tests.runtime.server.process import Server


def answer(server: Server, prompt: str, **fields: object) -> str:
    return server.complete(prompt, max_tokens=60, **fields).text


def pieces(server: Server, prompt: str, **fields: Any) -> list[str]:
    events = server.complete(prompt, max_tokens=60, stream=True, **fields).events
    return [event["choices"][0]["text"] for event in events if event["choices"]]


def test_joined_pieces_are_the_whole_text_and_split_no_character(server: Server) -> None:
    """The tiny model writes bytes at random: its text is full of broken characters, and of whole ones."""
    for seed in range(12):
        sampling = {"temperature": 1.5, "seed": seed}
        whole = answer(server, "é à 漢字 👍", **sampling)
        assert "".join(pieces(server, "é à 漢字 👍", **sampling)) == whole


def test_a_stop_string_cuts_text_tokens_and_counts_at_one_place(server: Server, tiny: Path) -> None:
    for seed in range(6):
        sampling = {"temperature": 0.7, "seed": seed}
        whole = answer(server, "abcabcabc", **sampling)
        for length in (1, 2, 3):
            middle = len(whole) // 2
            stop = whole[middle : middle + length]
            if "\N{REPLACEMENT CHARACTER}" in stop or not stop:
                continue
            cut = server.complete("abcabcabc", max_tokens=60, stop=[stop], **sampling).json
            alone = Session(Bundle.open(tiny), "none").generate(
                "abcabcabc", max_tokens=60, stop=[stop], sampling=SamplingParams(**sampling)
            )
            assert cut["choices"][0]["text"] == whole[: whole.index(stop)] == alone.text
            assert cut["usage"]["completion_tokens"] == len(alone.tokens)
            assert cut["choices"][0]["finish_reason"] == "stop"
            shown = pieces(server, "abcabcabc", stop=[stop], **sampling)
            assert "".join(shown) == alone.text  # no beginning of the stop string has leaked


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_prompt_and_answer_are_the_text_of_all_tokens(start_server: Serve, spaces: Path, temperature: float) -> None:
    """Also where the decoder strips the space before a text's first word; from the server, and from Python."""
    served = start_server(spaces)
    session = Session(Bundle.open(spaces), threads=1)
    tokenizer = session.bundle.tokenizer
    spaced = 0
    for prompt in ("a", "the ca", "é", "cat.", "the "):
        for seed in range(4):
            sampling = {"temperature": temperature, "seed": seed}
            whole = served.complete(prompt, max_tokens=9, **sampling)
            alone = session.generate(prompt, max_tokens=9, sampling=SamplingParams(**sampling))
            chunks = session.stream(prompt, max_tokens=9, sampling=SamplingParams(**sampling))
            parts = served.complete(prompt, max_tokens=9, stream=True, **sampling).events
            ids = session.encode(prompt)
            assert text_of(tokenizer, ids + alone.tokens) == text_of(tokenizer, ids) + alone.text
            assert whole.text == alone.text == "".join(chunk.text for chunk in chunks)
            assert alone.text == "".join(part["choices"][0]["text"] for part in parts if part["choices"])
            spaced += alone.text.startswith(" ")
    assert spaced  # or the test says nothing


def test_a_stop_string_may_be_or_hold_special_tokens(server: Server, tiny: Path) -> None:
    session = Session(Bundle.open(tiny), threads=1)
    tokenizer = session.bundle.tokenizer
    found = 0
    for seed in range(40):
        sampling: dict[str, Any] = {"temperature": 1.5, "seed": seed}
        plain = session.generate("abc", max_tokens=60, sampling=SamplingParams(**sampling))
        special = [place for place, token in enumerate(plain.tokens) if tokenizer.is_silent(token)]
        if not special or special[0] == 0 or plain.tokens[special[0]] == EOS:
            continue
        place = special[0]
        before, spelled = (tokenizer.token_text(plain.tokens[at]) for at in (place - 1, place))
        if not before.isascii():
            continue
        found += 1
        text = text_of(tokenizer, session.encode("abc") + plain.tokens[:place])[len("abc") :]
        for stop, left in ((spelled, text), (before + spelled, text[:-1])):
            cut = server.complete("abc", max_tokens=60, stop=["never", stop], **sampling).json
            alone = session.generate("abc", max_tokens=60, stop=[stop], sampling=SamplingParams(**sampling))
            assert alone.tokens == plain.tokens[: place + 1]
            assert alone.text == left == cut["choices"][0]["text"]
            assert cut["usage"]["completion_tokens"] == place + 1
            assert "".join(pieces(server, "abc", stop=[stop], **sampling)) == alone.text
    assert found > 2  # or the test says nothing


def test_offsets_are_places_in_the_text_streamed_and_whole(server: Server, tiny: Path) -> None:
    tokenizer = Bundle.open(tiny).tokenizer
    split = checked = 0
    for seed in range(8):
        fields: dict[str, Any] = {"logprobs": 1, "temperature": 1.2, "seed": seed, "max_tokens": 40}
        whole = server.complete("漢字 👍", **fields).json["choices"][0]
        events = server.complete("漢字 👍", stream=True, **fields).events
        given = [event["choices"][0]["logprobs"] for event in events if event["choices"]]
        assert [place for part in given for place in part["text_offset"]] == whole["logprobs"]["text_offset"]
        offsets, spelled = whole["logprobs"]["text_offset"], whole["logprobs"]["tokens"]
        assert offsets == sorted(offsets) and offsets[0] == 0 and offsets[-1] <= len(whole["text"])
        for place, text, before in zip(offsets, spelled, ["", *spelled], strict=False):
            split += text.startswith("bytes:")
            if not before.startswith("bytes:") and len(tokenizer.encode(text, add_bos=False)) == 1 == len(text):
                assert whole["text"][place] == text
                checked += 1
    assert split and checked > 20  # or the test says nothing


def test_there_is_one_bos(server: Server) -> None:
    """The template writes ``<s>``, and the tokenizer would add it."""
    template = ["<s>", "<|user|>", "h", "i", "</s>", "<|assistant|>"]
    assert server.chat("hi", max_tokens=1).json["usage"]["prompt_tokens"] == len(template)
    assert server.complete("hi", max_tokens=1).json["usage"]["prompt_tokens"] == 3


def test_log_probabilities_are_those_of_the_model(server: Server, tiny: Path) -> None:
    body = server.complete("the cat", max_tokens=8, logprobs=3, temperature=0.9, seed=4, top_k=50).json
    given = body["choices"][0]["logprobs"]
    bundle = Bundle.open(tiny)
    session = Session(bundle, "none")
    prompt = session.encode("the cat")
    sampling = SamplingParams(temperature=0.9, seed=4, top_k=50)
    tokens = session.generate(prompt, max_tokens=8, sampling=sampling).tokens
    assert len(given["tokens"]) == len(tokens)
    for i, token in enumerate(tokens):
        session.chain.arena.rewind(0)
        logits = session.chain.prefill(prompt + tokens[:i])[0].astype(np.float64)
        exact = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        assert given["token_logprobs"][i] == pytest.approx(exact[token], abs=1e-9)
        best = sorted(given["top_logprobs"][i].values(), reverse=True)
        assert best == pytest.approx(np.sort(exact)[::-1][:3].tolist(), abs=1e-9)


def test_log_probabilities_do_not_depend_on_drafting_or_streaming(server: Server) -> None:
    fields = {"max_tokens": 30, "logprobs": True, "top_logprobs": 2}
    whole = server.chat("aaaa bbbb aaaa bbbb", **fields).json["choices"][0]["logprobs"]["content"]
    again = server.chat("aaaa bbbb aaaa bbbb", stream=True, **fields).events
    streamed = [item for event in again for item in (event["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == whole and len(whole) == 30
    for item in whole:
        assert len(item["top_logprobs"]) == 2 and item["top_logprobs"][0]["logprob"] >= item["logprob"]


def test_the_trace_tells_who_drafted_what(server: Server) -> None:
    plain = server.chat("la la la la la la", max_tokens=200).json
    events = server.chat(
        "la la la la la la",
        max_tokens=200,
        stream=True,
        foredraft={"trace": True},
        stream_options={"include_usage": True},
    ).events
    traces = [event["foredraft"] for event in events if "foredraft" in event]
    tokens = [token for trace in traces for token in trace["tokens"]]
    shown = "".join(piece["text"] for trace in traces for piece in trace["pieces"])
    assert shown == "".join(trace["text"] for trace in traces) == plain["choices"][0]["message"]["content"]
    assert len(tokens) == plain["usage"]["completion_tokens"]
    drafted = [token for token in tokens if token["level"] is not None]
    assert len(drafted) == sum(trace["accepted"] for trace in traces) > 0
    for trace in traces:
        assert trace["drafted"] == len(trace["draft"]) >= trace["accepted"]
        assert sum(node["accepted"] for node in trace["draft"]) == trace["accepted"]
        assert all(-1 <= node["parent"] < place for place, node in enumerate(trace["draft"]))


def test_a_stream_without_trace_has_no_extension(server: Server) -> None:
    assert all("foredraft" not in event for event in server.chat("hello", stream=True).events)
