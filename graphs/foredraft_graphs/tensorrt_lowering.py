"""Lowering to what TensorRT parses: matrices in 16 bits, norms and the residual stream in float32.

Weights are 16-bit floats, or integers that DequantizeLinear widens. They may be inputs of the graph, so that an engine
is code alone. Attention is the plugin's node, or standard operators (``native``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import AttentionInputs
from foredraft_graphs.standard import StandardOperators
from foredraft_graphs.tensorrt_native import native_attention
from foredraft_graphs.tensorrt_plugin import plugin_attention
from foredraft_plugins.block_linear.packing import BLOCK
from foredraft_plugins.tree_attention.gpu.images import HEAD_DIMS

FLOAT = ir.DataType.FLOAT
DTYPES = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}
TOP = 64


def lowering_name(attention_form: str, weights_as_inputs: bool) -> str:
    """What the graphs of such engines are called."""
    own = "tensorrt" if attention_form == "plugin" else "tensorrt-native"
    return own if weights_as_inputs else f"{own}-constants"


@dataclass(frozen=True, slots=True)
class TensorRTLowering(StandardOperators):
    """``dtype`` (fp16 or bf16) is that of matrix products, attention and caches.

    ``slots`` fixes the caches' rows, which ``native`` attention needs; None leaves them open.
    """

    dtype: str
    attention_form: str = "plugin"
    weights_as_inputs: bool = True
    slots: int | None = None
    top: int = TOP

    @property
    def name(self) -> str:
        return lowering_name(self.attention_form, self.weights_as_inputs)

    def supports(self, decoder: Decoder) -> bool:
        """The plugin's heads; standard operators take any."""
        return self.attention_form == "native" or decoder.head_dim in HEAD_DIMS

    def embedding(self, g: GraphBuilder, tokens: ir.Value, weight: str, decoder: Decoder) -> ir.Value:
        rows = g.op("Gather", g.weight(weight), tokens, name="embed/rows", axis=0)
        return g.op("Cast", rows, name="embed/out", to=FLOAT)

    def linear(self, g: GraphBuilder, x: ir.Value, weight: str, n: int, k: int, name: str) -> ir.Value:
        narrow = self._narrow(g, x)
        product = g.op("Gemm", narrow, self._matrix(g, weight), name=f"{name}/product", transB=1)
        if g.has_weight(f"{weight}.offset"):
            product = g.op("Add", product, self._offsets(g, x, weight, k, name), name=f"{name}/moved")
        return g.op("Cast", product, name=name, to=FLOAT)

    def attention(
        self, g: GraphBuilder, qkv: ir.Value, inputs: AttentionInputs, layer: int, decoder: Decoder
    ) -> ir.Value:
        dtype = DTYPES[self.dtype]
        if self.attention_form == "plugin":
            out = plugin_attention(g, self._narrow(g, qkv), inputs, layer, decoder, dtype)
        else:
            assert self.slots is not None
            out = native_attention(g, qkv, inputs, layer, decoder, dtype, self.slots)
        return g.op("Cast", out, name=f"layers.{layer}.attention/float", to=FLOAT)

    def _narrow(self, g: GraphBuilder, x: ir.Value) -> ir.Value:
        return g.once(f"{x.name}/{self.dtype}", "Cast", x, to=DTYPES[self.dtype])

    def _offsets(self, g: GraphBuilder, x: ir.Value, weight: str, k: int, name: str) -> ir.Value:
        """What the offsets add to the product [T, n]: a block's offset is the same for all its 32 columns, so it is
        multiplied with their sum. DequantizeLinear has none for 4 bits here.
        """
        blocks = g.constant(f"blocks_{k}", np.array([0, k // BLOCK, BLOCK], np.int64))
        sums = g.once(f"{x.name}/blocks", "Reshape", x, blocks)
        sums = g.once(f"{x.name}/sums", "ReduceSum", sums, g.constant("axis_-1", np.array([-1], np.int64)), keepdims=0)
        return g.op("Gemm", self._narrow(g, sums), g.weight(f"{weight}.offset"), name=f"{name}/offsets", transB=1)

    def _matrix(self, g: GraphBuilder, weight: str) -> ir.Value:
        """[n, k] in ``dtype``."""
        bits = g.weights.bits[weight]
        if bits == 16:
            return g.weight(weight)
        if bits == 32:  # an adapter's rows that do not divide into blocks
            return self._narrow(g, g.weight(weight))
        codes, scale = f"{weight}.codes", g.weight(f"{weight}.scale")
        if bits == 8:
            return g.op("DequantizeLinear", g.weight(codes), scale, name=f"{weight}/matrix", axis=0)
        packed = g.weight(codes, packed=ir.DataType.INT4)
        return g.op("DequantizeLinear", packed, scale, name=f"{weight}/matrix", axis=1, block_size=BLOCK)
