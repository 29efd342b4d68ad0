"""Which tokens an exit may draft, where the whole head would cost more than the layers before the exit.

A draft of another token is impossible then, and costs acceptance, never correctness: the last exit always judges with
the whole head. Frequency-ranked draft heads: FR-Spec (arXiv 2502.14856).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ForedraftError
from foredraft.text import Tokenizer
from foredraft_graphs.decoder import Decoder

AUTO_SIZE = 8192
"""Rows that ``auto`` keeps: 85% of SmolLM2's final choices are among them."""
_MULTIPLE = 32
"""Of rows, so that no packed tile is half empty."""


def draft_size(asked: str | int, decoder: Decoder, exits: Sequence[int]) -> int:
    """Rows of the draft head, 0 for none.

    ``auto``: if there are exits, and the whole head reads more weights than half of the layers before the first
    of them, and a head of AUTO_SIZE at most half of that. Raises ForedraftError for anything that is no size.
    """
    if asked == "none" or (asked == "auto" and not exits):
        return 0
    if asked == "auto":
        whole, before = decoder.vocab_size * decoder.hidden_size, exits[0] * layer_elements(decoder)
        return AUTO_SIZE if whole > before / 2 and decoder.vocab_size >= 2 * AUTO_SIZE else 0
    try:
        size = int(asked)
    except ValueError:
        raise ForedraftError(f"draft vocabulary {asked!r}: expected a number of tokens, auto or none") from None
    if not 1 <= size <= decoder.vocab_size:
        raise ForedraftError(
            f"draft vocabulary of {size}: this model has {decoder.vocab_size} tokens, expected 1 to as many"
        )
    if not exits:
        raise ForedraftError(f"draft vocabulary of {size}: only exits use one, and there are none; give --exits")
    return min(-(-size // _MULTIPLE) * _MULTIPLE, decoder.vocab_size)


def layer_elements(decoder: Decoder) -> int:
    """Weights that one layer reads for a token."""
    d = decoder
    attention = d.hidden_size * (d.qkv_size + d.heads * d.head_dim)
    return attention + 3 * d.hidden_size * d.intermediate_size


def choose_ids(
    tokenizer_json: bytes, size: int, vocab_size: int, eos_ids: Iterable[int], texts: Iterable[str] = ()
) -> NDArray[np.int32]:
    """The ``size`` most frequent tokens, ascending, int32; special and end-of-text tokens first of all.

    Frequencies are counted in ``texts``; what they leave open follows the tokenizer's own order.
    """
    specials = [token["id"] for token in json.loads(tokenizer_json).get("added_tokens", ()) if token.get("special")]
    order = [*eos_ids, *specials, *_counted(tokenizer_json, texts), *default_order(tokenizer_json, vocab_size)]
    ids = [token for token in dict.fromkeys(order) if 0 <= token < vocab_size][:size]
    return np.sort(np.array(ids, np.int32))


def default_order(tokenizer_json: bytes, vocab_size: int) -> list[int]:
    """All ids, the likely frequent ones first.

    A BPE vocabulary grows by its most frequent pair, so merges are in order of frequency; single symbols, which no
    merge makes, come before them. Other vocabularies are ordered by id.
    """
    model = json.loads(tokenizer_json)["model"]
    if model.get("type") != "BPE" or not model.get("merges"):
        return list(range(vocab_size))
    vocabulary: dict[str, int] = model["vocab"]
    pairs = (pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"])
    merged = [vocabulary[text] for text in ("".join(pair) for pair in pairs) if text in vocabulary]
    symbols = sorted(set(vocabulary.values()).difference(merged))
    return list(dict.fromkeys([*symbols, *merged, *range(vocab_size)]))


def _counted(tokenizer_json: bytes, texts: Iterable[str]) -> list[int]:
    tokenizer = Tokenizer(tokenizer_json)
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for text in texts:
        np.add.at(counts, tokenizer.encode(text, add_bos=False), 1)
    order = np.argsort(-counts, kind="stable")
    return [int(token) for token in order[: int((counts > 0).sum())]]
