"""Graphs for the builder: of tiny models, of SmolLM2, and of a segment in the shape of a 7B model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import onnx_ir as ir

from foredraft_exporter import models
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.weights.precision import ROWS
from foredraft_exporter.weights.weight_plan import plan
from foredraft_exporter.weights.writing import read_layout, write_weights
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.head import head_graph
from foredraft_graphs.segment import segment_graph
from foredraft_graphs.tensorrt_lowering import TensorRTLowering
from foredraft_graphs.weights_file import TensorLocation, WeightsFile

SLOTS = 528


def write_graphs(
    folder: Path, source: Path | str, exits: tuple[int, ...], precision: str, attention: str, weights: str
) -> list[Path]:
    """Segments and head of a model, with its weights beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = open_checkpoint(source)
    decoder = models.decoder(checkpoint.info.config)
    planned = plan(checkpoint, decoder, precision, layout=ROWS)
    write_weights(folder / "w.safetensors", checkpoint, decoder, planned)
    file = WeightsFile("w.safetensors", read_layout(folder / "w.safetensors"), planned.bits, "rows")
    dtype = "bf16" if precision == "bf16" else "fp16"
    lowering = TensorRTLowering(dtype, attention, weights == "inputs", SLOTS if attention == "native" else None)
    bounds = [0, *exits, decoder.layers]
    paths = []
    for index, (first, last) in enumerate(pairwise(bounds)):
        paths.append(folder / f"segment-{index}.onnx")
        ir.save(segment_graph(decoder, first, last, file, lowering, f"segment-{index}"), paths[-1])
    paths.append(folder / "head.onnx")
    ir.save(head_graph(decoder, file, lowering), paths[-1])
    return paths


def seven_b_segment(path: Path) -> Path:
    """Four layers of 4096 x 11008 with 32 heads. Weights are inputs, so the file of weights need not be there."""
    decoder = Decoder(4096, 11008, 32, 32, 32, 128, 32000, 1e-5, 4096, 128, 128**-0.5)
    matrices = {"qkv": (12288, 4096), "o": (4096, 4096), "gate_up": (22016, 4096), "down": (4096, 11008)}
    tensors = {name: TensorLocation("F32", (4096, 64), 0, 0) for name in ("rope.cos", "rope.sin")}
    tensors["layers.8.attn_norm"] = tensors["norm"] = TensorLocation("F32", (4096,), 0, 0)
    bits = {}
    for layer in range(4, 8):
        for name, shape in matrices.items():
            tensors[f"layers.{layer}.{name}"] = TensorLocation("F16", shape, 0, 0)
            bits[f"layers.{layer}.{name}"] = 16
        for name in ("attn_norm", "mlp_norm"):
            tensors[f"layers.{layer}.{name}"] = TensorLocation("F32", (4096,), 0, 0)
    file = WeightsFile("w.safetensors", tensors, bits, "rows")
    ir.save(segment_graph(decoder, 4, 8, file, TensorRTLowering("fp16"), "segment-1"), path)
    return path
