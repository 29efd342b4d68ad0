"""The context hash: one 64-bit word per (distance from the end, token), combined by exclusive or.

``hash_n(..., t2, t1, t0) = W[0, t0] ^ W[1, t1] ^ ... ^ W[n-1, t_{n-1}]`` (tabulation hashing, Zobrist 1970). A context
that reaches one token further back is one exclusive or away, and numpy and plain Python compute the same number.
The words are a fixed function of (distance, token), so every process and every file agrees on them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

ORDERS = (1, 2, 3, 4, 6, 8)
"""Context lengths that the levels may index, shortest first."""
LONGEST = ORDERS[-1]

_GOLDEN = 0x9E3779B97F4A7C15


def _splitmix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), element by element, modulo 2**64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@lru_cache(maxsize=8)
def word_table(vocab_size: int, distance: int) -> npt.NDArray[np.uint64]:
    """The words of every token at one distance from the end of the context, uint64 [vocab_size]."""
    base = (distance << 40) * _GOLDEN & 0xFFFFFFFFFFFFFFFF
    ids = np.arange(1, vocab_size + 1, dtype=np.uint64)
    table = _splitmix64(ids * np.uint64(_GOLDEN) + np.uint64(base))
    table.flags.writeable = False
    return table


@lru_cache(maxsize=8)
def words(vocab_size: int) -> tuple[memoryview[int], ...]:
    """``words(v)[distance][token]`` as Python integers; memory 64 bytes a token, shared within the process."""
    return tuple(word_table(vocab_size, distance).data for distance in range(LONGEST))


def token_bits(vocab_size: int) -> int:
    """Bits that hold every token id and one id more, which means "any other token" (see ``rest_token``)."""
    return vocab_size.bit_length()


def rest_token(vocab_size: int) -> int:
    """The id, outside the vocabulary, under which counts of unlisted next tokens are carried."""
    return (1 << token_bits(vocab_size)) - 1


def context_mask(vocab_size: int) -> int:
    """The bits of a context hash that a database keeps: all but the lowest ``token_bits``.

    The builder puts the next token into the low bits, so that an n-gram is one sortable integer. Of 64 bits 46 or
    more stay for the context: with 100 million contexts a stranger is mistaken for a known one once in a million.
    """
    return 0xFFFFFFFFFFFFFFFF & ~rest_token(vocab_size)


def ngram_keys(tokens: npt.NDArray[np.uint32], order: int, vocab_size: int) -> npt.NDArray[np.uint64]:
    """One key (context hash | next token) for each n-gram of one text: uint64 [max(0, len(tokens) - order)].

    Key i belongs to context ``tokens[i:i + order]`` and next token ``tokens[i + order]``.
    """
    count = len(tokens) - order
    if count <= 0:
        return np.empty(0, np.uint64)
    keys = np.zeros(count, np.uint64)
    for distance in range(order):
        keys ^= word_table(vocab_size, distance)[tokens[order - 1 - distance : len(tokens) - 1 - distance]]
    return keys & np.uint64(context_mask(vocab_size)) | tokens[order:].astype(np.uint64)


def order_hashes(recent: tuple[int, ...], tables: tuple[memoryview[int], ...]) -> tuple[int, ...]:
    """The hashes of the contexts that end with ``recent`` (at most 8 tokens), one for each order that fits in it."""
    if len(recent) == LONGEST:
        t7, t6, t5, t4, t3, t2, t1, t0 = recent
        w0, w1, w2, w3, w4, w5, w6, w7 = tables
        first = w0[t0]
        second = first ^ w1[t1]
        third = second ^ w2[t2]
        fourth = third ^ w3[t3]
        sixth = fourth ^ w4[t4] ^ w5[t5]
        return first, second, third, fourth, sixth, sixth ^ w6[t6] ^ w7[t7]
    hashes: list[int] = []
    value = 0
    for distance, token in enumerate(reversed(recent)):
        value ^= tables[distance][token]
        if distance + 1 in ORDERS:
            hashes.append(value)
    return tuple(hashes)
