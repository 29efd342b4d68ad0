"""Attention in TensorRT's own layers: the cache is updated in place by TensorScatter, which writes linear positions.

So a forward's slots must follow one another without gaps, and the caches' rows are fixed when the engine is built.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import Dim, GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import AttentionInputs
from foredraft_graphs.portable_attention import rotated, split_heads
from foredraft_graphs.segment import MASK_WORDS

INT64 = ir.DataType.INT64
WORD = 32


def native_attention(
    g: GraphBuilder,
    qkv: ir.Value,
    inputs: AttentionInputs,
    layer: int,
    decoder: Decoder,
    dtype: ir.DataType,
    slots: int,
) -> ir.Value:
    """qkv float32 [T, (heads + 2 kv_heads) * head_dim] -> ``dtype`` [T, heads * head_dim].

    Caches are [1, kv_heads, slots, head_dim].
    """
    d, p = decoder, f"layers.{layer}"
    q, k, v = split_heads(g, qkv, d, p)
    if layer not in d.no_rope_layers:
        q, k = (rotated(g, x, inputs, d, f"{p}.{which}") for x, which in ((q, "q"), (k, "k")))
    q, k, v = (_by_head(g, x, dtype, f"{p}.{which}") for x, which in ((q, "q"), (k, "k"), (v, "v")))
    caches = [
        _appended(g, f"{which}_{layer}", rows, inputs, d, dtype, slots) for which, rows in (("key", k), ("value", v))
    ]
    mask = _bias(g, inputs, dtype, slots)
    out = g.op("Attention", q, *caches, mask, name=f"{p}.attended", scale=d.attention_scale)
    out = g.op("Transpose", out, name=f"{p}.attended/by_node", perm=[0, 2, 1, 3])
    flat = g.constant("flat_heads", np.array([-1, d.heads * d.head_dim], np.int64))
    return g.op("Reshape", out, flat, name=f"{p}.attention")


def _by_head(g: GraphBuilder, x: ir.Value, dtype: ir.DataType, name: str) -> ir.Value:
    """float32 [T, heads, head_dim] -> ``dtype`` [1, heads, T, head_dim]."""
    x = g.op("Transpose", x, name=f"{name}/by_head", perm=[1, 0, 2])
    x = g.op("Unsqueeze", x, g.constant("axis_0", np.array([0], np.int64)), name=f"{name}/batch")
    return g.op("Cast", x, name=f"{name}/narrow", to=dtype)


def _appended(
    g: GraphBuilder,
    cache: str,
    rows: ir.Value,
    inputs: AttentionInputs,
    d: Decoder,
    dtype: ir.DataType,
    slots: int,
) -> ir.Value:
    """The cache with ``rows`` written from the first node's slot on; also the output that shares its memory."""
    shape: list[Dim] = [1, d.kv_heads, slots, d.head_dim]
    before = g.input(cache, dtype, shape)
    start, end = g.constant("first", np.array([0], np.int64)), g.constant("second", np.array([1], np.int64))
    first = g.once("slots/first", "Slice", inputs.slots, start, end)
    first = g.once("slots/first64", "Cast", first, to=INT64)
    after = g.op("TensorScatter", before, rows, first, name=f"{cache}_out", axis=-2, mode="linear")
    g.output(after, f"{cache}_out", dtype, shape)
    return after


def _bias(g: GraphBuilder, inputs: AttentionInputs, dtype: ir.DataType, slots: int) -> ir.Value:
    """[1, 1, T, slots]: 0 where the node may see the slot, the most negative number elsewhere. Once for all layers."""
    if bias := g.known("mask/bias"):
        return bias
    places = g.constant("mask/slots", np.arange(slots, dtype=np.int32))
    place = g.op("Sub", places, inputs.n_past, name="mask/place")
    zero = g.constant("zero32", np.array(0, np.int32))
    settled = g.op("Less", place, zero, name="mask/settled")
    visible = g.op("Or", settled, _in_window(g, inputs, place), name="mask/visible")
    lowest = -65504.0 if dtype == ir.DataType.FLOAT16 else -3e38
    nothing = g.constant("0.0", np.array(0, np.float32))
    hidden = g.constant("lowest", np.array(lowest, np.float32))
    by_node = g.op("Cast", g.op("Where", visible, nothing, hidden, name="mask/float"), name="mask/by_node", to=dtype)
    return g.op("Unsqueeze", by_node, g.constant("axes_0_1", np.array([0, 1], np.int64)), name="mask/bias")


def _in_window(g: GraphBuilder, inputs: AttentionInputs, place: ir.Value) -> ir.Value:
    """[T, slots]: is the mask's bit for this slot set? ``place`` [slots] is the slot's place in the window.

    TensorRT has no bitwise operators: every word is taken apart by division, in floats that hold 2**31 exactly once
    the word is cut in halves of 16 bits.
    """
    halves = 2 * MASK_WORDS
    count = g.constant("half", np.array(2**16, np.int32))
    low = g.op("Mod", inputs.mask, count, name="mask/low")
    high = g.op("Div", g.op("Sub", inputs.mask, low, name="mask/rest"), count, name="mask/high")
    high = g.op("Mod", high, count, name="mask/high16")
    last = g.constant("axis_-1", np.array([-1], np.int64))
    pair = [g.op("Unsqueeze", x, last, name=f"{x.name}/pair") for x in (low, high)]
    words = g.op("Concat", *pair, name="mask/pairs", axis=-1)
    words = g.op("Reshape", words, g.constant("halves", np.array([0, halves], np.int64)), name="mask/halves")
    inside = g.op("Less", place, g.constant("window", np.array(halves * 16, np.int32)), name="mask/inside")
    safe = g.op("Max", place, g.constant("zero32", np.array(0, np.int32)), name="mask/positive")
    safe = g.op("Min", safe, g.constant("last_place", np.array(halves * 16 - 1, np.int32)), name="mask/clipped")
    width = g.constant("bits", np.array(16, np.int32))
    word, bit = g.op("Div", safe, width, name="mask/word"), g.op("Mod", safe, width, name="mask/bit")
    powers = g.constant("powers16", (1 << np.arange(16)).astype(np.int32))
    power = g.op("Gather", powers, bit, name="mask/power", axis=0)
    shifted = g.op("Div", g.op("Gather", words, word, name="mask/words", axis=1), power, name="mask/shifted")
    hit = g.op("Mod", shifted, g.constant("two", np.array(2, np.int32)), name="mask/hit")
    seen = g.op("Equal", hit, g.constant("one32", np.array(1, np.int32)), name="mask/seen")
    return g.op("And", seen, inside, name="mask/window")
