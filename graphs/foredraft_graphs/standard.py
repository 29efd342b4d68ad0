"""What lowerings to standard operators have in common: norms and activations, in float32."""

from __future__ import annotations

import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder


class StandardOperators:
    """A part of ``Lowering``."""

    __slots__ = ()

    def norm(self, g: GraphBuilder, x: ir.Value, weight: str, epsilon: float, name: str) -> ir.Value:
        return g.op("RMSNormalization", x, g.weight(weight), name=name, axis=-1, epsilon=epsilon)

    def add_norm(
        self, g: GraphBuilder, x: ir.Value, delta: ir.Value, weight: str, epsilon: float, names: tuple[str, str]
    ) -> tuple[ir.Value, ir.Value]:
        total = g.op("Add", x, delta, name=names[1])
        return self.norm(g, total, weight, epsilon, names[0]), total

    def swiglu(self, g: GraphBuilder, gate_up: ir.Value, size: int, name: str) -> ir.Value:
        gate, up = g.ops("Split", gate_up, names=[f"{name}/gate", f"{name}/up"], axis=-1, num_outputs=2)
        silu = g.op("Mul", gate, g.op("Sigmoid", gate, name=f"{name}/sigmoid"), name=f"{name}/silu")
        return g.op("Mul", silu, up, name=name)
