"""The graphs of the heads: an exit's readout to logits. One head serves all exits; a smaller one may draft."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import Lowering
from foredraft_graphs.weights_file import WeightsFile

DRAFT_IDS = "draft_head.ids"
"""int32 [N], ascending: which tokens the rows of ``draft_head`` stand for. No graph reads it, the runtime does."""


def head_graph(decoder: Decoder, weights: WeightsFile, lowering: Lowering) -> ir.Model:
    """``readout`` float32 [T, hidden_size] -> ``logits`` float32 [T, vocab_size].

    Some lowerings also give ``top_ids`` int32 and ``top_logits`` float32 [T, k], the likeliest first, and ``log_total``
    float32 [T], the log of the sum of exp over all logits of a row.
    """
    return _graph(decoder, weights, lowering, "head", decoder.vocab_size)


def draft_head_graph(decoder: Decoder, weights: WeightsFile, lowering: Lowering) -> ir.Model:
    """``readout`` float32 [T, hidden_size] -> ``logits`` float32 [T, N] of the draft vocabulary's tokens only."""
    (rows,) = weights.tensors[DRAFT_IDS].shape
    return _graph(decoder, weights, lowering, "draft_head", rows)


def _graph(decoder: Decoder, weights: WeightsFile, lowering: Lowering, weight: str, rows: int) -> ir.Model:
    g = GraphBuilder(weight.replace("_", "-"), weights, lowering.weights_as_inputs)
    readout = g.input("readout", ir.DataType.FLOAT, ["T", decoder.hidden_size])
    logits = lowering.linear(g, readout, weight, rows, decoder.hidden_size, f"{weight}/out")
    if g.has_weight(f"{weight}.bias"):
        logits = g.op("Add", logits, g.weight(f"{weight}.bias"), name=f"{weight}/biased")
    g.output(logits, "logits", ir.DataType.FLOAT, ["T", rows])
    if count := min(lowering.top, rows):
        k = g.constant("k", np.array([count], np.int64))
        values, ids = g.ops("TopK", logits, k, names=["top/values", "top/ids"], axis=-1)
        g.output(values, "top_logits", ir.DataType.FLOAT, ["T", count])
        ids = g.op("Cast", ids, name="top/ids32", to=ir.DataType.INT32)
        g.output(ids, "top_ids", ir.DataType.INT32, ["T", count])
        g.output(_log_total(g, logits), "log_total", ir.DataType.FLOAT, ["T"])
    return g.model()


def _log_total(g: GraphBuilder, logits: ir.Value) -> ir.Value:
    """Counted from the largest, so that nothing overflows."""
    axis = g.constant("last", np.array([-1], np.int64))
    highest = g.op("ReduceMax", logits, axis, name="total/highest", keepdims=1)
    shares = g.op("Exp", g.op("Sub", logits, highest, name="total/behind"), name="total/shares")
    total = g.op("Log", g.op("ReduceSum", shares, axis, name="total/sum", keepdims=0), name="total/log")
    return g.op("Add", total, g.op("Squeeze", highest, axis, name="total/from"), name="total/out")
