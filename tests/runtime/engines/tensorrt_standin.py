"""A stand-in for the ``tensorrt_rtx`` module: an engine's bytes are its ONNX graph, computed in numpy.

It is as strict as the library: every tensor must have an address and a shape that a profile takes, and the attention
node runs our own plugin, which launches its kernels on the CUDA stand-in. Products are summed in double precision, so
that a row does not depend on the rows beside it.
"""

from __future__ import annotations

import enum
import itertools
import types
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from tests.runtime.engines.cuda_standin import CudaStandIn
from tests.runtime.engines.operators_standin import OPERATORS

VERSION = "1.7.1.116"
_NUMBERS = itertools.count()
_CHANGING = ("tokens", "hidden", "readout", "positions", "slots", "n_past", "mask")
"""Inputs that are no weights and no caches."""
_SCRATCH = 32 << 20
_DECODE, _PREFILL = 64, 256
ATTENTION = "TreeAttention"


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BF16 = 7
    INT4 = 9
    UINT8 = 5

    @property
    def itemsize(self) -> float:
        return {"FLOAT": 4, "HALF": 2, "BF16": 2, "INT32": 4, "INT8": 1, "UINT8": 1, "INT4": 0.5}[self.name]


_TYPES = {
    onnx.TensorProto.FLOAT: (DataType.FLOAT, np.dtype(np.float32)),
    onnx.TensorProto.FLOAT16: (DataType.HALF, np.dtype(np.float16)),
    onnx.TensorProto.BFLOAT16: (DataType.BF16, np.dtype(ml_dtypes.bfloat16)),
    onnx.TensorProto.INT32: (DataType.INT32, np.dtype(np.int32)),
    onnx.TensorProto.INT8: (DataType.INT8, np.dtype(np.int8)),
    onnx.TensorProto.UINT8: (DataType.UINT8, np.dtype(np.uint8)),
    onnx.TensorProto.INT4: (DataType.INT4, np.dtype(ml_dtypes.int4)),
}


class _Severity(enum.Enum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    Severity = _Severity

    def log(self, severity: _Severity, text: str) -> None:
        raise NotImplementedError


class _Base:
    """Of plugin classes: takes no arguments."""


class PluginFieldType(enum.Enum):
    INT32 = 0
    FLOAT32 = 1
    CHAR = 2


class PluginField:
    def __init__(self, name: str, data: np.ndarray, kind: PluginFieldType) -> None:
        self.name, self.data, self.type = name, data, kind


class TensorRTStandIn(types.SimpleNamespace):
    """The module. ``engines`` are those that were opened, ``caches`` the runtime caches that were made."""

    def __init__(self, cuda: CudaStandIn, version: str = VERSION) -> None:
        super().__init__()
        self.__name__ = f"tensorrt_standin_{next(_NUMBERS)}"
        self.__version__ = version
        self.cuda = cuda
        self.creators: dict[tuple[str, str, str], Any] = {}
        self.engines: list[Engine] = []
        self.refuse: str | None = None
        """What deserialization fails with."""
        self.enqueue_fails: str | None = None
        """What a forward fails with."""
        self.capturable, self.capture_fails = True, False
        """What engines say of themselves, and what happens."""
        self.float32, self.float16 = DataType.FLOAT, DataType.HALF
        self.bfloat16, self.int32 = DataType.BF16, DataType.INT32
        self.ILogger = ILogger
        for name in ("IPluginV3", "IPluginV3OneCore", "IPluginV3OneBuildV2", "IPluginV3OneRuntime"):
            setattr(self, name, type(name, (_Base,), {}))
        self.IPluginCreatorV3One = type("IPluginCreatorV3One", (_Base,), {})
        self.PluginField, self.PluginFieldType, self.PluginFieldCollection = PluginField, PluginFieldType, list
        self.TensorIOMode = enum.Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])
        self.ExecutionContextAllocationStrategy = enum.Enum("Strategy", ["STATIC", "ON_PROFILE_CHANGE", "USER_MANAGED"])
        self.DynamicShapesKernelSpecializationStrategy = enum.Enum("Specialization", ["LAZY", "EAGER", "NONE"])
        self.TensorRTPhase = enum.Enum("TensorRTPhase", ["BUILD", "RUNTIME"])

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def get_plugin_registry(self) -> TensorRTStandIn:
        return self

    def register_creator(self, creator: Any, namespace: str) -> bool:
        self.creators[creator.name, creator.plugin_version, namespace] = creator
        return True

    def Runtime(self, logger: ILogger) -> Runtime:  # noqa: N802 (the library's own name)
        return Runtime(self, logger)


