"""The readout of an exit that has an adapter: the model's final norm of ``adapter(hidden)``.

    adapter(x) = W x + b  [+ D silu(U x + u)]

An exit without one is read out by the final norm alone, as LayerSkip trains it (arXiv 2404.16710). The affine form is
the tuned lens's (arXiv 2303.08112), its residual folded into W.
"""

from __future__ import annotations

import onnx_ir as ir

from foredraft_graphs.builder import GraphBuilder
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import Lowering
from foredraft_graphs.weights_file import WeightsFile


def has_adapter(weights: WeightsFile, exit_: int) -> bool:
    """Whether the weights file holds an adapter for the exit after ``exit_`` layers."""
    return f"exits.{exit_}.bias" in weights.tensors


def exit_readout(g: GraphBuilder, lowering: Lowering, decoder: Decoder, exit_: int, hidden: ir.Value) -> ir.Value:
    """``hidden`` float32 [T, hidden_size], the residual stream after ``exit_`` layers -> readout of the same shape.

    Matrices ``exits.{e}.weight`` [hidden_size, hidden_size], ``.up`` [rank, hidden_size] and ``.down``
    [hidden_size, rank]; vectors ``.bias`` [hidden_size] and ``.up_bias`` [rank]. Up and down are there or not.
    """
    p, width, epsilon = f"exits.{exit_}", decoder.hidden_size, decoder.norm_eps
    affine = lowering.linear(g, hidden, f"{p}.weight", width, width, f"{p}.weight/out")
    affine = g.op("Add", affine, g.weight(f"{p}.bias"), name=f"{p}.bias/out")
    if not g.has_weight(f"{p}.up_bias"):
        return lowering.norm(g, affine, "norm", epsilon, f"{p}/readout")
    (rank,) = g.weights.tensors[f"{p}.up_bias"].shape
    up = lowering.linear(g, hidden, f"{p}.up", rank, width, f"{p}.up/out")
    up = g.op("Add", up, g.weight(f"{p}.up_bias"), name=f"{p}.up_bias/out")
    act = g.op("Mul", up, g.op("Sigmoid", up, name=f"{p}.up/sigmoid"), name=f"{p}.up/silu")
    down = lowering.linear(g, act, f"{p}.down", width, rank, f"{p}.down/out")
    return lowering.add_norm(g, affine, down, "norm", epsilon, (f"{p}/readout", f"{p}/sum"))[0]
