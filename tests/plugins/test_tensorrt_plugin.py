"""The TensorRT plugin: engines are built around it without a GPU, and what it enqueues is recorded."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt

from foredraft_plugins.tree_attention import tensorrt as plugin
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, Image, Images, PluginError
from foredraft_plugins.tree_attention.gpu.interface import SIGNATURES
from foredraft_plugins.tree_attention.gpu.launches import Buffers, attention, workspace_size
from foredraft_plugins.tree_attention.node import INPUTS, Node

from .gpu_driver import Driver
from .tensorrt_building import build

pytestmark = pytest.mark.slow

SHAPE = AttentionShape(4, 2, 64, 32)
NODE = Node("layers.7.attention", SHAPE, 0.125)
DIMS = [[5, 512], [2048, 2, 64], [2048, 2, 64], [5], [5], [1], [5, 8], [512, 16], [512, 16]]
TYPES = ["fp16"] * 3 + ["i32"] * 4 + ["f32"] * 2
READ = [0x1000 * (i + 1) for i in range(9)]
WRITTEN = [0xA000, READ[1], READ[2]]
WORKSPACE, STREAM = 1 << 40, 77


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_an_engine_is_built_and_copies_no_cache(dtype):
    built = build(dtype=dtype)
    assert built["size"] > 0, built["log"]
    assert built["stored"]
    assert not [line for line in built["log"] if "copy" in line.lower() or line.startswith(("WARNING", "ERROR"))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_dim": 32}, r"key has shape [-1, 2, 32], expected [S, 2, 64] for 4 heads over 2 KV heads, head_dim 64"),
        ({"rotary_dim": 64}, "cos has shape [512, 16], expected [512, 32]"),
        ({"dtype": "fp32"}, "got qkv f32, key f32, value f32, slots i32"),
        ({"head_dim": 48}, "head_dim is 48, expected one of 32, 64"),
        ({"scale": None}, "attribute scale is missing"),
    ],
)
def test_a_build_that_fails_names_node_plugin_and_shape(changes, message):
    built = build(**changes)
    assert built["size"] == 0
    assert built["error"].startswith("node 'layers.7.attention' (foredraft::TreeAttention): ")
    assert message in built["error"]


@pytest.fixture(scope="module")
def creator() -> Iterator[Any]:
    """The plugin's creator in this process's registry, which no other test sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin, "_library", plugin._Library())
        plugin.register(trt, None)
        found = trt.get_plugin_registry().get_creator("TreeAttention", "1", "foredraft")
        yield found
        trt.get_plugin_registry().deregister_creator(found)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_library", plugin._Library())
    plugin._library.creators[trt.__name__] = None


def made(creator: Any, node: Node = NODE) -> Any:
    kinds = {"i": trt.PluginFieldType.INT32, "f": trt.PluginFieldType.FLOAT32}
    values = {name: value for name, value in node.fields().items() if name != "node"}
    fields = [trt.PluginField(name, value, kinds[value.dtype.kind]) for name, value in values.items()]
    return creator.create_plugin(node.name, trt.PluginFieldCollection(fields), trt.TensorRTPhase.BUILD)


def described(dims: list[list[int]] = DIMS, dtype: Any = trt.float16) -> list[Any]:
    kinds = [dtype] * 3 + [trt.int32] * 4 + [trt.float32] * 2
    return [SimpleNamespace(dims=tuple(d), type=kind) for d, kind in zip(dims, kinds, strict=True)]


def enqueue(made_plugin: Any, inputs: list[Any] | None = None, written: list[int] = WRITTEN) -> None:
    made_plugin.enqueue(inputs or described(), [], READ, written, WORKSPACE, STREAM)


def images(*sms: int, dtype: str = "fp16", shape: AttentionShape = SHAPE) -> Images:
    return Images(
        shape,
        dtype,
        tuple(
            Image(name, sm, name, 1024, 4, 64, 0, f"sm{sm}-{dtype} {name}".encode())
            for sm in sms
            for name in SIGNATURES
        ),
    )


def test_a_forward_launches_the_devices_kernels(creator, library):
    driver = Driver(sm=89)
    plugin.register(trt, images(80, 89, 120), driver)
    enqueue(made(creator))
    at = Buffers(*READ, out=WRITTEN[0], workspace=WORKSPACE)
    wanted = attention(SHAPE, at, tokens=5, cache_rows=2048, words=8, angles=512, scale=0.125)
    assert [launched.image.decode() for launched in driver.launched] == [f"sm89-fp16 {w.kernel}" for w in wanted]
    for launched, launch in zip(driver.launched, wanted, strict=True):
        assert launched.grid == launch.grid
        assert tuple(launched.arguments.values()) == launch.args
        assert (launched.shared, launched.stream) == (1024, STREAM)


