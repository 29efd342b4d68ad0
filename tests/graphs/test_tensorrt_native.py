"""Attention in the library's own operators against the portable graphs, both run by ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from foredraft_exporter import models
from foredraft_exporter.sources.checkpoint import open_checkpoint
from foredraft_exporter.weights.precision import ROWS
from foredraft_exporter.weights.weight_plan import plan
from foredraft_exporter.weights.writing import read_layout, write_weights
from foredraft_graphs.decoder import Decoder
from foredraft_graphs.lowering import Lowering
from foredraft_graphs.portable_lowering import PortableLowering
from foredraft_graphs.segment import MASK_WORDS, segment_graph
from foredraft_graphs.tensorrt_lowering import TensorRTLowering
from foredraft_graphs.weights_file import WeightsFile
from tests.fixtures import tiny_checkpoint

SLOTS = 384


def graph(folder: Path, decoder: Decoder, weights: WeightsFile, lowering: Lowering) -> ort.InferenceSession:
    """The first two layers."""
    path = folder / f"{lowering.name}.onnx"
    ir.save(segment_graph(decoder, 0, 2, weights, lowering, "segment"), path)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("precision", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("model_type", ["llama", "qwen3", "smollm3"])
def test_native_and_portable_graphs_agree(tmp_path: Path, precision: str, model_type: str) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path / "model", model_type))
    decoder = models.decoder(checkpoint.info.config)
    planned = plan(checkpoint, decoder, precision, layout=ROWS)
    write_weights(tmp_path / "w.safetensors", checkpoint, decoder, planned)
    weights = WeightsFile("w.safetensors", read_layout(tmp_path / "w.safetensors"), planned.bits, "rows")
    native = graph(tmp_path, decoder, weights, TensorRTLowering("fp16", "native", False, SLOTS))
    portable = graph(tmp_path, decoder, weights, PortableLowering())
    caches = {"native": [], "portable": []}
    random = np.random.default_rng(0)
    for layer in range(2):
        for which in ("key", "value"):
            rows = random.standard_normal((decoder.kv_heads, SLOTS, decoder.head_dim)).astype(np.float16)
            caches["native"].append((f"{which}_{layer}", rows[None]))
            caches["portable"].append((f"{which}_{layer}", rows.astype(np.float32)))
    for n_past, first, nodes in ((0, 0, 1), (0, 0, 40), (5, 7, 33), (60, 100, 9), (3, 200, 20), (120, 120, 5)):
        inputs = batch(random, n_past, first, nodes)
        outputs = [
            dict(
                zip(
                    [o.name for o in session.get_outputs()], session.run(None, inputs | dict(caches[kind])), strict=True
                )
            )
            for kind, session in (("native", native), ("portable", portable))
        ]
        for name in ("readout", "hidden_out"):
            got, wanted = (output[name].astype(np.float64) for output in outputs)
            error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
            assert error < 4e-3, (name, n_past, first, nodes, error)
        rows = slice(first, first + nodes)
        got, wanted = outputs[0]["key_1_out"][0], outputs[1]["key_1_out"]
        np.testing.assert_allclose(got[:, rows], wanted[:, rows], atol=0.05)
        untouched = np.ones(SLOTS, bool)
        untouched[rows] = False
        np.testing.assert_array_equal(got[:, untouched], dict(caches["native"])["key_1"][0][:, untouched])


def batch(random: np.random.Generator, n_past: int, first: int, nodes: int) -> dict[str, np.ndarray]:
    """Nodes at slots without gaps, each seeing itself and some of the window's other slots."""
    seen = random.random((nodes, 32 * MASK_WORDS)) < 0.4
    seen[:, SLOTS - n_past :] = False
    seen[np.arange(nodes), first - n_past + np.arange(nodes)] = True
    return {
        "tokens": random.integers(0, 256, nodes).astype(np.int32),
        "positions": random.integers(0, 200, nodes).astype(np.int32),
        "slots": np.arange(first, first + nodes, dtype=np.int32),
        "n_past": np.array([n_past], np.int32),
        "mask": np.packbits(seen, axis=1, bitorder="little").view(np.int32),
    }
