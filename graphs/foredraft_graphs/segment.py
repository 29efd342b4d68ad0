"""The graph of one segment: the layers between two exits, with the contract's inputs and outputs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.exit_readout import exit_readout, has_adapter
from foredraft_graphs.lowering import AttentionInputs, Lowering
from foredraft_graphs.weights_file import WeightsFile

MASK_WORDS = 8
"""32-bit words per mask row: the window above ``n_past`` that a forward can address is 256 slots."""

FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32


def embedding_weight(decoder: Decoder) -> str:
    """A tied model embeds with the head's own matrix."""
    return "head" if decoder.tied else "embed"


def segment_graph(
    decoder: Decoder, first: int, last: int, weights: WeightsFile, lowering: Lowering, name: str
) -> ir.Model:
    """Layers ``first .. last-1`` as a model.

    Inputs: ``tokens`` int32 [T] (if ``first`` is 0) or ``hidden`` float32 [T, hidden_size]; ``positions``, ``slots``
    int32 [T]; ``n_past`` int32 [1]; ``mask`` int32 [T, 8]; per layer ``key_l`` and ``value_l``.
    Outputs: ``readout`` float32 [T, hidden_size] (the exit's normed state, what the head reads) and, unless this is
    the last segment, ``hidden_out`` float32 [T, hidden_size].
    """
    g = GraphBuilder(name, weights, lowering.weights_as_inputs)
    if first == 0:
        x = lowering.embedding(g, g.input("tokens", INT32, ["T"]), embedding_weight(decoder), decoder)
    else:
        x = g.input("hidden", FLOAT, ["T", decoder.hidden_size])
    inputs = AttentionInputs(
        positions=g.input("positions", INT32, ["T"]),
        slots=g.input("slots", INT32, ["T"]),
        n_past=g.input("n_past", INT32, [1]),
        mask=g.input("mask", INT32, ["T", MASK_WORDS]),
    )
    normed = lowering.norm(g, x, f"layers.{first}.attn_norm", decoder.norm_eps, f"layers.{first}.attn_norm/out")
    for layer in range(first, last):
        next_norm = "norm" if layer + 1 == last else f"layers.{layer + 1}.attn_norm"
        normed, x = _layer(g, lowering, decoder, layer, normed, x, inputs, next_norm)
    if last < decoder.layers and has_adapter(weights, last):
        normed = exit_readout(g, lowering, decoder, last, x)
    g.output(normed, "readout", FLOAT, ["T", decoder.hidden_size])
    if last < decoder.layers:
        g.output(x, "hidden_out", FLOAT, ["T", decoder.hidden_size])
    return g.model()


def _layer(
    g: GraphBuilder,
    lowering: Lowering,
    decoder: Decoder,
    layer: int,
    normed: ir.Value,
    x: ir.Value,
    inputs: AttentionInputs,
    next_norm: str,
) -> tuple[ir.Value, ir.Value]:
    """One layer from its normed input and residual to the next norm's output and residual."""
    p, d = f"layers.{layer}", decoder
    qkv = lowering.linear(g, normed, f"{p}.qkv", d.qkv_size, d.hidden_size, f"{p}.qkv/out")
    qkv = _bias(g, qkv, f"{p}.qkv.bias")
    if d.qk_norm:
        qkv = _qk_norm(g, lowering, d, qkv, p)
    attended = lowering.attention(g, qkv, inputs, layer, d)
    o = lowering.linear(g, attended, f"{p}.o", d.hidden_size, d.heads * d.head_dim, f"{p}.o/out")
    o = _bias(g, o, f"{p}.o.bias")
    normed, x = lowering.add_norm(g, x, o, f"{p}.mlp_norm", d.norm_eps, (f"{p}.mlp_norm/out", f"{p}.mlp_norm/sum"))
    gate_up = lowering.linear(g, normed, f"{p}.gate_up", 2 * d.intermediate_size, d.hidden_size, f"{p}.gate_up/out")
    gate_up = _bias(g, gate_up, f"{p}.gate_up.bias")
    act = lowering.swiglu(g, gate_up, d.intermediate_size, f"{p}.act")
    down = lowering.linear(g, act, f"{p}.down", d.hidden_size, d.intermediate_size, f"{p}.down/out")
    down = _bias(g, down, f"{p}.down.bias")
    return lowering.add_norm(g, x, down, next_norm, d.norm_eps, (f"{p}.next_norm/out", f"{p}.next_norm/sum"))


def _bias(g: GraphBuilder, y: ir.Value, bias: str) -> ir.Value:
    """The bias is there if the weights file has one; which ones it may have is the exporter's affair."""
    return g.op("Add", y, g.weight(bias), name=f"{bias}/out") if g.has_weight(bias) else y


def _qk_norm(g: GraphBuilder, lowering: Lowering, d: Decoder, qkv: ir.Value, p: str) -> ir.Value:
    """RMS norm over each head of q and of k, v left alone (Qwen3)."""
    q_size, kv_size = d.heads * d.head_dim, d.kv_heads * d.head_dim
    sizes = g.constant("qkv_sizes", np.array([q_size, kv_size, kv_size], np.int64))
    q, k, v = g.ops("Split", qkv, sizes, names=[f"{p}.q", f"{p}.k", f"{p}.v"], axis=-1)
    per_head = g.constant("per_head", np.array([-1, d.head_dim], np.int64))
    normed = []
    for value, which, heads in ((q, "q", d.heads), (k, "k", d.kv_heads)):
        rows = g.op("Reshape", value, per_head, name=f"{p}.{which}/per_head")
        rows = lowering.norm(g, rows, f"{p}.{which}_norm", d.norm_eps, f"{p}.{which}_norm/out")
        flat = g.constant(f"flat_{which}", np.array([-1, heads * d.head_dim], np.int64))
        normed.append(g.op("Reshape", rows, flat, name=f"{p}.{which}/flat"))
    return g.op("Concat", *normed, v, name=f"{p}.qkv/normed", axis=-1)
