"""Lowering to standard ONNX operators: runs on any engine, and is the oracle for the others.

Exact for chains, within rounding for trees (see portable_attention.py).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import AttentionInputs
from foredraft_graphs.portable_attention import tree_attention
from foredraft_graphs.standard import StandardOperators
from foredraft_graphs.unpacking import as_float, dequantized, dequantized_by_rows, dequantized_rows
from foredraft_plugins.block_linear.packing import BLOCK


class PortableLowering(StandardOperators):
    """Weights are unpacked by constant folding when the engine opens; activations are rounded where the kernels do."""

    name = "portable"
    weights_as_inputs = False
    top = 0

    def supports(self, decoder: Decoder) -> bool:
        """Every decoder."""
        return True

    def embedding(self, g: GraphBuilder, tokens: ir.Value, weight: str, decoder: Decoder) -> ir.Value:
        bits = g.weights.bits[weight]
        if bits >= 16:
            rows = g.op("Gather", g.weight(weight), tokens, name="embed/rows", axis=0)
            return as_float(g, rows, bits, "embed/out")
        return dequantized_rows(g, weight, tokens, decoder.hidden_size, "embed/out")

    def linear(self, g: GraphBuilder, x: ir.Value, weight: str, n: int, k: int, name: str) -> ir.Value:
        bits = g.weights.bits[weight]
        if bits >= 16:
            matrix = as_float(g, g.weight(weight), bits, f"{weight}/float")
        elif g.weights.layout == "rows":
            matrix = dequantized_by_rows(g, weight, k)
        else:
            matrix = dequantized(g, weight, n, k)
            x = self._rounded(g, x, k, f"{name}/x")
        return g.op("MatMul", x, g.op("Transpose", matrix, name=f"{name}/weight", perm=[1, 0]), name=name)

    def attention(
        self, g: GraphBuilder, qkv: ir.Value, inputs: AttentionInputs, layer: int, decoder: Decoder
    ) -> ir.Value:
        return tree_attention(g, qkv, inputs, layer, decoder)

    def _rounded(self, g: GraphBuilder, x: ir.Value, k: int, name: str) -> ir.Value:
        """Activations rounded to int8 per row and block of 32 (and back), which is what BlockLinear computes with."""
        if rounded := g.known(f"{x.name}/rounded"):
            return rounded
        blocks = g.constant(f"blocks_{k}", np.array([0, k // BLOCK, BLOCK], np.int64))
        x3 = g.op("Reshape", x, blocks, name=f"{name}/blocks")
        top = g.op(
            "ReduceMax", g.op("Abs", x3, name=f"{name}/abs"), g.constant("axis_-1", np.array([-1])), name=f"{name}/max"
        )
        top = g.op("Max", top, g.constant("tiny", np.array(1e-30, np.float32)), name=f"{name}/top")
        scale = g.op("Div", top, g.constant("127", np.array(127, np.float32)), name=f"{name}/scale")
        codes = g.op("Round", g.op("Div", x3, scale, name=f"{name}/ratio"), name=f"{name}/codes")
        back = g.op("Mul", codes, scale, name=f"{name}/back")
        flat = g.constant(f"flat_{k}", np.array([0, k], np.int64))
        return g.op("Reshape", back, flat, name=f"{x.name}/rounded")
