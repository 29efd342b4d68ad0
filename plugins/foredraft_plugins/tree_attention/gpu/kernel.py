"""The GPU kernels of TreeAttention, in Triton. T tokens, S cache rows ("slots"), HQ query and HK KV heads of HD.

A row of `attend` is a token and one of the HQ / HK query heads that share a KV head, so that keys and values are read
once for the whole group. The slots are split into chunks (flash decoding), of which `combine` joins the results: one
token alone keeps a GPU busy. Blocks of SLOTS slots start at multiples of SLOTS. A slot that a row does not see adds an
exact zero to its sums, so a row has the same bits whatever its tile, and the tree that others walk.

The softmax is taken to base 2: 2^(x log2 e) = e^x. Parameters: ``interface.SIGNATURES``. Masks are made of blocks only:
in Triton's interpreter, the `&` of a block and a scalar is no mask.
"""

# In Triton, what is known at compile time has capitals, and functions have no Python types.
# ruff: noqa: N803
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

import triton
import triton.language as tl

__all__ = ["append", "attend", "combine", "copy_rows"]

LOG2_E = tl.constexpr(1.4426950408889634)
WORDS = tl.constexpr(8)


@triton.jit
def append(
    qkv,
    key,
    value,
    slots,
    positions,
    cos,
    sin,
    query,
    cache_rows,
    angles,
    HQ: tl.constexpr,
    HK: tl.constexpr,
    HD: tl.constexpr,
    LANES: tl.constexpr,
    HALF: tl.constexpr,
):
    """One token and head of qkv: a query goes, rotated, to `query`; a key, rotated, and a value to the caches.

    Grid (T, HQ + 2 HK). Arithmetic is float32, rounded once. Rows and angles outside their tables are not touched.
    """
    token, head = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, LANES)
    inside = lane < HD
    heads = qkv + (token * (HQ + 2 * HK) + head) * HD
    x = tl.load(heads + lane, mask=inside, other=0.0).to(tl.float32)
    if HALF > 0 and head < HQ + HK:
        turns = lane < 2 * HALF
        first = lane < HALF
        partner = tl.load(heads + tl.where(first, lane + HALF, lane - HALF), mask=turns, other=0.0).to(tl.float32)
        angle = tl.load(positions + token) * HALF + lane % HALF
        known = turns & (angle >= 0) & (angle < angles * HALF)
        c = tl.load(cos + angle, mask=known, other=1.0)
        s = tl.load(sin + angle, mask=known, other=0.0)
        x = x * c + partner * tl.where(first, -s, s)
    result = x.to(query.dtype.element_ty)
    slot = tl.load(slots + token) + tl.zeros_like(lane)
    kept = inside & (slot >= 0) & (slot < cache_rows)
    if head < HQ:
        tl.store(query + (token * HQ + head) * HD + lane, result, mask=inside)
    elif head < HQ + HK:
        tl.store(key + (slot * HK + head - HQ) * HD + lane, result, mask=kept)
    else:
        tl.store(value + (slot * HK + head - HQ - HK) * HD + lane, result, mask=kept)


