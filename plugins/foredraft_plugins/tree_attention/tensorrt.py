"""``foredraft::TreeAttention`` for TensorRT: an IPluginV3 in Python that launches the compiled kernels.

The module, ``tensorrt_rtx`` or ``tensorrt``, is passed in. TensorRT finds a node's plugin by name, version and
namespace, in the process's registry; `register` puts it there once for each module. The first forward in a CUDA context
loads the kernels, so it must have run before a CUDA graph is captured.

The caches are updated in place: outputs 1 and 2 are inputs 1 and 2, which takes the builder's preview feature
ALIASED_PLUGIN_IO_10_03.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from foredraft_plugins.tree_attention.gpu.driver import Kernels, context_id, device_sm
from foredraft_plugins.tree_attention.gpu.images import AttentionShape, Images, PluginError
from foredraft_plugins.tree_attention.node import NAME, NAMESPACE, VERSION, Node

__all__ = ["last_error", "register"]

_ALIASED = {1: 1, 2: 2}
_OUTPUTS = 3


class _Library:
    """The images of the process by attention shape and dtype, and which of them are loaded in which CUDA context."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.creators: dict[str, Any] = {}
        self._driver: Any = None
        self._images: dict[tuple[AttentionShape, str], Images] = {}
        self._loaded: dict[tuple[int, AttentionShape, str], tuple[Images, Kernels]] = {}

    def add(self, images: Images | None, driver: Any) -> None:
        if images is not None:
            self._images[images.shape, images.dtype] = images
        if driver is not None:
            self._driver = driver

    def kernels(self, shape: AttentionShape, dtype: str) -> Kernels:
        """Those of the current context's device, loaded if they are not yet."""
        images = self._images.get((shape, dtype))
        if images is None or self._driver is None:
            raise PluginError(f"no TreeAttention kernels in {dtype} for {shape} were registered in this process")
        key = (context_id(self._driver), shape, dtype)
        known = self._loaded.get(key)
        if known is None or known[0] is not images:
            # The old kernels stay loaded: a captured graph may still launch them.
            known = images, Kernels(self._driver, images.of_device(device_sm(self._driver)))
            self._loaded[key] = known
        return known[1]


_library = _Library()


def register(trt: Any, images: Images | None, driver: Any = None) -> None:
    """Makes the plugin known to `trt`, and `images` known to the plugin.

    `images` (of any number of bundles, in as many calls) replace earlier ones of the same shape and dtype. They and
    `driver`, a module like ``cuda.bindings.driver``, may be None in a process that only builds engines.

    Raises:
        PluginError: the registry holds a TreeAttention of somebody else's.
    """
    _library.add(images, driver)
    if trt.__name__ in _library.creators:
        return
    creator = _creator(trt)
    if not trt.get_plugin_registry().register_creator(creator, NAMESPACE):
        raise PluginError(f"{trt.__name__} already has a plugin {NAMESPACE}::{NAME} version {VERSION}")
    # The registry does not keep it alive.
    _library.creators[trt.__name__] = creator


def last_error() -> Exception | None:
    """What the plugin last raised since this was last asked: TensorRT reports no more than that something failed."""
    error, _library.error = _library.error, None
    return error


def _remembered(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any) -> Any:
        try:
            return method(*args)
        except Exception as error:
            _library.error = error
            raise

    return call


def _creator(trt: Any) -> Any:
    plugin = _plugin_class(trt)

    class Creator(trt.IPluginCreatorV3One):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
            self._values = Node.example().fields()
            # Stored in engines, but no attribute of a graph's node: the parser would miss it.
            del self._values["node"]
            self._fields = _fields(trt, self._values)
            self.field_names = trt.PluginFieldCollection(self._fields)

        @_remembered
        def create_plugin(self, name: str, fields: Any, phase: Any) -> Any:
            return plugin(Node.from_fields(name, {field.name: field.data for field in fields}))

    return Creator()


def _plugin_class(trt: Any) -> Any:
    kinds = {trt.float16: "fp16", trt.bfloat16: "bf16", trt.float32: "f32", trt.int32: "i32"}

    class TreeAttention(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime):  # type: ignore[misc]
        """What each method is for: TensorRT's documentation of IPluginV3."""

        def __init__(self, node: Node) -> None:
            for base in TreeAttention.__bases__:
                base.__init__(self)
            self.plugin_name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
            self.num_outputs = _OUTPUTS
            self._node = node
            self._values = node.fields()
            self._fields = _fields(trt, self._values)

        def get_capability_interface(self, kind: Any) -> Any:
            return self

        def clone(self) -> Any:
            return TreeAttention(self._node)

        def attach_to_context(self, context: Any) -> Any:
            return self.clone()

        def get_fields_to_serialize(self) -> Any:
            return trt.PluginFieldCollection(self._fields)

        @_remembered
        def get_output_data_types(self, types: Sequence[Any]) -> list[Any]:
            self._node.check_types([kinds.get(kind, str(kind)) for kind in types])
            return [types[0]] * _OUTPUTS

        @_remembered
        def get_output_shapes(self, inputs: Sequence[Any], shape_inputs: Sequence[Any], build: Any) -> list[Any]:
            self._node.check_shapes([_constants(dims) for dims in inputs])
            out = trt.DimsExprs([inputs[0][0], build.constant(self._node.shape.width)])
            return [out, trt.DimsExprs(inputs[1]), trt.DimsExprs(inputs[2])]

        def get_aliased_input(self, output: int) -> int:
            return _ALIASED.get(output, -1)

        def supports_format_combination(self, at: int, tensors: Sequence[Any], inputs: int) -> bool:
            described = tensors[at].desc
            types = [kinds.get(tensor.desc.type, "") for tensor in tensors[: at + 1]]
            return described.format == trt.TensorFormat.LINEAR and self._node.supports(types)

        @_remembered
        def configure_plugin(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            for bound in ("min", "max"):
                self._node.check_shapes([list(getattr(tensor, bound)) for tensor in inputs])

        @_remembered
        def get_workspace_size(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
            return self._node.workspace_size([list(tensor.max) for tensor in inputs])

        def get_valid_tactics(self) -> list[int]:
            return []

        def set_tactic(self, tactic: int) -> None:
            pass

        def on_shape_change(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            pass

        @_remembered
        def enqueue(
            self,
            inputs: Sequence[Any],
            outputs: Sequence[Any],
            read: Sequence[int],
            written: Sequence[int],
            workspace: int,
            stream: int,
        ) -> None:
            shapes = [list(tensor.dims) for tensor in inputs]
            kernels = _library.kernels(self._node.shape, kinds.get(inputs[0].type, str(inputs[0].type)))
            for launch in self._node.launches(shapes, read, written, workspace):
                kernels.launch(launch, stream)

    return TreeAttention


def _constants(dims: Any) -> list[int]:
    """Sizes, with -1 for those that are not known yet."""
    return [dim.get_constant_value() if dim.is_constant() else -1 for dim in (dims[i] for i in range(len(dims)))]


def _fields(trt: Any, values: Mapping[str, np.ndarray]) -> list[Any]:
    """They point into `values`, and keep none of it alive; nor does a collection of them."""
    kinds = {"i": trt.PluginFieldType.INT32, "f": trt.PluginFieldType.FLOAT32, "S": trt.PluginFieldType.CHAR}
    return [trt.PluginField(name, value, kinds[value.dtype.kind]) for name, value in values.items()]
