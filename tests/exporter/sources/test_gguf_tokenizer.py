"""Tokenizers made from GGUF metadata: SmolLM2's known facts, the table of names, SentencePiece's rule."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from foredraft.errors import CheckpointError, UnsupportedModelError
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.sources.fields import Fields
from foredraft_exporter.sources.tokenizer import generation_from, tokenizer_from
from tests.fixtures import SPECIALS, byte_alphabet

TEXTS = [
    "Hello, world!",
    "The year 1969 and 3.14159; x=42",
    "naïve café, Übergröße, 日本語のテキスト, 한국어, العربية",
    "emoji 😀👩‍👩‍👧 and \u200b invisible",
    "  leading, trailing  \n\n\ttabs\r\nand lines   ",
    "it's we're I'LL don't",
    "def f(x):\n    return x ** 2  # code\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
]


def _byte_level(**changes: Any) -> Fields:
    metadata = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": [*byte_alphabet(), *SPECIALS[:-1], "th"],
        "token_type": [1] * 256 + [3] * (len(SPECIALS) - 1) + [1],
        "merges": ["t h"],
        "eos_token_id": 257,
    }
    metadata = {f"tokenizer.ggml.{key}": value for key, value in (metadata | changes).items() if value is not None}
    return Fields(metadata, "x.gguf")


def _encode(metadata: Fields, text: str) -> list[str]:
    return Tokenizer.from_str(tokenizer_from(metadata).decode()).encode(text).tokens


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return Tokenizer.from_str(open_checkpoint("smollm2-135m").tokenizer_json().decode())


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_round_trip(smollm2: Tokenizer, text: str) -> None:
    assert smollm2.decode(smollm2.encode(text).ids, skip_special_tokens=False) == text


def test_smollm2_facts(smollm2: Tokenizer) -> None:
    assert smollm2.get_vocab_size() == 49152
    assert smollm2.encode("12345").tokens == ["1", "2", "3", "4", "5"]
    assert smollm2.encode("<|im_start|>user\n").ids[0] == 1
    assert smollm2.encode("<|im_end|>").ids == [2]
    assert smollm2.encode("Hello world").tokens == ["Hello", "Ġworld"]
    assert smollm2.encode("Hello world").ids == [19556, 905]
    assert smollm2.decode([1, 19556, 2], skip_special_tokens=True) == "Hello"


@pytest.mark.parametrize(("pre", "text", "expected"), [
    ("smollm", "a12 b", ["a", "1", "2", "Ġ", "b"]),
    ("gpt-2", "th'th", ["th", "'", "t", "h"]),
    ("llama-bpe", "12345", ["1", "2", "3", "4", "5"]),
    ("qwen2", "e\u0301", ["Ã", "©"]),
])  # fmt: skip
def test_pre_tokenizers_cut_as_named(pre: str, text: str, expected: list[str]) -> None:
    assert _encode(_byte_level(pre=pre), text) == expected


@pytest.mark.parametrize(("pre", "cuts"), [
    ("gpt-2", ["1234567", " x"]), ("smollm", ["1", "2", "3", "4", "5", "6", "7", " x"]),
    ("llama-bpe", ["123", "456", "7", " x"]), ("qwen2", ["1", "2", "3", "4", "5", "6", "7", " x"]),
    ("tekken", ["1", "2", "3", "4", "5", "6", "7", " x"]),
])  # fmt: skip
def test_digits(pre: str, cuts: list[str]) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_from(_byte_level(pre=pre)).decode())
    assert tokenizer.pre_tokenizer is not None
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str("1234567 x")
    assert [piece.replace("Ġ", " ") for piece, _ in pieces] == cuts


@pytest.mark.parametrize("pre", ["default", "kimi-k2", None])
def test_unknown_pre_tokenizer_lists_the_known(pre: str | None) -> None:
    with pytest.raises(UnsupportedModelError, match=r"is not known; known: gpt-2, smollm.*llama-bpe.*qwen2"):
        tokenizer_from(_byte_level(pre=pre))


def test_unknown_kind() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'bert'.*gpt2, llama"):
        tokenizer_from(_byte_level(model="bert"))


@pytest.mark.parametrize("changes", [{"tokens": None}, {"merges": None}, {"merges": ["q zz"]}, {"token_type": [1]}])
def test_parts_that_do_not_belong_together(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"x\.gguf"):
        tokenizer_from(_byte_level(**changes))


def test_user_defined_tokens_are_whole_but_not_special() -> None:
    metadata = _byte_level(token_type=[1] * 256 + [3] * 4 + [4] * 11 + [1])
    tokenizer = Tokenizer.from_str(tokenizer_from(metadata).decode())
    ids = tokenizer.encode("<s><|system|>").ids
    assert ids == [256, 260]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<|system|>"


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, False), ({"bos_token_id": 256}, False), ({"bos_token_id": 256, "add_bos_token": True}, True),
    ({"pre": "llama-bpe", "bos_token_id": 256}, True),
    ({"pre": "llama-bpe", "bos_token_id": 256, "add_bos_token": False}, False),
    ({"add_bos_token": True}, False),
])  # fmt: skip
def test_bos_as_llama_cpp_decides_it(changes: dict[str, Any], expected: bool) -> None:
    assert generation_from(_byte_level(**changes))["add_bos"] is expected


def test_every_end_of_text_counts() -> None:
    generation = generation_from(_byte_level(eot_token_id=260, eom_token_id=259))
    assert generation["eos_token_ids"] == [257, 259, 260]


@pytest.mark.parametrize("end", ["<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|im_end|>", "<end_of_turn>", "<|end|>"])
@pytest.mark.parametrize(("kind", "counts"), [(3, True), (4, True), (1, False)])
def test_a_known_control_token_ends_a_text(end: str, kind: int, counts: bool) -> None:
    tokens = [*byte_alphabet(), *SPECIALS[:-1], end]
    metadata = _byte_level(tokens=tokens, token_type=[1] * 256 + [3] * (len(SPECIALS) - 1) + [kind], merges=[])
    assert generation_from(metadata)["eos_token_ids"] == ([257, 271] if counts else [257])


def test_smollm2_ends() -> None:
    """Its own first, which templates write; ``<|endoftext|>`` ends a text too."""
    assert open_checkpoint("smollm2-135m").info.generation["eos_token_ids"] == [2, 0]


PIECES = {"▁": -3.0, "a": -1.0, "b": -2.0, "c": -4.0, "ab": -5.0, "▁a": -6.0, "bc": -4.5, "abc": -9.0}
PIECES |= {"▁ab": -5.5, "cc": -3.5}


def _sentencepiece() -> Fields:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    metadata = {
        "model": "llama",
        "tokens": tokens,
        "scores": [0.0] * 259 + list(PIECES.values()),
        "token_type": [2, 3, 3] + [6] * 256 + [1] * len(PIECES),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return Fields({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, "x.gguf")


def _best_first(text: str) -> list[str]:
    """SentencePiece by its rule: merge the neighbours whose result scores best, leftmost first."""
    pieces = list("▁" + text.replace(" ", "▁"))
    while True:
        joined = [a + b for a, b in itertools.pairwise(pieces)]
        pairs = [(PIECES[piece], -i) for i, piece in enumerate(joined) if piece in PIECES]
        if not pairs:
            return pieces
        at = -max(pairs)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


@settings(max_examples=200)
@given(st.text("abc ", min_size=1, max_size=12))
def test_sentencepiece_merges_the_best_pair_first(text: str) -> None:
    assert _encode(_sentencepiece(), text) == _best_first(text)


@pytest.mark.parametrize("text", ["abc", "ab  c", "aé😀", "日本", " a"])
def test_sentencepiece_round_trip_with_bytes(text: str) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_from(_sentencepiece()).decode())
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_sentencepiece_specials_and_bos() -> None:
    assert _encode(_sentencepiece(), "<s>a</s>")[0] == "<s>"
    assert generation_from(_sentencepiece())["add_bos"] is True