class Runtime:
    def __init__(self, trt: TensorRTStandIn, logger: ILogger) -> None:
        self._trt, self._logger = trt, logger

    def deserialize_cuda_engine(self, data: memoryview) -> Engine | None:
        """None and an error in the log for what is no engine, or needs a plugin that is not registered."""
        try:
            if self._trt.refuse:
                raise ValueError(self._trt.refuse)
            engine = Engine(self._trt, self._logger, onnx.load_from_string(bytes(data)))
        except (ValueError, DecodeError) as error:
            self._logger.log(ILogger.Severity.ERROR, str(error))
            return None
        self._trt.engines.append(engine)
        return engine


class RuntimeCache:
    """Holds the shapes that kernels were made for, with a word that says for which version."""

    def __init__(self, trt: TensorRTStandIn) -> None:
        self._mark = f"kernels {trt.__version__}".encode()
        self.shapes: set[bytes] = set()

    def deserialize(self, data: bytes) -> bool:
        mark, *shapes = data.split(b"|")
        if mark != self._mark:
            return False
        self.shapes = set(shapes)
        return True

    def serialize(self) -> bytes:
        return b"|".join([self._mark, *sorted(self.shapes)])


class RuntimeConfig:
    def __init__(self, trt: TensorRTStandIn) -> None:
        self._trt = trt
        self.allocation: Any = None
        self.cache: RuntimeCache | None = None
        self.dynamic_shapes_kernel_specialization_strategy: Any = None

    def create_runtime_cache(self) -> RuntimeCache:
        return RuntimeCache(self._trt)

    def set_runtime_cache(self, cache: RuntimeCache) -> bool:
        self.cache = cache
        return True

    def set_execution_context_allocation_strategy(self, strategy: Any) -> None:
        self.allocation = strategy


class Engine:
    """``contexts`` in the order in which they were made."""

    def __init__(self, trt: TensorRTStandIn, logger: ILogger, model: onnx.ModelProto) -> None:
        self.trt, self.logger, self.model = trt, logger, model
        graph = model.graph
        self._values = {value.name: value for value in (*graph.input, *graph.output)}
        self._inputs = {value.name for value in graph.input}
        self.device_memory_size_v2 = _SCRATCH
        self.num_optimization_profiles = 2
        self.contexts: list[Context] = []
        self.plan = _Plan(self)
        self.plugins = {node.name: self._plugin(node) for node in graph.node if node.op_type == ATTENTION}

    @property
    def num_io_tensors(self) -> int:
        return len(self._values)

    def get_tensor_name(self, index: int) -> str:
        return list(self._values)[index]

    def get_tensor_mode(self, name: str) -> Any:
        mode = self.trt.TensorIOMode
        return mode.INPUT if name in self._inputs else mode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return _TYPES[self._values[name].type.tensor_type.elem_type][0]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        dims = self._values[name].type.tensor_type.shape.dim
        return tuple(-1 if dim.dim_param else dim.dim_value for dim in dims)

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        most = (_DECODE, _PREFILL)[profile]
        return [tuple(rows if d < 0 else d for d in self.get_tensor_shape(name)) for rows in (1, most, most)]

    def create_runtime_config(self) -> RuntimeConfig:
        return RuntimeConfig(self.trt)

    def create_execution_context(self, config: Any) -> Context:
        assert config.allocation == self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
        self.contexts.append(Context(self, config))
        return self.contexts[-1]

    def dtype(self, name: str) -> np.dtype:
        return _TYPES[self._values[name].type.tensor_type.elem_type][1]

    def _plugin(self, node: onnx.NodeProto) -> Any:
        fields = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        key = (ATTENTION, fields["plugin_version"].decode(), fields["plugin_namespace"].decode())
        if key not in self.trt.creators:
            raise ValueError(f"Cannot find plugin: {key[0]}, version: {key[1]}, namespace: {key[2]}")
        kinds = {int: PluginFieldType.INT32, float: PluginFieldType.FLOAT32}
        collected = [
            PluginField(name, np.array([value], np.int32 if isinstance(value, int) else np.float32), kinds[type(value)])
            for name, value in fields.items()
            if type(value) in kinds
        ]
        return self.trt.creators[key].create_plugin(node.name, collected, self.trt.TensorRTPhase.RUNTIME)


