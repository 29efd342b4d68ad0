"""Attention as one node of our TensorRT plugin (plugins' tree_attention/tensorrt.py)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import Dim, GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import AttentionInputs
from foredraft_plugins.library import DOMAIN


def plugin_attention(
    g: GraphBuilder, qkv: ir.Value, inputs: AttentionInputs, layer: int, decoder: Decoder, dtype: ir.DataType
) -> ir.Value:
    """qkv [T, (heads + 2 kv_heads) * head_dim] -> [T, heads * head_dim], both of ``dtype``.

    Caches are [S, kv_heads, head_dim]; each has an output that the plugin aliases to the input's own memory.
    """
    d = decoder
    shape: list[Dim] = [d.kv_heads, d.head_dim]
    key, value = (g.input(f"{which}_{layer}", dtype, ["S", *shape]) for which in ("key", "value"))
    positions, cos, sin = _rotation(g, inputs, layer, d)
    out, key_out, value_out = g.ops(
        "TreeAttention",
        qkv,
        key,
        value,
        inputs.slots,
        positions,
        inputs.n_past,
        inputs.mask,
        cos,
        sin,
        names=[f"layers.{layer}.attention", f"key_{layer}_out", f"value_{layer}_out"],
        domain=DOMAIN,
        num_heads=d.heads,
        kv_num_heads=d.kv_heads,
        head_dim=d.head_dim,
        rotary_dim=d.rotary_dim,
        scale=d.attention_scale,
        plugin_namespace=DOMAIN,
        plugin_version="1",
    )
    # ONNX's shape inference, which tools rely on, does not know the node.
    out.shape, out.type = ir.Shape(["T", d.heads * d.head_dim]), ir.TensorType(dtype)
    g.output(key_out, f"key_{layer}_out", dtype, ["S", *shape])
    g.output(value_out, f"value_{layer}_out", dtype, ["S", *shape])
    return out


def _rotation(g: GraphBuilder, inputs: AttentionInputs, layer: int, d: Decoder) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Positions and tables of angles. A layer that does not rotate turns by 0, so that all share one set of kernels."""
    if layer not in d.no_rope_layers:
        return inputs.positions, g.weight("rope.cos"), g.weight("rope.sin")
    nowhere = g.once("positions/none", "Mul", inputs.positions, g.constant("no_position", np.array(0, np.int32)))
    still = np.zeros((1, d.rotary_dim // 2), np.float32)
    return nowhere, g.constant("rope.still.cos", still + 1), g.constant("rope.still.sin", still)
