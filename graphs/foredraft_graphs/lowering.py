"""What a backend must say: how each building block of a decoder is written in its operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """The inputs that all layers of a segment share (see the contract in docs/graphs.md)."""

    positions: ir.Value
    slots: ir.Value
    n_past: ir.Value
    mask: ir.Value


class Lowering(Protocol):
    """One way to write a decoder's blocks. All activations between them are float32 [T, width]."""

    @property
    def name(self) -> str: ...

    @property
    def weights_as_inputs(self) -> bool:
        """Whether the weights are inputs of the graph, to be given by who runs it."""
        ...

    @property
    def top(self) -> int:
        """How many of the likeliest tokens a head names beside its logits."""
        ...

    def supports(self, decoder: Decoder) -> bool:
        """Whether the backend's operators can do this decoder."""
        ...

    def embedding(self, g: GraphBuilder, tokens: ir.Value, weight: str, decoder: Decoder) -> ir.Value: ...

    def linear(self, g: GraphBuilder, x: ir.Value, weight: str, n: int, k: int, name: str) -> ir.Value: ...

    def norm(self, g: GraphBuilder, x: ir.Value, weight: str, epsilon: float, name: str) -> ir.Value: ...

    def add_norm(
        self, g: GraphBuilder, x: ir.Value, delta: ir.Value, weight: str, epsilon: float, names: tuple[str, str]
    ) -> tuple[ir.Value, ir.Value]:
        """``(norm(x + delta), x + delta)``, called ``names``."""
        ...

    def swiglu(self, g: GraphBuilder, gate_up: ir.Value, size: int, name: str) -> ir.Value: ...

    def attention(
        self, g: GraphBuilder, qkv: ir.Value, inputs: AttentionInputs, layer: int, decoder: Decoder
    ) -> ir.Value:
        """Declares the layer's cache tensors too, since their layout is the backend's own affair."""
        ...
