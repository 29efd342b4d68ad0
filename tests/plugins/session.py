"""One-node graphs of our operators in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime

from foredraft_plugins.library import DOMAIN, library_path


class Operator:
    """A graph of one node; calling it with arrays runs it. Inputs given as `constants` are initializers."""

    def __init__(
        self,
        name: str,
        inputs: dict[str, str],
        outputs: int = 1,
        threads: int = 1,
        constants: dict[str, np.ndarray] | None = None,
        **attributes: Any,
    ) -> None:
        constants = constants or {}
        given = {
            key: ir.Value(name=key, type=ir.TensorType(ir.DataType[dtype]), shape=ir.Shape(rank))
            for key, (dtype, *rank) in ((key, spec.split()) for key, spec in inputs.items())
        }
        fixed = {
            key: ir.Value(
                name=key,
                type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
                shape=ir.Shape(array.shape),
                const_value=ir.tensor(array, name=key),
            )
            for key, array in constants.items()
        }
        node = ir.Node(
            DOMAIN,
            name,
            [*given.values(), *fixed.values()],
            [ir.AttrInt64(k, v) if isinstance(v, int) else ir.AttrFloat32(k, v) for k, v in attributes.items()],
            num_outputs=outputs,
        )
        for i, output in enumerate(node.outputs):
            output.name, output.type = f"out{i}", ir.TensorType(ir.DataType.FLOAT)
        graph = ir.Graph(
            list(given.values()),
            list(node.outputs),
            nodes=[node],
            initializers=list(fixed.values()),
            opset_imports={"": 20, DOMAIN: 1},
            name=name,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        options.register_custom_ops_library(str(library_path()))
        model = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def __call__(self, **arrays: np.ndarray) -> Any:
        """Runs on the arrays' own memory, so that an operator that writes into an input is seen to do so."""
        binding = self.session.io_binding()
        for name, array in arrays.items():
            assert array.flags.c_contiguous
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for output in self.session.get_outputs():
            binding.bind_output(output.name)
        self.session.run_with_iobinding(binding)
        found = binding.copy_outputs_to_cpu()
        return found[0] if len(found) == 1 else found


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