def test_kernels_are_loaded_once_for_each_context(creator, library):
    driver = Driver()
    plugin.register(trt, images(89), driver)
    first = made(creator)
    enqueue(first)
    enqueue(first.attach_to_context(None))
    assert len(driver.loaded) == len(SIGNATURES)
    driver.context = 2
    enqueue(first)
    assert len(driver.loaded) == 2 * len(SIGNATURES)


def test_bundles_of_other_shapes_and_dtypes_live_side_by_side(creator, library):
    driver, other = Driver(), AttentionShape(4, 2, 64, 0)
    for added in (images(89), images(89, dtype="bf16"), images(89, shape=other)):
        plugin.register(trt, added, driver)
    enqueue(made(creator), described(dtype=trt.bfloat16))
    enqueue(made(creator))
    enqueue(made(creator, Node("", other, 0.125)))
    assert [launched.image[:9] for launched in driver.launched[::3]] == [b"sm89-bf16", b"sm89-fp16", b"sm89-fp16"]
    assert len(driver.loaded) == 3 * len(SIGNATURES)


def test_later_images_replace_earlier_ones(creator, library):
    driver = Driver(sm=89)
    plugin.register(trt, images(80), driver)
    enqueue(made(creator))
    plugin.register(trt, images(89), driver)
    enqueue(made(creator))
    assert [launched.image[:4] for launched in driver.launched[::3]] == [b"sm80", b"sm89"]


@pytest.mark.parametrize(
    ("given", "written", "message"),
    [
        (None, WRITTEN, "no TreeAttention kernels in fp16 for 4 heads over 2 KV heads"),
        (images(120), WRITTEN, "no TreeAttention kernel for this device, sm89 .*the bundle holds kernels for sm120"),
        (images(89), [0xA000, 0xB000, READ[2]], "node 'layers.7.attention' .*key_out is not the memory of key"),
        (images(89), [0xA000, READ[1], 0xB000], "value_out is not the memory of value"),
    ],
)
def test_what_enqueue_raises_is_kept(creator, library, given, written, message):
    driver = Driver(sm=89)
    plugin.register(trt, given, driver)
    with pytest.raises(PluginError, match=message):
        enqueue(made(creator), written=written)
    error = plugin.last_error()
    assert isinstance(error, PluginError)
    assert plugin.last_error() is None
    assert not driver.launched


def test_caches_are_aliased(creator):
    assert [made(creator).get_aliased_input(output) for output in range(3)] == [-1, 1, 2]


def test_what_is_stored_in_an_engine_makes_the_same_node(creator):
    kept = made(creator)
    values = {field.name: field.data for field in kept.get_fields_to_serialize()}
    assert Node.from_fields("(Unnamed Layer* 3)", values) == NODE


def test_only_plain_layouts_and_one_dtype_are_supported(creator):
    linear = [tensor(kind) for kind in (*["T"] * 3, *["i32"] * 4, *["f32"] * 2, *["T"] * 3)]
    supports = made(creator).supports_format_combination
    assert all(supports(at, linear, 9) for at in range(12))
    for at, wrong in ((1, tensor("bf16")), (3, tensor("f32")), (7, tensor("T")), (9, tensor("f32"))):
        assert not supports(at, [*linear[:at], wrong, *linear[at + 1 :]], 9)
    assert not supports(0, [tensor("T", trt.TensorFormat.CHW2), *linear[1:]], 9)


def tensor(kind: str, layout: Any = trt.TensorFormat.LINEAR) -> Any:
    kinds = {"T": trt.float16, "bf16": trt.bfloat16, "i32": trt.int32, "f32": trt.float32}
    return SimpleNamespace(desc=SimpleNamespace(type=kinds[kind], format=layout))


def test_the_workspace_is_for_the_largest_forward(creator):
    largest = [SimpleNamespace(max=(64, *dims[1:])) if dims[0] == 5 else SimpleNamespace(max=dims) for dims in DIMS]
    assert made(creator).get_workspace_size(largest, []) == workspace_size(SHAPE, 64, 2048)


def test_a_node_checks_every_tensor():
    NODE.check_types(TYPES)
    NODE.check_shapes(DIMS)
    NODE.check_shapes([[-1] * len(dims) for dims in DIMS])
    for i, name in enumerate(INPUTS):
        with pytest.raises(PluginError, match=rf"{name} has shape \[\], expected"):
            NODE.check_shapes([*DIMS[:i], [], *DIMS[i + 1 :]])
    with pytest.raises(PluginError, match=r"positions has shape \[6\], expected \[5\]"):
        NODE.check_shapes([*DIMS[:4], [6], *DIMS[5:]])
    with pytest.raises(PluginError, match="8 inputs, expected qkv, key, value"):
        NODE.check_types(TYPES[:8])


def test_without_rotation_any_angles_will_do():
    Node("n", AttentionShape(4, 2, 64, 0), 1.0).check_shapes([*DIMS[:7], [1, 1], [1, 1]])


def test_a_name_survives_as_bytes():
    assert np.asarray(NODE.fields()["node"]).tobytes() == b"layers.7.attention\0"
