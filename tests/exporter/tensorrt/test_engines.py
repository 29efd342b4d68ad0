"""Engines are really built, without a GPU: every segment, both attentions, both kinds of weights."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from foredraft.errors import ForedraftError
from foredraft_exporter.tensorrt.header import check_header, targets_of
from foredraft_exporter.tensorrt.job import BuildJob
from foredraft_exporter.tensorrt.process import build_engine
from tests.exporter.tensorrt.graphs import SLOTS, seven_b_segment, write_graphs
from tests.fixtures import tiny_checkpoint

pytestmark = pytest.mark.slow

LAYERSKIP = Path(__file__).parents[2] / "data" / "layerskip-tiny"
TARGETS = ("sm89", "sm120")


def built(graph: Path, targets: tuple[str, ...] = TARGETS, slots: int = SLOTS) -> bytes:
    """The engine's bytes; the worker fails if the builder's log shows a copied cache."""
    engine = graph.with_suffix(".engine")
    build_engine(BuildJob("tensorrt-rtx", str(graph), str(engine), targets, 64, 256, slots))
    data = engine.read_bytes()
    check_header(data, targets, str(engine))
    return data


@pytest.mark.parametrize("weights", ["inputs", "constants"])
@pytest.mark.parametrize("attention", ["plugin", "native"])
@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8", "int4"])
def test_every_segment_of_a_tiny_model(tmp_path: Path, precision: str, attention: str, weights: str) -> None:
    source = tiny_checkpoint(tmp_path / "model", head_dim=32)
    for graph in write_graphs(tmp_path / "g", source, (2,), precision, attention, weights):
        assert targets_of(built(graph)) == TARGETS


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "smollm3", "mistral"])
def test_every_architecture(tmp_path: Path, model_type: str) -> None:
    source = tiny_checkpoint(tmp_path / "model", model_type, head_dim=32)
    for graph in write_graphs(tmp_path / "g", source, (2,), "fp16", "plugin", "inputs"):
        assert targets_of(built(graph)) == TARGETS


@pytest.mark.parametrize(("precision", "attention"), [("fp16", "plugin"), ("bf16", "native")])
def test_layerskip_tiny(tmp_path: Path, precision: str, attention: str) -> None:
    for graph in write_graphs(tmp_path / "g", LAYERSKIP, (2, 4), precision, attention, "inputs"):
        assert targets_of(built(graph)) == TARGETS


@pytest.mark.parametrize(
    ("precision", "attention", "weights"), [("bf16", "plugin", "inputs"), ("fp16", "native", "inputs")]
)
def test_smollm2_with_exits(tmp_path: Path, precision: str, attention: str, weights: str) -> None:
    graphs = write_graphs(tmp_path / "g", "smollm2-135m", (4, 8), precision, attention, weights)
    sizes = [len(built(graph)) for graph in graphs]
    assert all(size < 30e6 for size in sizes), sizes  # code alone: the weights have 271 MB


def test_a_segment_of_a_7b_model_is_small(tmp_path: Path) -> None:
    assert len(built(seven_b_segment(tmp_path / "segment-1.onnx"), slots=4368)) < 5e6


def test_the_same_graph_gives_the_same_size(tmp_path: Path) -> None:
    """Not the same bytes: the builder numbers its kernels anew each time (seen with 1.7.1, also in one process)."""
    source = tiny_checkpoint(tmp_path / "model", head_dim=32)
    first, *_ = write_graphs(tmp_path / "g", source, (2,), "fp16", "plugin", "inputs")
    assert len(built(first)) == len(built(first))


def test_another_target_gives_another_engine(tmp_path: Path) -> None:
    source = tiny_checkpoint(tmp_path / "model", head_dim=32)
    *_, head = write_graphs(tmp_path / "g", source, (), "fp16", "plugin", "inputs")
    engine = built(head, ("sm75", "sm86"))
    assert targets_of(engine) == ("sm75", "sm86")
    with pytest.raises(ForedraftError, match="built for sm75, sm86, expected sm89"):
        check_header(engine, ("sm89",), "head.engine")
    with pytest.raises(ForedraftError, match="its header says"):
        check_header(engine[:-1], ("sm75", "sm86"), "head.engine")


def test_a_cache_that_another_node_reads_fails_the_build(tmp_path: Path) -> None:
    source = tiny_checkpoint(tmp_path / "model", head_dim=32)
    graph, *_ = write_graphs(tmp_path / "g", source, (2,), "fp16", "plugin", "inputs")
    model = onnx.load(graph, load_external_data=False)
    other = onnx.helper.make_tensor_value_info("read", onnx.TensorProto.FLOAT16, ["S", 2, 32])
    model.graph.node.append(onnx.helper.make_node("Relu", ["key_0"], ["read"], name="reader"))
    model.graph.output.append(other)
    onnx.save(model, graph)
    with pytest.raises(ForedraftError, match="the cache would be copied"):
        built(graph)
    assert not graph.with_suffix(".engine").exists()


def test_an_error_names_node_and_plugin(tmp_path: Path) -> None:
    source = tiny_checkpoint(tmp_path / "model")  # its heads are of 16
    first, *_ = write_graphs(tmp_path / "g", source, (2,), "fp16", "plugin", "inputs")
    with pytest.raises(ForedraftError, match=r"segment-0.onnx: node layers.0.attention \(TreeAttention\).*head_dim"):
        built(first)


def test_an_operator_that_the_library_lacks_is_named(tmp_path: Path) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["T", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["T", 4])
    node = onnx.helper.make_node("Mystery", ["x"], ["y"], name="the-node", domain="nowhere")
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [x], [y]),
        opset_imports=[onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("nowhere", 1)],
    )
    onnx.save(model, tmp_path / "segment-0.onnx")
    with pytest.raises(ForedraftError, match=r"node the-node \(Mystery\)"):
        built(tmp_path / "segment-0.onnx")
