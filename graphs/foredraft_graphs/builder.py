"""A thin layer over onnx_ir that writes a graph node by node. Knows nothing of decoders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

from foredraft_graphs.weights_file import WeightsFile

OPSET = 24
IR_VERSION = 11
_DTYPES = {
    "F32": ir.DataType.FLOAT,
    "F16": ir.DataType.FLOAT16,
    "BF16": ir.DataType.BFLOAT16,
    "U8": ir.DataType.UINT8,
    "I8": ir.DataType.INT8,
}

Dim = int | str
Attribute = str | int | float | Sequence[int] | Sequence[float]


class GraphBuilder:
    """Collects nodes, inputs, outputs and initializers, each named, and turns them into a model.

    With ``weights_as_inputs`` the tensors of the weights file become inputs, after all others.
    """

    def __init__(self, name: str, weights: WeightsFile, weights_as_inputs: bool = False) -> None:
        self.name = name
        self.weights = weights
        self._weights_as_inputs = weights_as_inputs
        self._weight_inputs: dict[str, ir.Value] = {}
        self._tape = tape.Tape()
        self._inputs: list[ir.Value] = []
        self._outputs: list[ir.Value] = []
        self._initializers: dict[str, ir.Value] = {}
        self._made: dict[str, ir.Value] = {}
        self._domains: dict[str, int] = {"": OPSET}

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[Dim]) -> ir.Value:
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))
        self._inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str, dtype: ir.DataType, shape: Sequence[Dim]) -> None:
        value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(dtype)
        self._outputs.append(value)

    def op(
        self, op_type: str, *inputs: ir.Value | None, name: str, domain: str = "", **attributes: Attribute
    ) -> ir.Value:
        """One node with one output; the output is called ``name``."""
        return self.ops(op_type, *inputs, names=[name], domain=domain, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: ir.Value | None, names: Sequence[str], domain: str = "", **attributes: Attribute
    ) -> list[ir.Value]:
        """One node with an output for each of ``names``."""
        if domain:
            self._domains[domain] = 1
        outputs = self._tape.op_multi_out(
            op_type, list(inputs), num_outputs=len(names), domain=domain, attributes=attributes or None
        )
        for output, output_name in zip(outputs, names, strict=True):
            output.name = output_name
            self._made[output_name] = output
        node = outputs[0].producer()
        assert node is not None  # it was just made
        node.name = names[0]
        return list(outputs)

    def once(self, name: str, op_type: str, *inputs: ir.Value | None, **attributes: Attribute) -> ir.Value:
        """As ``op``, but a second call with the same name gives the first one's output."""
        return self.known(name) or self.ops(op_type, *inputs, names=[name], domain="", **attributes)[0]

    def known(self, name: str) -> ir.Value | None:
        """The output called ``name``, if some node already made it."""
        return self._made.get(name)

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """A small initializer kept inside the graph file; the same name gives the same value."""
        if name not in self._initializers:
            self._add_initializer(name, array.shape, ir.tensor(np.asarray(array, order="C"), name=name))
        return self._initializers[name]

    def weight(self, name: str, packed: ir.DataType | None = None) -> ir.Value:
        """A tensor of the weights file, by reference; ``packed`` says what its bytes hold, two to a byte (INT4)."""
        location = self.weights.tensors[name]
        dtype, shape = packed or _DTYPES[location.dtype], location.shape
        if packed:
            shape = (*shape[:-1], 2 * shape[-1])
        if self._weights_as_inputs:
            if name not in self._weight_inputs:
                self._weight_inputs[name] = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))
            return self._weight_inputs[name]
        if name not in self._initializers:
            tensor = ir.ExternalTensor(
                self.weights.location, location.offset, location.nbytes, dtype, shape=ir.Shape(shape), name=name
            )
            self._add_initializer(name, shape, tensor)
        return self._initializers[name]

    def has_weight(self, name: str) -> bool:
        return name in self.weights.tensors

    def model(self) -> ir.Model:
        graph = ir.Graph(
            [*self._inputs, *self._weight_inputs.values()],
            self._outputs,
            nodes=self._tape.nodes,
            initializers=list(self._initializers.values()),
            opset_imports=self._domains,
            name=self.name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="foredraft")

    def _add_initializer(self, name: str, shape: Sequence[int], tensor: ir.TensorProtocol) -> None:
        self._initializers[name] = ir.Value(
            name=name, shape=ir.Shape(shape), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
