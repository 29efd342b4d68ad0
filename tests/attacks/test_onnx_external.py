"""ONNX files whose tensors point out of the bundle, however deep they hide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import FileInfo
from foredraft.bundle.onnx_external import check_external_data
from foredraft.errors import BundleError
from tests.runtime.distribution.made import graph, listing

FILES = {"graphs/weights/w.safetensors": FileInfo(100, "0" * 64), "tokenizer.json": FileInfo(100, "0" * 64)}


def _check(model: bytes) -> None:
    check_external_data(model, "graphs/segment-0.onnx", FILES, "x.onnx")


def _refused(model: bytes, message: str) -> None:
    with pytest.raises(BundleError, match=message) as caught:
        _check(model)
    assert len(str(caught.value)) < 1000


def test_a_sound_one() -> None:
    _check(graph("weights/w.safetensors", 40, offset=60))


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("../tokenizer.json", "leaves the folder"),
        ("../../../etc/passwd", "leaves the folder"),
        ("weights/../../../etc/passwd", "leaves the folder"),
        ("/etc/passwd", "is absolute"),
        ("weights\\w.safetensors", "contains a backslash"),
        ("weights/w.safetensors\0.txt", "contains NUL"),
        ("C:/x", "contains a colon"),
        ("", "has an empty part"),
        ("weights/W.safetensors", "which is not a file of this bundle"),
        ("elsewhere", "which is not a file of this bundle"),
        ("*/_ORT_MEM_ADDR_/*", "which is not a file of this bundle"),
        ("x" * 5000, "has 5000 bytes"),
    ],
)
def test_locations(location: str, message: str) -> None:
    _refused(graph(location, 8), message)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("offset", "93", "external data at 93, 8 bytes, but .* has 100"),
        ("length", "101", "external data at 0, 101 bytes, but .* has 100"),
        ("offset", "-1", "has offset '-1', expected a number"),
        ("offset", "0x10", "has offset '0x10', expected a number"),
        ("length", "9" * 30, "has length '9+', expected a number"),
        ("location", "/etc/passwd", "two values of 'location'"),
    ],
)
def test_numbers(key: str, value: str, message: str) -> None:
    model = onnx.ModelProto.FromString(graph("weights/w.safetensors", 8))
    entries = model.graph.initializer[0].external_data
    if key != "location":
        entries.remove(next(entry for entry in entries if entry.key == key))
    entries.add(key=key, value=value)
    _refused(model.SerializeToString(), message)


def _tensor() -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="t", dims=[1], data_type=1, data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def _in_constant(model: onnx.ModelProto) -> None:
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=_tensor()))


def _in_subgraph(model: onnx.ModelProto) -> None:
    inner = onnx.helper.make_graph([], "then", [], [], initializer=[_tensor()])
    model.graph.node.append(onnx.helper.make_node("If", ["c"], ["o"], then_branch=inner, else_branch=inner))


def _in_sparse(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add(values=_tensor())


def _in_function(model: onnx.ModelProto) -> None:
    model.functions.add(name="f", node=[onnx.helper.make_node("Constant", [], ["c"], value=_tensor())])


def _in_function_default(model: onnx.ModelProto) -> None:
    model.functions.add(name="f", attribute_proto=[onnx.helper.make_attribute("a", _tensor())])


def _in_training(model: onnx.ModelProto) -> None:
    model.training_info.add().initialization.initializer.append(_tensor())


def _in_list_of_tensors(model: onnx.ModelProto) -> None:
    model.graph.node.append(onnx.helper.make_node("X", [], ["o"], list=[_tensor()]))


@pytest.mark.parametrize(
    "hide",
    [_in_constant, _in_subgraph, _in_sparse, _in_function, _in_function_default, _in_training, _in_list_of_tensors],
)
def test_hiding_places(hide: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.ModelProto.FromString(graph("weights/w.safetensors", 8))
    hide(model)
    _refused(model.SerializeToString(), "'/etc/passwd' .* is absolute")


def test_what_is_no_model() -> None:
    for data in (b"\xff" * 100, b"\x3a\xff\xff\xff\xff\x0f", b"\x0b", b"\x08"):
        _refused(data, "is not an ONNX model")
    nested = b""
    for _ in range(100):  # If in If in If
        inner = b"\x32" + _length(nested) + nested
        node = b"\x2a" + _length(inner) + inner
        nested = b"\x0a" + _length(node) + node
    _refused(b"\x3a" + _length(nested) + nested, "nested deeper than 64")


def _length(data: bytes) -> bytes:
    value, out = len(data), bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_a_bundle_checks_before_it_hands_out(bundle: Path) -> None:
    """The hash is right and the manifest knows the file: only its content is bad."""
    from tests.runtime.distribution.made import edit_manifest

    name = "graphs/portable-head.onnx"
    (bundle / name).write_bytes(graph("../../secret", 8))
    edit_manifest(bundle, files={n: {"size": i.size, "sha256": i.sha256} for n, i in listing(bundle).items()})
    opened = Bundle.open(bundle)
    with pytest.raises(BundleError, match=f"{name}: external data: '../../secret' .* leaves the folder"):
        opened.read(name)
    with pytest.raises(BundleError, match="leaves the folder"):
        opened.verify()