class Context:
    """``addresses``, ``shapes`` and ``profile`` as they were set; ``runs`` counts forwards that were put in."""

    def __init__(self, engine: Engine, config: RuntimeConfig) -> None:
        self.engine, self.config = engine, config
        self.addresses: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.profile, self.runs = 0, 0
        self._scratch = (0, 0)
        self._plan = engine.plan

    def set_device_memory(self, address: int, size: int) -> None:
        assert size >= self.engine.device_memory_size_v2
        self._scratch = (address, size)

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self.profile = profile
        return 0 <= profile < self.engine.num_optimization_profiles

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        declared = self.engine.get_tensor_shape(name)
        _, _, most = self.engine.get_tensor_profile_shape(name, self.profile)
        rows = name.startswith(("key_", "value_"))  # any number of these
        fits = len(shape) == len(declared) and all(
            got == fixed or (fixed < 0 and (rows or 1 <= got <= limit))
            for got, fixed, limit in zip(shape, declared, most, strict=True)
        )
        if fits:
            self.shapes[name] = tuple(shape)
        return fits

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address % 256 == 0, f"{name}: {address:#x} is not aligned"
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        self.runs += 1
        error = self.engine.trt.enqueue_fails or self._unspecified()
        capturing = self.engine.trt.cuda._streams[stream].captured is not None
        if capturing and self.engine.trt.capture_fails:
            error = "operation not permitted when stream is capturing"
        if error:
            self.engine.logger.log(ILogger.Severity.ERROR, error)
            return False
        if not capturing:
            self.config.cache.shapes.add(repr(sorted(self.shapes.items())).encode().hex().encode())  # type: ignore[union-attr]
        try:
            self._plan.put(self, stream, *self._scratch)
        except ValueError as raised:  # the plugin's: the library only knows that something failed
            self.engine.logger.log(ILogger.Severity.ERROR, f"plugin failed: {type(raised).__name__}")
            return False
        return True

    def is_stream_capturable(self, stream: int) -> bool:
        return self.engine.trt.capturable

    def shape(self, name: str) -> tuple[int, ...]:
        """An input's shape, whether it was set or always the same."""
        return self.shapes.get(name) or self.engine.get_tensor_shape(name)

    def _unspecified(self) -> str | None:
        names = [self.engine.get_tensor_name(index) for index in range(self.engine.num_io_tensors)]
        missing = [name for name in names if name not in self.addresses]
        if missing:
            return f"Address is not set for tensor {missing[0]}"
        inputs = [name for name in names if name in self.engine._inputs]
        shapeless = [name for name in inputs if -1 in self.shape(name)]
        return f"Shape is not set for tensor {shapeless[0]}" if shapeless else None


