"""The graphs of a segment as Polygraphy runners on the CPU: the one that engines are built from, and its reference.

Both take a batch of nodes on empty caches and give what every layer computed, under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from polygraphy.backend.base import BaseRunner
from polygraphy.common import TensorMetadata

from foredraft.bundle import Bundle
from foredraft.bundle.tensor_file import arrays
from foredraft_plugins.library import DOMAIN
from foredraft_plugins.tree_attention.reference import tree_attention

Array = NDArray[Any]


class TreeAttention(OpRun):
    """The plugin's node, computed by the numpy reference."""

    op_domain = DOMAIN

    def _run(self, qkv: Array, key: Array, value: Array, *rest: Array, **attributes: Any) -> tuple[Array, ...]:
        slots, positions, n_past, mask, cos, sin = rest
        names = ("num_heads", "kv_num_heads", "head_dim", "scale")
        keys, values = key.astype(np.float32), value.astype(np.float32)
        angles = (cos[:, :0], sin[:, :0]) if attributes["rotary_dim"] == 0 else (cos, sin)
        out = tree_attention(
            qkv.astype(np.float32),
            keys,
            values,
            slots,
            positions,
            int(n_past[0]),
            mask,
            *angles,
            **{name: attributes[name] for name in names},
        )
        return out.astype(qkv.dtype), keys.astype(key.dtype), values.astype(value.dtype)


class Gemm(OpRun):
    """Sums in float32 and rounds once, as a GPU's matrix units do; numpy's own product of halves is very slow."""

    op_domain = ""

    def _run(self, x: Array, matrix: Array, *_: Array, **attributes: Any) -> tuple[Array]:
        assert attributes["transB"] == 1
        return ((x.astype(np.float32) @ matrix.astype(np.float32).T).astype(x.dtype),)


class _Runner(BaseRunner):  # type: ignore[misc]
    """Feeds a common batch to a graph, with caches of zeros; ``outputs`` names what is wanted of it."""

    def __init__(self, name: str, graph: onnx.GraphProto, outputs: Sequence[str], slots: int) -> None:
        super().__init__(name=name)
        self._inputs, self._wanted, self._slots = list(graph.input), list(outputs), slots

    def get_input_metadata_impl(self) -> TensorMetadata:
        metadata = TensorMetadata()
        for value in self._inputs:
            if value.name in ("tokens", "hidden", "positions", "slots", "n_past", "mask"):
                dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
                sizes = [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]
                metadata.add(value.name, dtype, sizes)
        return metadata

    def _caches(self) -> dict[str, Array]:
        caches = {}
        for value in self._inputs:
            if value.name.startswith(("key_", "value_")):
                dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
                sizes = [d.dim_value or self._slots for d in value.type.tensor_type.shape.dim]
                caches[value.name] = np.zeros(sizes, dtype)
        return caches


class EngineGraphRunner(_Runner):
    """The graph of an engine, node by node in its own types, by ONNX's reference implementation."""

    def __init__(self, bundle: Bundle, path: str, outputs: Sequence[str], slots: int) -> None:
        model = onnx.load_model_from_string(bundle.read(path))
        super().__init__(path, model.graph, outputs, slots)
        self._weights = _weights(bundle, model.graph)
        kept = [tensor for tensor in model.graph.initializer if tensor.name not in self._weights]
        given = [tensor for tensor in model.graph.initializer if tensor.name in self._weights]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        model.graph.input.extend(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in given
        )
        self._evaluator = ReferenceEvaluator(model, new_ops=[TreeAttention, Gemm])

    def infer_impl(self, feed_dict: dict[str, Array]) -> dict[str, Array]:
        feeds = {**feed_dict, **self._caches(), **self._weights}
        everything: dict[str, Array] = dict(self._evaluator.run(None, feeds, intermediate=True))
        self.inference_time = 0.0
        return {name: everything[name].astype(np.float32) for name in self._wanted}


class ReferenceRunner(_Runner):
    """The portable graph over the same weights, in float32, by ONNX Runtime."""

    def __init__(self, bundle: Bundle, path: str, outputs: Sequence[str], slots: int) -> None:
        model = onnx.load_model_from_string(bundle.read(path))
        super().__init__(path, model.graph, outputs, slots)
        have = {value.name for value in model.graph.output}
        for name in outputs:
            if name not in have:
                model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        options = ort.SessionOptions()
        options.log_severity_level = 4
        folder = str((bundle.path / path).parent.absolute())
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        bundle.file(bundle.manifest.weights)  # checked: ONNX Runtime opens it itself
        self._session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def infer_impl(self, feed_dict: dict[str, Array]) -> dict[str, Array]:
        results = self._session.run(self._wanted, {**feed_dict, **self._caches()})
        self.inference_time = 0.0
        return dict(zip(self._wanted, results, strict=True))


def _weights(bundle: Bundle, graph: onnx.GraphProto) -> dict[str, Array]:
    """The tensors of the weights file that a graph asks for, as an input or as external data."""
    path = bundle.manifest.weights
    data = bundle.map(path)
    names = {value.name for value in graph.input} | {t.name for t in graph.initializer if t.external_data}
    packed = {v.name for v in graph.input if v.type.tensor_type.elem_type == onnx.TensorProto.INT4}
    packed |= {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT4}
    found = {}
    for name, array in arrays(data, str(bundle.path / path)).items():
        if name in names:
            own = array.view(ml_dtypes.bfloat16) if array.dtype == np.uint16 else array
            found[name] = _unpacked(own) if name in packed else own
    return found


def _unpacked(codes: Array) -> Array:
    """u8 [n, k / 2] -> int4 [n, k], the first of two in the low half."""
    pairs = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).astype(np.int8)
    return np.where(pairs > 7, pairs - 16, pairs).astype(ml_dtypes.int4)
