"""Lowering to Foredraft's own CPU operators (plugins/): fast, and bitwise independent of the batch."""

from __future__ import annotations

import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import AttentionInputs
from foredraft_plugins.library import DOMAIN


class KernelLowering:
    """Keys lie interleaved by 16 slots, [kv_heads, S/16, head_dim, 16]; values as [kv_heads, S, head_dim]."""

    name = "kernels"
    weights_as_inputs = False
    top = 0

    def supports(self, decoder: Decoder) -> bool:
        """The operators take heads of 16 to 256 in steps of 16."""
        return decoder.head_dim % 16 == 0 and decoder.head_dim <= 256

    def embedding(self, g: GraphBuilder, tokens: ir.Value, weight: str, decoder: Decoder) -> ir.Value:
        bits = g.weights.bits[weight]
        if bits == 32:
            return g.op("Gather", g.weight(weight), tokens, name="embed/out", axis=0)
        return g.op(
            "BlockEmbedding",
            tokens,
            *self._block_weights(g, weight),
            name="embed/out",
            domain=DOMAIN,
            bits=bits,
            N=decoder.vocab_size,
            K=decoder.hidden_size,
        )

    def linear(self, g: GraphBuilder, x: ir.Value, weight: str, n: int, k: int, name: str) -> ir.Value:
        bits = g.weights.bits[weight]
        if bits == 32:
            return g.op("DenseLinear", x, g.weight(weight), name=name, domain=DOMAIN)
        return g.op("BlockLinear", x, *self._block_weights(g, weight), name=name, domain=DOMAIN, bits=bits, N=n, K=k)

    def norm(self, g: GraphBuilder, x: ir.Value, weight: str, epsilon: float, name: str) -> ir.Value:
        return g.op("RMSNorm", x, g.weight(weight), name=name, domain=DOMAIN, epsilon=epsilon)

    def add_norm(
        self, g: GraphBuilder, x: ir.Value, delta: ir.Value, weight: str, epsilon: float, names: tuple[str, str]
    ) -> tuple[ir.Value, ir.Value]:
        normed, total = g.ops("AddRMSNorm", x, delta, g.weight(weight), names=names, domain=DOMAIN, epsilon=epsilon)
        return normed, total

    def swiglu(self, g: GraphBuilder, gate_up: ir.Value, size: int, name: str) -> ir.Value:
        return g.op("SwiGLU", gate_up, name=name, domain=DOMAIN)

    def attention(
        self, g: GraphBuilder, qkv: ir.Value, inputs: AttentionInputs, layer: int, decoder: Decoder
    ) -> ir.Value:
        d = decoder
        key = g.input(f"key_{layer}", ir.DataType.FLOAT, [d.kv_heads, "S/16", d.head_dim, 16])
        value = g.input(f"value_{layer}", ir.DataType.FLOAT, [d.kv_heads, "S", d.head_dim])
        return g.op(
            "TreeAttention",
            qkv,
            key,
            value,
            inputs.slots,
            inputs.positions,
            inputs.n_past,
            inputs.mask,
            g.weight("rope.cos"),
            g.weight("rope.sin"),
            name=f"layers.{layer}.attention",
            domain=DOMAIN,
            num_heads=d.heads,
            kv_num_heads=d.kv_heads,
            head_dim=d.head_dim,
            rotary_dim=0 if layer in d.no_rope_layers else d.rotary_dim,
            scale=d.attention_scale,
        )

    @staticmethod
    def _block_weights(g: GraphBuilder, weight: str) -> list[ir.Value]:
        names = [f"{weight}.codes", f"{weight}.scale", f"{weight}.min"]
        return [g.weight(name) for name in names if g.has_weight(name)]