class _Plan:
    """An engine's nodes in order, cut at attention, whose plugin is asked for its launches when a forward is put in."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._nodes = list(engine.model.graph.node)
        self._reference: dict[int, Any] = {}
        self._weights: dict[str, np.ndarray] = {}
        self._matrices = {node.input[1] for node in self._nodes if node.op_type == "Gemm"}
        self._constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in engine.model.graph.initializer}

    def put(self, context: Context, stream: int, scratch: int, size: int) -> None:
        """The whole forward into a stream."""
        cuda = self._engine.trt.cuda
        values: dict[str, np.ndarray] = {}
        room = _Room(scratch, size)
        cuda.put(stream, lambda: self._read(context, values))
        for index, node in enumerate(self._nodes):
            if node.op_type == ATTENTION:
                self._attend(context, node, stream, values, room)
            else:
                cuda.put(stream, self._computing(index, values))
        cuda.put(stream, lambda: self._write(context, values))

    def _read(self, context: Context, values: dict[str, np.ndarray]) -> None:
        values.clear()
        values.update(self._constants)
        for name in self._engine._inputs:
            if name in _CHANGING:
                array = self._array(context.addresses[name], self._engine.dtype(name), context.shape(name))
                values[name] = array.copy()
            elif not name.startswith(("key_", "value_")):
                values[name] = self._weight(context, name)
            elif not self._engine.plugins:
                values[name] = self._array(context.addresses[name], self._engine.dtype(name), context.shape(name))

    def _weight(self, context: Context, name: str) -> np.ndarray:
        """Read once. The matrices of products are widened once, too: that takes most of a forward's time."""
        if name not in self._weights:
            dtype, shape = self._engine.dtype(name), context.shape(name)
            if dtype == ml_dtypes.int4:  # two to a byte, the first one in the low half
                size = int(np.prod(shape))
                packed = self._engine.trt.cuda.view(context.addresses[name], size // 2)
                halves = np.stack([packed & 15, packed >> 4], -1).reshape(shape).astype(np.int8)
                array = np.where(halves > 7, halves - 16, halves)
            else:
                array = self._array(context.addresses[name], dtype, shape).copy()
            self._weights[name] = array.astype(np.float64) if name in self._matrices else array
        return self._weights[name]

    def _write(self, context: Context, values: dict[str, np.ndarray]) -> None:
        for value in self._engine.model.graph.output:
            name = value.name
            if name.startswith(("key_", "value_")):
                assert context.addresses[name] == context.addresses[name.removesuffix("_out")]
            if name in values:  # what the plugin wrote is there already
                array = values[name]
                self._array(context.addresses[name], self._engine.dtype(name), array.shape)[:] = array

    def _array(self, address: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape)) * dtype.itemsize
        return self._engine.trt.cuda.view(address, size).view(dtype).reshape(shape)

    def _computing(self, index: int, values: dict[str, np.ndarray]) -> Callable[[], None]:
        node = self._nodes[index]

        def compute() -> None:
            inputs = [values[name] if name else None for name in node.input]
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            operator = OPERATORS.get(node.op_type)
            results = operator(attributes, *inputs) if operator else self._by_reference(index, inputs)
            for name, result in zip(node.output, results if isinstance(results, tuple) else (results,), strict=False):
                values[name] = result

        return compute

    def _by_reference(self, index: int, inputs: list[Any]) -> tuple[np.ndarray, ...]:
        if not self._reference:
            nodes = ReferenceEvaluator(self._engine.model, new_ops=[TreeAttention]).rt_nodes_
            self._reference = dict(enumerate(nodes))
        return self._reference[index].run(*inputs)

    def _attend(
        self, context: Context, node: onnx.NodeProto, stream: int, values: dict[str, np.ndarray], room: _Room
    ) -> None:
        """What the graph made on the way goes to scratch memory; inputs of the engine are where they are."""
        cuda, tokens = self._engine.trt.cuda, context.shape("positions")[0]
        plugin = self._engine.plugins[node.name]
        dtype = self._engine.dtype(f"{node.input[1]}")
        described, addresses = [], []
        for name in node.input:
            if name in self._engine._inputs:
                shape, kind = context.shape(name), self._engine.dtype(name)
                address = context.addresses[name]
            else:
                constant = self._constants.get(name)
                made = {0: (tokens, plugin._node.shape.qkv_width)}.get(list(node.input).index(name), (tokens,))
                shape, kind = (constant.shape, constant.dtype) if constant is not None else (made, None)
                kind = kind or (dtype if name == node.input[0] else np.dtype(np.int32))
                address = room.take(int(np.prod(shape)) * kind.itemsize)
                cuda.put(stream, self._storing(address, kind, shape, name, values))
            described.append(types.SimpleNamespace(dims=shape, type=_datatype(kind)))
            addresses.append(address)
        shape = (tokens, plugin._node.shape.width)
        out = room.take(int(np.prod(shape)) * dtype.itemsize)
        workspace = room.take(plugin._node.workspace_size([d.dims for d in described]))
        written = [out, *(context.addresses[name] for name in node.output[1:])]
        plugin.enqueue(described, [], addresses, written, workspace, stream)
        cuda.put(stream, lambda: values.update({node.output[0]: self._array(out, dtype, shape).copy()}))

    def _storing(
        self, address: int, dtype: np.dtype, shape: tuple[int, ...], name: str, values: dict[str, np.ndarray]
    ) -> Callable[[], None]:
        def store() -> None:
            self._array(address, dtype, shape)[:] = values[name]

        return store


class TreeAttention(OpRun):
    """So that the reference implementation knows the node. It is the plugin's to run."""

    op_domain = "foredraft"

    def _run(self, *inputs: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:
        raise AssertionError("never asked to run")


class _Room:
    """Scratch memory, handed out from its beginning."""

    def __init__(self, start: int, size: int) -> None:
        self._next, self._end = start, start + size

    def take(self, size: int) -> int:
        address, self._next = self._next, self._next + -(-size // 256) * 256
        assert self._next <= self._end, "the stand-in's scratch memory does not suffice"
        return address


def _datatype(dtype: np.dtype) -> DataType:
    return next(kind for kind, numpy_kind in _TYPES.values() if numpy_kind == dtype)
