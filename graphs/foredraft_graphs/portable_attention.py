"""TreeAttention in standard ONNX operators.

Caches are [kv_heads, S, head_dim]. Each has an output, which the caller binds to the input's own memory, so that
ScatterND updates it in place. Every sum over the cache runs over all S slots, whatever the batch: that makes it exact
for chains. A path with gaps adds its zeros at other places of the sum, so a tree is right within rounding.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import Dim, GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import AttentionInputs
from foredraft_graphs.segment import MASK_WORDS

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
WORD = 32


def tree_attention(g: GraphBuilder, qkv: ir.Value, inputs: AttentionInputs, layer: int, decoder: Decoder) -> ir.Value:
    """qkv [T, (heads + 2 kv_heads) * head_dim] -> [T, heads * head_dim]; see plugins/ for the meaning."""
    d, p = decoder, f"layers.{layer}"
    q, k, v = split_heads(g, qkv, d, p)
    if layer not in d.no_rope_layers:
        q = rotated(g, q, inputs, d, f"{p}.q")
        k = rotated(g, k, inputs, d, f"{p}.k")
    keys = _appended(g, f"key_{layer}", k, inputs, d)
    values = _appended(g, f"value_{layer}", v, inputs, d)
    keys = g.op("Transpose", keys, name=f"{p}.keys/t", perm=[0, 2, 1])
    scores = g.op("MatMul", _rows(g, q, d, p), keys, name=f"{p}.scores")
    scores = g.op("Add", scores, _bias(g, inputs, d, f"key_{layer}_out"), name=f"{p}.scores/masked")
    weights = g.op("Softmax", scores, name=f"{p}.weights", axis=-1)
    return _by_node(g, g.op("MatMul", weights, values, name=f"{p}.attended"), d, p)


def split_heads(g: GraphBuilder, qkv: ir.Value, d: Decoder, p: str) -> list[ir.Value]:
    """qkv [T, width] -> q [T, heads, head_dim], k and v [T, kv_heads, head_dim]."""
    sizes = np.array([d.heads, d.kv_heads, d.kv_heads], np.int64)
    by_head = g.constant("by_head", np.array([0, int(sizes.sum()), d.head_dim], np.int64))
    x = g.op("Reshape", qkv, by_head, name=f"{p}.qkv/heads")
    names = [f"{p}.q/heads", f"{p}.k/heads", f"{p}.v/heads"]
    return g.ops("Split", x, g.constant("head_sizes", sizes), names=names, axis=1)


def _rows(g: GraphBuilder, q: ir.Value, d: Decoder, p: str) -> ir.Value:
    """q [T, heads, head_dim] -> scaled, [kv_heads, group * T, head_dim], and a row of zeros where group is 1.

    ONNX Runtime sums a product with a single row in another order than one with several, so there are always several.
    """
    q = g.op("Transpose", q, name=f"{p}.q/by_head", perm=[1, 0, 2])
    rows = g.constant("rows", np.array([d.kv_heads, -1, d.head_dim], np.int64))
    q = g.op("Reshape", q, rows, name=f"{p}.q/rows")
    if d.heads == d.kv_heads:
        q = g.op("Pad", q, g.constant("pad_row", np.array([0, 0, 0, 0, 1, 0], np.int64)), name=f"{p}.q/padded")
    scale = g.constant("attention_scale", np.array(d.attention_scale, np.float32))
    return g.op("Mul", q, scale, name=f"{p}.q/scaled")


def _by_node(g: GraphBuilder, rows: ir.Value, d: Decoder, p: str) -> ir.Value:
    """[kv_heads, group * T, head_dim] -> [T, heads * head_dim]; the inverse of ``_rows``."""
    if d.heads == d.kv_heads:
        start, end = g.constant("first", np.array([0], np.int64)), g.constant("last_row", np.array([-1], np.int64))
        rows = g.op("Slice", rows, start, end, g.constant("axis_1", np.array([1], np.int64)), name=f"{p}.attended/rows")
    heads = g.constant("heads_first", np.array([d.heads, -1, d.head_dim], np.int64))
    out = g.op("Reshape", rows, heads, name=f"{p}.attended/heads")
    out = g.op("Transpose", out, name=f"{p}.attended/by_node", perm=[1, 0, 2])
    flat = g.constant("flat_heads", np.array([0, d.heads * d.head_dim], np.int64))
    return g.op("Reshape", out, flat, name=f"{p}.attention")


def rotated(g: GraphBuilder, x: ir.Value, inputs: AttentionInputs, d: Decoder, name: str) -> ir.Value:
    """Half-split rotation of the first rotary_dim dimensions of x [T, heads, head_dim]."""
    half, axis = d.rotary_dim // 2, g.constant("axis_1", np.array([1], np.int64))
    tables = []
    for table in ("cos", "sin"):
        rows = g.once(f"rope.{table}/rows", "Gather", g.weight(f"rope.{table}"), inputs.positions, axis=0)
        tables.append(g.once(f"rope.{table}/row", "Unsqueeze", rows, axis))
    cos, sin = tables
    sizes = [half, half] + ([d.head_dim - 2 * half] if d.head_dim > 2 * half else [])
    split = g.constant("rotary_sizes", np.array(sizes, np.int64))
    a, b, *rest = g.ops("Split", x, split, names=[f"{name}/part{i}" for i in range(len(sizes))], axis=-1)
    ac, bs = g.op("Mul", a, cos, name=f"{name}/ac"), g.op("Mul", b, sin, name=f"{name}/bs")
    bc, as_ = g.op("Mul", b, cos, name=f"{name}/bc"), g.op("Mul", a, sin, name=f"{name}/as")
    first, second = g.op("Sub", ac, bs, name=f"{name}/first"), g.op("Add", bc, as_, name=f"{name}/second")
    return g.op("Concat", first, second, *rest, name=f"{name}/rotated", axis=-1)


def _appended(g: GraphBuilder, cache: str, rows: ir.Value, inputs: AttentionInputs, d: Decoder) -> ir.Value:
    """The cache with rows [T, kv_heads, head_dim] written at ``slots``; also the output that shares its memory."""
    shape: list[Dim] = [d.kv_heads, "S", d.head_dim]
    before = g.input(cache, FLOAT, shape)
    by_head = g.op("Transpose", rows, name=f"{cache}/rows", perm=[1, 0, 2])
    after = g.op("ScatterND", before, _indices(g, inputs, d), by_head, name=f"{cache}_out")
    g.output(after, f"{cache}_out", FLOAT, shape)
    return after


def _indices(g: GraphBuilder, inputs: AttentionInputs, d: Decoder) -> ir.Value:
    """[kv_heads, T, 2]: (head, slot) of every row, shared by all layers."""
    slots = g.once("slots/64", "Cast", inputs.slots, to=INT64)
    slots = g.once("slots/3d", "Unsqueeze", slots, g.constant("axes_0_2", np.array([0, 2], np.int64)))
    heads = g.constant("heads/3d", np.arange(d.kv_heads, dtype=np.int64).reshape(-1, 1, 1))
    heads = g.once("heads/all", "Add", heads, g.once("slots/zero", "Sub", slots, slots))
    slots = g.once("slots/all", "Expand", slots, g.once("heads/shape", "Shape", heads))
    return g.once("indices", "Concat", heads, slots, axis=-1)


def _bias(g: GraphBuilder, inputs: AttentionInputs, d: Decoder, cache: str) -> ir.Value:
    """[group * T, S], rows as in ``_rows``: 0 where the node may see the slot, -inf elsewhere. Shared by all layers."""
    if bias := g.known("mask/bias"):
        return bias
    zero, one = g.constant("zero", np.array(0, np.int64)), g.constant("one", np.array(1, np.int64))
    size = g.op("Shape", g.known(cache), name="cache/shape", start=1, end=2)
    slots = g.op("Range", zero, g.op("Squeeze", size, name="cache/slots"), one, name="mask/slots")
    place = g.op("Sub", slots, g.op("Cast", inputs.n_past, name="mask/past", to=INT64), name="mask/place")
    settled = g.op("Less", place, zero, name="mask/settled")
    visible = g.op("Or", settled, _in_window(g, inputs, place), name="mask/visible")
    nothing, hidden = g.constant("0.0", np.array(0, np.float32)), g.constant("-inf", np.array(-np.inf, np.float32))
    bias = g.op("Where", visible, nothing, hidden, name="mask/by_node")
    if d.heads == d.kv_heads:
        return g.op("Pad", bias, g.constant("pad_node", np.array([0, 0, 1, 0], np.int64)), name="mask/bias")
    return g.op("Concat", *[bias] * (d.heads // d.kv_heads), name="mask/bias", axis=0)


def _in_window(g: GraphBuilder, inputs: AttentionInputs, place: ir.Value) -> ir.Value:
    """[T, S]: is the mask's bit for this slot set? ``place`` [S] is the slot's place in the window."""
    window = MASK_WORDS * WORD
    inside = g.op("Less", place, g.constant("window", np.array(window, np.int64)), name="mask/inside")
    first, last = g.constant("zero", np.array(0, np.int64)), g.constant("last", np.array(window - 1, np.int64))
    safe = g.op("Clip", place, first, last, name="mask/clipped")
    width = g.constant("word", np.array(WORD, np.int64))
    word, bit = g.op("Div", safe, width, name="mask/word"), g.op("Mod", safe, width, name="mask/bit")
    powers = g.constant("powers", (np.uint32(1) << np.arange(WORD, dtype=np.uint32)).view(np.int32))
    power = g.op("Gather", powers, bit, name="mask/power", axis=0)
    words = g.op("Gather", inputs.mask, word, name="mask/words", axis=1)
    hit = g.op("BitwiseAnd", words, power, name="mask/hit")
    hit = g.op("Cast", hit, name="mask/seen", to=ir.DataType.BOOL)
    return g.op("And", hit, inside, name="mask/window")
