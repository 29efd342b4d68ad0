"""One forward of TreeAttention -> the kernels to launch: grids and arguments. Touches no device.

Everything follows from the number of tokens T and of cache rows S. What changes from one round to the next (n_past, the
mask, the slots) is read on the device, so a captured CUDA graph stays right, and a row's result does not depend on the
rows that share its forward.
"""

from __future__ import annotations

from dataclasses import dataclass

from foredraft_plugins.tree_attention.gpu.images import AttentionShape, PluginError
from foredraft_plugins.tree_attention.gpu.interface import (
    COPY_COLUMNS,
    DECODE_TOKENS,
    LEAST_CHUNK,
    TILE_ROWS,
    most_splits,
)

__all__ = ["Buffers", "Launch", "attention", "chunk_size", "row_copy", "workspace_size"]

_FLOAT = 4
_ITEM = 2
_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel on a grid of programs. `args` are those of ``interface.SIGNATURES[kernel]``, pointers as numbers."""

    kernel: str
    grid: tuple[int, int, int]
    args: tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class Buffers:
    """Device addresses of a forward: inputs and output of the node, and `workspace_size` bytes of scratch memory.

    qkv [T, (HQ + 2 HK) HD], key and value [S, HK, HD] (updated in place), out [T, HQ HD] in the dtype of the images;
    slots, positions i32 [T]; n_past i32 [1]; mask i32 [T, W]; cos, sin f32 [C, R / 2].
    """

    qkv: int
    key: int
    value: int
    slots: int
    positions: int
    n_past: int
    mask: int
    cos: int
    sin: int
    out: int
    workspace: int


def attention(
    shape: AttentionShape, buffers: Buffers, *, tokens: int, cache_rows: int, words: int, angles: int, scale: float
) -> list[Launch]:
    """The launches of one node, in order: T `tokens`, S `cache_rows`, W `words` of the mask, C rows of `angles`.

    Raises PluginError for a cache too large for the kernels' 32-bit offsets.
    """
    if cache_rows * shape.kv_num_heads * shape.head_dim >= 2**31:
        raise PluginError(f"a cache of {cache_rows} rows for {shape} has 2^31 elements or more, which is too many")
    b, space = buffers, _Workspace.of(shape, tokens, cache_rows)
    partial, sums, query = (b.workspace + offset for offset in (space.partial, space.sums, space.query))
    chunk = chunk_size(shape, cache_rows)
    extent = (tokens, cache_rows, words)
    heads = shape.num_heads + 2 * shape.kv_num_heads
    rows = tokens * shape.group
    append = Launch(
        "append",
        (tokens, heads, 1),
        (b.qkv, b.key, b.value, b.slots, b.positions, b.cos, b.sin, query, cache_rows, angles),
    )
    seen = (query, b.key, b.value, b.n_past, b.mask)
    if tokens > DECODE_TOKENS:
        grid = (_tiles(rows, TILE_ROWS["attend-prefill"]), shape.kv_num_heads, 1)
        return [append, Launch("attend-prefill", grid, (*seen, b.out, 0, 0, scale, *extent, cache_rows))]
    grid = (_tiles(rows, TILE_ROWS["attend-decode"]), shape.kv_num_heads, _tiles(cache_rows, chunk))
    return [
        append,
        Launch("attend-decode", grid, (*seen, 0, partial, sums, scale, *extent, chunk)),
        Launch("combine", (tokens * shape.num_heads, 1, 1), (partial, sums, b.n_past, b.out, *extent, chunk)),
    ]


def chunk_size(shape: AttentionShape, cache_rows: int) -> int:
    """Slots that one program of a split reads: small, but at most `most_splits` chunks, whatever T and n_past are."""
    chunk = LEAST_CHUNK
    while chunk * most_splits(shape.kv_num_heads) < cache_rows:
        chunk *= 2
    return chunk


def workspace_size(shape: AttentionShape, tokens: int, cache_rows: int) -> int:
    """Bytes that `attention` needs for T up to `tokens` and S up to `cache_rows`."""
    split = min(tokens, DECODE_TOKENS)
    # A cache a little smaller may be in more chunks, of half the size.
    splits = min(most_splits(shape.kv_num_heads), _tiles(cache_rows, LEAST_CHUNK))
    return max(_Workspace.laid_out(shape, split, splits).size, _Workspace.laid_out(shape, tokens, 0).size)


def row_copy(
    source: int,
    target: int,
    *,
    rows: int,
    width: int,
    source_rows: int = 0,
    target_rows: int = 0,
    planes: int = 1,
    source_stride: int = 0,
    target_stride: int = 0,
) -> Launch:
    """target[p, target_rows[i]] = source[p, source_rows[i]] for p < `planes`, i < `rows`.

    `source`, `target`: addresses of rows of `width` 4-byte words; plane p starts p times the stride (in words) further.
    `source_rows`, `target_rows`: addresses of i32 [rows], or 0 for row i itself. Within one buffer, up to 64 rows may
    move anywhere; more must ascend and move down (each target row at or below its source row).
    """
    grid = (_tiles(width, COPY_COLUMNS), planes, 1)
    return Launch(
        "copy-rows", grid, (source, target, source_rows, target_rows, rows, width, source_stride, target_stride)
    )


@dataclass(frozen=True, slots=True)
class _Workspace:
    """Offsets in bytes of partial f32 [splits, T, HQ, HD], sums f32 [splits, T, HQ, 2], rotated queries [T, HQ, HD]."""

    partial: int
    sums: int
    query: int
    size: int

    @classmethod
    def of(cls, shape: AttentionShape, tokens: int, cache_rows: int) -> _Workspace:
        splits = _tiles(cache_rows, chunk_size(shape, cache_rows)) if tokens <= DECODE_TOKENS else 0
        return cls.laid_out(shape, tokens, splits)

    @classmethod
    def laid_out(cls, shape: AttentionShape, tokens: int, splits: int) -> _Workspace:
        sums = _aligned(splits * tokens * shape.width * _FLOAT)
        query = sums + _aligned(splits * tokens * shape.num_heads * 2 * _FLOAT)
        return cls(partial=0, sums=sums, query=query, size=query + _aligned(tokens * shape.width * _ITEM))


def _aligned(size: int) -> int:
    return _tiles(size, _ALIGNMENT) * _ALIGNMENT


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)
