"""Builds an engine around one TreeAttention node, in a process of its own: an error in the library may end it.

    python -m tests.plugins.tensorrt_building '{"dtype": "fp16", "key_dim": 64}'

prints JSON: the engine's size (0 if there is none), whether it holds the node's scale, the plugin's error, the log.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
from onnx import helper

from foredraft.engines.tensorrt.libraries import library, require_parser
from foredraft_plugins.tree_attention import tensorrt as plugin

HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 4, 2, 64, 96
SCALE = 0.1234567
DTYPES = {"fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16, "fp32": onnx.TensorProto.FLOAT}


def build(**changes: Any) -> dict[str, Any]:
    """The engine for 8.9 and 12.0 of `graph` with these changes."""
    command = [sys.executable, "-m", "tests.plugins.tensorrt_building", json.dumps(changes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def graph(dtype: str = "fp16", key_dim: int = HEAD_DIM, **attributes: object) -> onnx.ModelProto:
    """MatMul, TreeAttention, MatMul; the weights are inputs."""
    kind, qkv = DTYPES[dtype], (HEADS + 2 * KV_HEADS) * HEAD_DIM
    node = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "head_dim": HEAD_DIM, "rotary_dim": 32, "scale": SCALE}
    inputs = ["qkv", "key", "value", "slots", "positions", "n_past", "mask", "cos", "sin"]
    nodes = [
        helper.make_node("MatMul", ["x", "w_qkv"], ["qkv"]),
        helper.make_node(
            "TreeAttention",
            inputs,
            ["attended", "key_out", "value_out"],
            name="layers.7.attention",
            domain="foredraft",
            plugin_namespace="foredraft",
            plugin_version="1",
            **{name: value for name, value in {**node, **attributes}.items() if value is not None},
        ),
        helper.make_node("MatMul", ["attended", "w_o"], ["y"]),
    ]
    integer, real = onnx.TensorProto.INT32, onnx.TensorProto.FLOAT
    cache = ["S", KV_HEADS, key_dim]
    given = [("x", kind, ["T", HIDDEN]), ("w_qkv", kind, [HIDDEN, qkv]), ("w_o", kind, [HEADS * HEAD_DIM, HIDDEN])]
    given += [("key", kind, cache), ("value", kind, cache), ("slots", integer, ["T"]), ("positions", integer, ["T"])]
    given += [("n_past", integer, [1]), ("mask", integer, ["T", 8]), ("cos", real, [512, 16]), ("sin", real, [512, 16])]
    results = [("y", kind, ["T", HIDDEN]), ("key_out", kind, cache), ("value_out", kind, cache)]
    values = [[helper.make_tensor_value_info(*value) for value in values] for values in (given, results)]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("foredraft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", *values), opset_imports=opsets, ir_version=10)


def _build(model: onnx.ModelProto) -> dict[str, Any]:
    import tensorrt_rtx as trt

    log: list[str] = []

    class Log(trt.ILogger):
        def log(self, severity: Any, text: str) -> None:
            log.append(f"{severity.name}: {text}")

    require_parser(library("tensorrt-rtx"))
    plugin.register(trt, None)
    plugin.register(trt, None)
    logger = Log()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    engine = _engine(trt, builder, network) if parser.parse(model.SerializeToString()) else None
    stored = engine is not None and np.float32(SCALE).tobytes() in bytes(engine)
    size = engine.nbytes if engine else 0
    return {"size": size, "stored": stored, "error": str(plugin.last_error()), "log": log}


def _engine(trt: Any, builder: Any, network: Any) -> Any:
    config = builder.create_builder_config()
    config.num_compute_capabilities = 2
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    config.set_compute_capability(trt.ComputeCapability.SM120, 1)
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    profile = builder.create_optimization_profile()
    for value in (network.get_input(i) for i in range(network.num_inputs)):
        if -1 in tuple(value.shape):
            sizes = (64, 512, 2048) if value.name in ("key", "value") else (1, 8, 64)
            profile.set_shape(value.name, *(tuple(size if d < 0 else d for d in value.shape) for size in sizes))
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


if __name__ == "__main__":
    print(json.dumps(_build(graph(**json.loads(sys.argv[1])))))
