"""A head's graph, run by ONNX Runtime on the CPU: its highest logits, their tokens, and the total."""

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
from foredraft_graphs.head import head_graph
from foredraft_graphs.tensorrt_lowering import TOP, TensorRTLowering
from foredraft_graphs.weights_file import WeightsFile
from tests.fixtures import tiny_checkpoint


@pytest.mark.parametrize("vocab_size", [TOP - 24, TOP, 272])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_top_and_total_are_those_of_the_logits(tmp_path: Path, vocab_size: int, scale: float) -> None:
    """Also where exp of a logit would overflow."""
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path / "model", vocab_size=vocab_size))
    decoder = models.decoder(checkpoint.info.config)
    planned = plan(checkpoint, decoder, "fp16", layout=ROWS)
    write_weights(tmp_path / "w.safetensors", checkpoint, decoder, planned)
    weights = WeightsFile("w.safetensors", read_layout(tmp_path / "w.safetensors"), planned.bits, "rows")
    lowering = TensorRTLowering("fp16", weights_as_inputs=False)
    ir.save(head_graph(decoder, weights, lowering), tmp_path / "head.onnx")
    session = ort.InferenceSession(tmp_path / "head.onnx", providers=["CPUExecutionProvider"])
    readout = scale * np.random.default_rng(0).standard_normal((5, decoder.hidden_size)).astype(np.float32)
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, {"readout": readout}), strict=True))
    logits, ids, top = outputs["logits"], outputs["top_ids"], outputs["top_logits"]
    assert logits.shape == (5, vocab_size) and ids.shape == top.shape == (5, min(TOP, vocab_size))
    assert ids.dtype == np.int32 and np.array_equal(np.take_along_axis(logits, ids, 1), top)
    assert np.array_equal(top, -np.sort(-logits, axis=1)[:, :TOP])
    wide = logits.astype(np.float64)
    highest = wide.max(1)
    expected = highest + np.log(np.exp(wide - highest[:, None]).sum(1))
    np.testing.assert_allclose(outputs["log_total"], expected, rtol=1e-6)
    assert (highest.max() > 89) == (scale > 1), "exp of 89 is infinite in float32"