@triton.jit
def attend(
    query,
    key,
    value,
    n_past,
    mask,
    out,
    partial,
    sums,
    scale,
    tokens,
    cache_rows,
    words,
    chunk,
    HQ: tl.constexpr,
    HK: tl.constexpr,
    HD: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    SPLIT: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """ROWS rows of one KV head over one chunk of slots. Grid (tiles of rows, HK, chunks).

    SPLIT: leaves the unnormalised sum in `partial` [chunks, T, HQ, HD], and in `sums` [chunks, T, HQ, 2] the largest
    score and the sum of the weights. Otherwise there is one chunk, and the result goes to `out` [T, HQ, HD].
    """
    group: tl.constexpr = HQ // HK
    kv_head = tl.program_id(1)
    first = tl.program_id(2) * chunk
    past = tl.minimum(tl.load(n_past), cache_rows)
    if first >= tl.minimum(past + 32 * words, cache_rows):
        return
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = row // group
    real = token < tokens
    at = token * HQ + kv_head * group + row % group
    lane = tl.arange(0, LANES)
    inside = lane < HD
    q = tl.load(query + at[:, None] * HD + lane[None, :], mask=real[:, None] & inside[None, :], other=0.0)
    end = tl.minimum(tl.minimum(past + 32 * _words_used(mask, token, real, words), cache_rows), first + chunk)
    whole = tl.maximum(tl.minimum(past, end) // SLOTS * SLOTS, first)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, LANES], tl.float32)
    for start in range(first, whole, SLOTS):
        slot = start + tl.arange(0, SLOTS)
        place = (slot * HK + kv_head) * HD
        k = tl.load(key + place[None, :] + lane[:, None], mask=inside[:, None], other=0.0)
        scores = _dot(q, k, UPCAST) * (scale * LOG2_E)
        v = tl.load(value + place[:, None] + lane[None, :], mask=inside[None, :], other=0.0)
        best, total, mixed = _add(best, total, mixed, scores, v, UPCAST)
    for start in tl.range(whole, end, SLOTS, num_stages=1):
        slot = start + tl.arange(0, SLOTS)
        place = (slot * HK + kv_head) * HD
        k = tl.load(key + place[None, :] + lane[:, None], mask=inside[:, None] & (slot < end)[None, :], other=0.0)
        seen = _marked(mask, token, real, words, start - past, SLOTS) | (slot < past)[None, :]
        seen = seen & (slot < end)[None, :]
        scores = tl.where(seen, _dot(q, k, UPCAST) * (scale * LOG2_E), float("-inf"))
        # What nobody sees may hold anything, also a NaN, which a weight of zero would not remove.
        useful = tl.max(scores, 0) != float("-inf")
        v = tl.load(value + place[:, None] + lane[None, :], mask=useful[:, None] & inside[None, :], other=0.0)
        best, total, mixed = _add(best, total, mixed, scores, v, UPCAST)
    if SPLIT:
        at += tl.program_id(2) * tokens * HQ
        tl.store(partial + at[:, None] * HD + lane[None, :], mixed, mask=real[:, None] & inside[None, :])
        tl.store(sums + at * 2, best, mask=real)
        tl.store(sums + at * 2 + 1, total, mask=real)
    else:
        result = mixed / tl.where(total > 0, total, 1.0)[:, None]
        stored = real[:, None] & inside[None, :]
        tl.store(out + at[:, None] * HD + lane[None, :], result.to(out.dtype.element_ty), mask=stored)


@triton.jit
def combine(
    partial,
    sums,
    n_past,
    out,
    tokens,
    cache_rows,
    words,
    chunk,
    HQ: tl.constexpr,
    HD: tl.constexpr,
    LANES: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Joins the chunks' results for one token and query head. Grid (T HQ). A row that saw nothing gives 0."""
    past = tl.minimum(tl.load(n_past), cache_rows)
    bound = tl.minimum(past + 32 * words, cache_rows)
    split = tl.arange(0, SPLITS)
    written = split * chunk < bound
    at = split * tokens * HQ + tl.program_id(0)
    best = tl.load(sums + at * 2, mask=written, other=float("-inf"))
    total = tl.load(sums + at * 2 + 1, mask=written, other=0.0)
    lane = tl.arange(0, LANES)
    inside = lane < HD
    mixed = tl.load(partial + at[:, None] * HD + lane[None, :], mask=written[:, None] & inside[None, :], other=0.0)
    weight = tl.exp2(best - _finite(tl.max(best, 0)))
    total = tl.sum(total * weight, 0)
    result = tl.sum(mixed * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + tl.program_id(0) * HD + lane, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def copy_rows(
    source,
    target,
    source_rows,
    target_rows,
    rows,
    width,
    source_stride,
    target_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """target[plane, target_rows[i]] = source[plane, source_rows[i]] in 4-byte words. Grid (tiles of columns, planes).

    No two programs share a column, and one reads ROWS rows before it writes any, so source and target may overlap.
    """
    plane = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    read = source + plane * source_stride + column
    written = target + plane * target_stride + column
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        real = row < rows
        inside = real[:, None] & (column < width)[None, :]
        words = tl.load(read[None, :] + _rows(source_rows, row, real)[:, None] * width, mask=inside)
        tl.debug_barrier()
        tl.store(written[None, :] + _rows(target_rows, row, real)[:, None] * width, words, mask=inside)
        tl.debug_barrier()


@triton.jit
def _rows(table, row, real):
    """The rows that `table` names, or `row` itself where the table is null."""
    given = table.to(tl.int64) + tl.zeros_like(row) != 0
    return tl.where(given, tl.load(table + row, mask=real & given, other=0), row).to(tl.int64)


@triton.jit
def _words_used(mask, token, real, words):
    """How many words of the mask it takes to hold every bit that is set for one of the tokens."""
    used = tl.zeros_like(token)
    for start in range(0, words, WORDS):
        index = start + tl.arange(0, WORDS)
        given = real[:, None] & (index < words)[None, :]
        word = tl.load(mask + token[:, None] * words + index[None, :], mask=given, other=0)
        used = tl.maximum(used, tl.max(tl.where(word != 0, index[None, :] + 1, 0), 1))
    return tl.max(used, 0)


@triton.jit
def _marked(mask, token, real, words, first, SLOTS: tl.constexpr):
    """Which of the SLOTS <= 64 bits from bit `first` on are set, for each token. Bits before 0 count as not set.

    A word per row is put together from two neighbours, so that what is left to do for each slot is a shift.
    """
    lane = tl.arange(0, SLOTS)
    word = _word(mask, token, real, words, first)[:, None]
    if SLOTS > 32:
        word = tl.where((lane < 32)[None, :], word, _word(mask, token, real, words, first + 32)[:, None])
    return (word >> (lane % 32)[None, :].to(tl.uint32)) & 1 != 0


@triton.jit
def _word(mask, token, real, words, first):
    """The 32 bits from bit `first` on, for each token."""
    index = (first >> 5) + tl.zeros_like(token)
    row = mask + token * words
    low = tl.load(row + index, mask=real & (index >= 0) & (index < words), other=0).to(tl.uint32, bitcast=True)
    high = tl.load(row + index + 1, mask=real & (index >= -1) & (index + 1 < words), other=0)
    shift = (first & 31).to(tl.uint32)
    # In two steps: a shift by 32 has no meaning.
    return (low >> shift) | ((high.to(tl.uint32, bitcast=True) << 1) << (31 - shift))


@triton.jit
def _add(best, total, mixed, scores, v, UPCAST: tl.constexpr):
    """One more block of slots in the running softmax: largest score, sum of weights, weighted sum of values."""
    top = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp2(scores - _finite(top)[:, None])
    decay = tl.exp2(best - _finite(top))
    mixed = mixed * decay[:, None] + _dot(weights.to(v.dtype), v, UPCAST)
    return top, total * decay + tl.sum(weights, 1), mixed


@triton.jit
def _finite(top):
    """`top`, or 0 where nothing has been seen, so that a difference to it is no NaN."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def _dot(a, b, UPCAST: tl.constexpr):
    # Triton's interpreter has no bfloat16 product.
    if UPCAST:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b, input_precision="ieee")
