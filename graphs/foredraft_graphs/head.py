"""The graph of the head: an exit's readout to logits. One head serves all exits."""

from __future__ import annotations

import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import Lowering
from foredraft_graphs.weights import WeightsFile


def head_graph(decoder: Decoder, weights: WeightsFile, lowering: Lowering) -> ir.Model:
    """``readout`` float32 [T, hidden_size] -> ``logits`` float32 [T, vocab_size]."""
    g = GraphBuilder("head", weights)
    readout = g.input("readout", ir.DataType.FLOAT, ["T", decoder.hidden_size])
    logits = lowering.linear(g, readout, "head", decoder.vocab_size, decoder.hidden_size, "head/out")
    if g.has_weight("head.bias"):
        logits = g.op("Add", logits, g.weight("head.bias"), name="head/biased")
    g.output(logits, "logits", ir.DataType.FLOAT, ["T", decoder.vocab_size])
    return g.model()
