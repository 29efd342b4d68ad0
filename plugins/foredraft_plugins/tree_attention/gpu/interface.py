"""What the compiled kernels and the code that launches them agree on: parameters in order, and the sizes of tiles."""

from __future__ import annotations

import hashlib

__all__ = [
    "COPY_COLUMNS",
    "COPY_ROWS",
    "DECODE_TOKENS",
    "DTYPES",
    "HIDDEN_PARAMETERS",
    "INTERFACE",
    "LEAST_CHUNK",
    "SIGNATURES",
    "TILE_ROWS",
    "most_splits",
]

DTYPES = ("fp16", "bf16")
"""Types of activations and caches."""

DECODE_TOKENS = 64
"""Forwards of up to so many tokens run `attend-decode`, longer ones `attend-prefill`."""

TILE_ROWS = {"attend-decode": 16, "attend-prefill": 64}
"""Rows (a token and one of the query heads that share a KV head) of one program of `attend`."""

LEAST_CHUNK = 64
"""Fewest slots of a chunk. A chunk is this times a power of two."""

COPY_ROWS, COPY_COLUMNS = 64, 32
"""Rows and 4-byte words that a program of `copy-rows` holds at once."""

_ATTEND = {
    "query": "*T",
    "key": "*T",
    "value": "*T",
    "n_past": "*i32",
    "mask": "*i32",
    "out": "*T",
    "partial": "*fp32",
    "sums": "*fp32",
    "scale": "fp32",
    "tokens": "i32",
    "cache_rows": "i32",
    "words": "i32",
    "chunk": "i32",
}

SIGNATURES: dict[str, dict[str, str]] = {
    "append": {
        "qkv": "*T",
        "key": "*T",
        "value": "*T",
        "slots": "*i32",
        "positions": "*i32",
        "cos": "*fp32",
        "sin": "*fp32",
        "query": "*T",
        "cache_rows": "i32",
        "angles": "i32",
    },
    "attend-decode": _ATTEND,
    "attend-prefill": _ATTEND,
    "combine": {
        "partial": "*fp32",
        "sums": "*fp32",
        "n_past": "*i32",
        "out": "*T",
        "tokens": "i32",
        "cache_rows": "i32",
        "words": "i32",
        "chunk": "i32",
    },
    "copy-rows": {
        "source": "*i32",
        "target": "*i32",
        "source_rows": "*i32",
        "target_rows": "*i32",
        "rows": "i32",
        "width": "i32",
        "source_stride": "i64",
        "target_stride": "i64",
    },
}
"""Kernel -> parameter -> type in Triton's notation, where T is the dtype of the images."""

HIDDEN_PARAMETERS = 2
"""Pointers that Triton appends to every kernel's parameters; the kernels here do not use them, so they are null."""


def most_splits(kv_heads: int) -> int:
    """Most chunks that the slots of a cache are split into; `combine` holds the results of all of them at once.

    Few KV heads need many chunks to fill a GPU; with many, the chunks' results would be more to move than the cache.
    """
    return 1 << max(16, min(64, 256 // kv_heads)).bit_length() - 1


_SPLITS = [most_splits(heads) for heads in range(1, 33)]
_AGREED = (SIGNATURES, HIDDEN_PARAMETERS, DECODE_TOKENS, TILE_ROWS, _SPLITS, LEAST_CHUNK, COPY_ROWS, COPY_COLUMNS)

INTERFACE = hashlib.sha256(repr(_AGREED).encode()).hexdigest()[:16]
"""Names all of the above: images of another interface are refused, since their launches would write anywhere."""
