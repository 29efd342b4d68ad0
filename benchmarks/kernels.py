"""How long a forward of T nodes takes with the CPU operators, on a synthetic model of the shape of SmolLM2-135M.

    python benchmarks/kernels.py                          t(T) at contexts 256 and 1024, on 1 and 2 threads
    python benchmarks/kernels.py --threads 1 --linears    the linear layers alone: GMAC/s and GB/s

Weights are random: 4 bits with minima in the layers, 8 bits in the head and embedding. Every number is the least of
rounds that take turns, so that a busy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime

from foredraft_plugins.block_linear.packing import packed_shapes
from foredraft_plugins.library import DOMAIN, instruction_set, library_path

WINDOW_WORDS = 8


@dataclass(frozen=True, slots=True)
class Model:
    hidden: int = 576
    intermediate: int = 1536
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    layers: int = 30
    vocabulary: int = 49152
    slots: int = 1536

    def linears(self) -> dict[str, tuple[int, int]]:
        """(N, K) of the linear layers of one layer."""
        width = (self.heads + 2 * self.kv_heads) * self.head_dim
        return {
            "qkv": (width, self.hidden),
            "o": (self.hidden, self.heads * self.head_dim),
            "gate_up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
        }


class Graph:
    """An ONNX graph of our operators with random weights."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.inputs: list[ir.Value] = []
        self.initializers: list[ir.Value] = []
        self.nodes: list[ir.Node] = []

    def input(self, name: str, dtype: str, *shape: int | str) -> ir.Value:
        value = ir.Value(name=name, type=ir.TensorType(ir.DataType[dtype]), shape=ir.Shape(shape))
        self.inputs.append(value)
        return value

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        kind = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, type=kind, shape=ir.Shape(array.shape), const_value=tensor)
        self.initializers.append(value)
        return value

    def weight(self, name: str, n: int, k: int, bits: int, has_min: bool) -> list[ir.Value]:
        values = []
        for part, (shape, dtype) in packed_shapes(n, k, bits, has_min).items():
            if dtype == np.uint8:
                array = self.random.integers(0, 256, shape, np.uint8)
            else:
                array = self.random.normal(0, 0.2 / 2**bits, shape).astype(dtype)
            values.append(self.constant(f"{name}.{part}", array))
        return values

    def op(self, kind: str, *inputs: ir.Value, outputs: int = 1, **attributes: int | float) -> Any:
        made = [ir.AttrInt64(k, v) if isinstance(v, int) else ir.AttrFloat32(k, v) for k, v in attributes.items()]
        node = ir.Node(DOMAIN, kind, list(inputs), made, num_outputs=outputs, name=f"{kind}_{len(self.nodes)}")
        for i, output in enumerate(node.outputs):
            output.name = f"{node.name}/{i}"
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def linear(self, x: ir.Value, name: str, n: int, k: int, bits: int) -> Any:
        return self.op("BlockLinear", x, *self.weight(name, n, k, bits, bits == 4), bits=bits, N=n, K=k)

    def session(self, outputs: list[ir.Value], threads: int) -> onnxruntime.InferenceSession:
        for output in outputs:
            output.type = ir.TensorType(ir.DataType.FLOAT)
        graph = ir.Graph(
            self.inputs,
            outputs,
            nodes=self.nodes,
            initializers=self.initializers,
            opset_imports={"": 20, DOMAIN: 1},
            name="benchmark",
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(str(library_path()))
        model = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def whole_model(m: Model, threads: int) -> onnxruntime.InferenceSession:
    """tokens -> logits, in one session."""
    g = Graph()
    tokens = g.input("tokens", "INT32", "T")
    shared = {name: g.input(name, "INT32", *shape) for name, shape in batch_shapes("T").items()}
    half = m.head_dim // 2
    angles = np.arange(m.slots)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = (g.constant(name, f(angles).astype(np.float32)) for name, f in (("cos", np.cos), ("sin", np.sin)))
    table = g.weight("embedding", m.vocabulary, m.hidden, 8, False)
    packed = {"bits": 8, "N": m.vocabulary, "K": m.hidden}

    def norm_weight(name: str) -> ir.Value:
        return g.constant(name, np.ones(m.hidden, np.float32))

    x = g.op("BlockEmbedding", tokens, *table, **packed)
    h = g.op("RMSNorm", x, norm_weight("norm"), epsilon=1e-5)
    for layer in range(m.layers):
        width = m.linears()
        key = g.input(f"key_{layer}", "FLOAT", m.kv_heads, m.slots // 16, m.head_dim, 16)
        value = g.input(f"value_{layer}", "FLOAT", m.kv_heads, m.slots, m.head_dim)
        mixed = g.op(
            "TreeAttention",
            g.linear(h, f"{layer}.qkv", *width["qkv"], 4),
            key,
            value,
            *shared.values(),
            cos,
            sin,
            num_heads=m.heads,
            kv_num_heads=m.kv_heads,
            head_dim=m.head_dim,
            rotary_dim=m.head_dim,
            scale=m.head_dim**-0.5,
        )
        o = g.linear(mixed, f"{layer}.o", *width["o"], 4)
        h, x = g.op("AddRMSNorm", x, o, norm_weight(f"{layer}.norm"), outputs=2, epsilon=1e-5)
        wide = g.op("SwiGLU", g.linear(h, f"{layer}.gate_up", *width["gate_up"], 4))
        down = g.linear(wide, f"{layer}.down", *width["down"], 4)
        h, x = g.op("AddRMSNorm", x, down, norm_weight(f"{layer}.next_norm"), outputs=2, epsilon=1e-5)
    return g.session([g.op("BlockLinear", h, *table, **packed)], threads)


def batch_shapes(t: int | str) -> dict[str, tuple[int | str, ...]]:
    return {"slots": (t,), "positions": (t,), "n_past": (1,), "mask": (t, WINDOW_WORDS)}


class Cache:
    """Keys and values of all layers, bound by pointer."""

    def __init__(self, m: Model) -> None:
        shapes = (m.kv_heads, m.slots // 16, m.head_dim, 16), (m.kv_heads, m.slots, m.head_dim)
        draw = np.random.default_rng(1).random
        self.arrays = {
            f"{name}_{layer}": draw(shape, np.float32) - 0.5
            for layer in range(m.layers)
            for name, shape in zip(("key", "value"), shapes, strict=True)
        }


def forward(
    session: onnxruntime.InferenceSession, cache: Cache, m: Model, t: int, context: int
) -> Callable[[], object]:
    """A forward of a chain of t nodes behind `context` slots, with everything bound beforehand."""
    chain = np.arange(t, dtype=np.int32) + context
    bits = np.tri(t, 32 * WINDOW_WORDS, dtype=np.uint8)
    arrays = {
        "tokens": np.arange(t, dtype=np.int32),
        "slots": chain,
        "positions": chain,
        "n_past": np.array([context], np.int32),
        "mask": np.packbits(bits, axis=1, bitorder="little").view(np.int32),
        **cache.arrays,
    }
    logits = np.empty((t, m.vocabulary), np.float32)
    return bound(session, arrays, logits)


def bound(
    session: onnxruntime.InferenceSession, inputs: dict[str, np.ndarray], output: np.ndarray
) -> Callable[[], object]:
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for made in session.get_outputs():  # all into one array, as the layers of a model share their buffers
        binding.bind_output(made.name, "cpu", 0, output.dtype, output.shape, output.ctypes.data)

    def run(keep: object = (inputs, output)) -> object:
        session.run_with_iobinding(binding)
        return keep

    return run


def least(runs: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float]) -> list[float]:
    """Seconds of each run: the least of `rounds` that take turns."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            run()  # what the run before left in the caches should not matter
            start = clock()
            run()
            best[i] = min(best[i], clock() - start)
    return best


def report_model(m: Model, args: argparse.Namespace) -> None:
    cache = Cache(m)
    sessions = {threads: whole_model(m, threads) for threads in args.threads}
    cases = [(threads, context) for threads in args.threads for context in args.contexts]
    runs = [forward(sessions[n], cache, m, t, context) for n, context in cases for t in args.nodes]
    times = np.array(least(runs, args.rounds, args.clock)).reshape(len(cases), -1) * 1e3
    print("forward, ms (ratio to the first)")
    print(f"{'threads':>8}{'context':>9}" + "".join(f"{f'T={t}':>15}" for t in args.nodes))
    for (threads, context), row in zip(cases, times, strict=True):
        print(f"{threads:>8}{context:>9}" + "".join(f"{ms:>8.2f} ({ms / row[0]:4.2f})" for ms in row))


def report_linears(m: Model, args: argparse.Namespace) -> None:
    print("linear layers alone, GMAC/s | GB/s of weights")
    print(f"{'threads':>8}{'':>14}" + "".join(f"{f'T={t}':>15}" for t in args.nodes))
    shapes = [(name, n, k, 4) for name, (n, k) in m.linears().items()] + [("head", m.vocabulary, m.hidden, 8)]
    for threads in args.threads:
        for name, n, k, bits in shapes:
            copies = max(1, (96 << 20) // (n * k * bits // 8))  # more than a cache holds
            g = Graph()
            x = g.input("x", "FLOAT", "T", k)
            session = g.session([g.linear(x, f"{name}.{i}", n, k, bits) for i in range(copies)], threads)
            size = sum(int(np.prod(s)) * d.itemsize for s, d in packed_shapes(n, k, bits, bits == 4).values())
            draw = np.random.default_rng(2).normal
            runs = [
                bound(session, {"x": draw(size=(t, k)).astype(np.float32)}, np.empty((t, n), np.float32))
                for t in args.nodes
            ]
            seconds = [s / copies for s in least(runs, 3, args.clock)]
            cells = zip(args.nodes, seconds, strict=True)
            print(f"{threads:>8}{f'{name} {bits} bit':>14}", end="")
            print("".join(f"{t * n * k / s / 1e9:>8.0f} | {size / s / 1e9:4.1f}" for t, s in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--linears", action="store_true", help="the linear layers alone")
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine; with --threads 1")
    args = parser.parse_args()
    if args.cpu_time and args.threads != [1]:
        parser.error("--cpu-time counts one thread only: add --threads 1")
    args.clock = time.thread_time if args.cpu_time else time.perf_counter
    print(f"instruction set: {instruction_set()}")
    model = Model(layers=args.layers)
    if args.linears:
        report_linears(model, args)
    else:
        report_model(model, args)


if __name__ == "__main__":
    main()
