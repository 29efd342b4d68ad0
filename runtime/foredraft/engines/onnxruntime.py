"""Segments and head on ONNX Runtime's CPU engine, every buffer bound once per batch size.

Weights are mapped by the bundle (hash checked) and handed over as they are: ONNX Runtime opens no file and copies none.
Two lowerings: ``kernels`` (our operators; caches are inputs that they write in place) and ``portable`` (standard
operators; each cache is an input and an output bound to the same memory).
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from foredraft.bundle import Bundle
from foredraft.bundle.manifest import ModelInfo
from foredraft.bundle.tensor_file import arrays
from foredraft.engines.lazy_memory import lazy_zeros
from foredraft.engines.protocol import WINDOW, Batch, Float32, Int32
from foredraft.engines.providers import CPU, Provider
from foredraft.errors import EngineError
from foredraft.sampling.logits import Ids, Rows, rows_over
from foredraft_plugins import library

LOWERINGS = ("kernels", "portable")
_MOST_BINDINGS = 64
"""Batch sizes of segments that stay bound, the latest used ones. Each takes some 20 KiB, and prompts come in every size
up to WINDOW."""
_KEY_BLOCK = 16
"""Slots per interleaved block of keys in the kernels' layout."""
_DRAFT_IDS = "draft_head.ids"


class OnnxRuntimeEngine:
    """One bundle's sessions, shared by sequences; ``run`` is thread-safe because all state is the sequence's."""

    exact = True
    lazy = True

    def __init__(
        self, bundle: Bundle, threads: int | None = None, lowering: str = "auto", provider: Provider = CPU
    ) -> None:
        """``threads`` defaults to the machine's cores (those this process may use).

        With another ``provider`` the sessions are there to be run by ``provider_engine``.
        """
        self._provider = provider
        self.lowering = choose_lowering(bundle, lowering)
        self.name = f"onnxruntime/{self.lowering}"
        self.version = ort.__version__
        self.trees = self.lowering == "kernels"
        self.model = bundle.manifest.model
        self.segments = len(bundle.manifest.segments)
        self.segment_layers = [range(s.first, s.last) for s in bundle.manifest.segments]
        self.vocab_size = self.model.vocab_size
        self.threads = threads or _usable_cores()
        graphs = bundle.manifest.graphs[self.lowering]
        self._weights = weights = _Weights(bundle)  # kept: the sessions use its memory
        self.sessions = [
            self._open(bundle, path, weights.of_segment(segment.first, segment.last))
            for path, segment in zip(graphs.segments, bundle.manifest.segments, strict=True)
        ]
        self.head = self._open(bundle, graphs.head, weights.of_head())
        self.draft_head = self.head
        self.draft_ids: Ids | None = None
        if graphs.draft_head:
            self.draft_head = self._open(bundle, graphs.draft_head, weights.of_draft_head())
            self.draft_ids = weights.draft_ids()

    def open_sequence(self, slots: int) -> OnnxRuntimeSequence:
        """A fresh cache of at least ``slots`` rows; its pages are only taken from the system when written."""
        return OnnxRuntimeSequence(self, slots)

    def _open(self, bundle: Bundle, path: str, weights: dict[str, ort.OrtValue]) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Every session has its own threads: those of one must not spin on while another one runs.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 4  # its errors arrive as exceptions
        if self.lowering == "kernels":
            options.register_custom_ops_library(str(library.library_path()))
        # The mapping itself, not a copy of it; the folder is only there for ONNX Runtime's own path check.
        folder = str((bundle.path / path).parent.absolute())
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        for name, value in weights.items():
            options.add_initializer(name, value)
        try:
            return ort.InferenceSession(bundle.read(path), options, providers=self._provider.add_to(options))
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(
                f"{bundle.path / path}: ONNX Runtime {ort.__version__} cannot load it: {error}"
            ) from error


class OnnxRuntimeSequence:
    """Caches, hidden states and bindings of one sequence. Not thread-safe."""

    def __init__(self, engine: OnnxRuntimeEngine, slots: int) -> None:
        model = engine.model
        self.slots = -(-slots // _KEY_BLOCK) * _KEY_BLOCK
        self._engine = engine
        self._cache = _Cache(model, self.slots, engine.lowering)
        self._hidden = [lazy_zeros((self.slots, model.hidden_size)) for _ in range(engine.segments - 1)]
        self._inputs = {
            "tokens": np.zeros(WINDOW, np.int32),
            "positions": np.zeros(WINDOW, np.int32),
            "slots": np.zeros(WINDOW, np.int32),
            "n_past": np.zeros(1, np.int32),
            "mask": np.zeros((WINDOW, WINDOW // 32), np.int32),
            "hidden": lazy_zeros((WINDOW, model.hidden_size)),
        }
        self._outputs = {
            "readout": lazy_zeros((WINDOW, model.hidden_size)),
            "hidden_out": lazy_zeros((WINDOW, model.hidden_size)),
        }
        self._picked = lazy_zeros((WINDOW, model.hidden_size))
        self._logits = lazy_zeros((WINDOW, model.vocab_size))
        self._bindings: dict[tuple[int, int], ort.IOBinding] = {}
        known = engine.vocab_size if engine.draft_ids is None else len(engine.draft_ids)
        self._draft_logits = lazy_zeros((WINDOW, known))
        self._head_bindings: dict[int, ort.IOBinding] = {}
        self._draft_bindings: dict[int, ort.IOBinding] = {}

    def run(self, segment: int, batch: Batch) -> None:
        size, inputs = len(batch), self._inputs
        inputs["positions"][:size] = batch.positions
        inputs["slots"][:size] = batch.slots
        inputs["n_past"][0] = batch.n_past
        inputs["mask"][:size] = batch.mask
        if segment == 0:
            inputs["tokens"][:size] = batch.tokens
        else:
            inputs["hidden"][:size] = self._hidden[segment - 1][batch.slots]
        binding = self._bindings.pop((segment, size), None) or self._bind(segment, size)
        self._bindings[segment, size] = binding  # the latest used one comes last
        self._execute(self._engine.sessions[segment], binding, f"segment {segment}")
        if segment < self._engine.segments - 1:
            self._hidden[segment][batch.slots] = self._outputs["hidden_out"][:size]

    def logits(self, rows: Int32) -> Rows:
        count = len(rows)
        self._picked[:count] = self._outputs["readout"][rows]
        binding = self._head_bindings.get(count) or self._bind_head(count, self._engine.head, self._logits)
        self._head_bindings[count] = binding
        self._execute(self._engine.head, binding, "head")
        return self._logits[:count]

    def draft_logits(self, rows: Int32) -> Rows:
        """As ``logits``, over the draft vocabulary only. A bundle without one gives the whole head's logits."""
        count, head = len(rows), self._engine.draft_head
        self._picked[:count] = self._outputs["readout"][rows]
        binding = self._draft_bindings.get(count) or self._bind_head(count, head, self._draft_logits)
        self._draft_bindings[count] = binding
        self._execute(head, binding, "draft head")
        return rows_over(self._engine.draft_ids, self._draft_logits[:count], self._engine.vocab_size)

    def readout(self, rows: Int32) -> Float32:
        """The exit's normed state for rows of the last batch -> a copy, [len(rows), hidden_size]."""
        return self._outputs["readout"][rows]

    def hidden(self, segment: int, slots: Int32) -> Float32:
        """What ``segment`` (not the last) left at these slots for the next one -> a copy, [len(slots), hidden_size]."""
        return self._hidden[segment][slots]

    def move(self, source: Int32, target: Int32) -> None:
        self._cache.move(source, target)
        for hidden in self._hidden:
            hidden[target] = hidden[source]

    def copy_rows(self, other: OnnxRuntimeSequence, count: int) -> None:
        self._cache.copy_rows(other._cache, count)
        for hidden, source in zip(self._hidden, other._hidden, strict=True):
            hidden[:count] = source[:count]

    def _execute(self, session: ort.InferenceSession, binding: ort.IOBinding, what: str) -> None:
        try:
            session.run_with_iobinding(binding)
        except Exception as error:
            raise EngineError(f"{what} on {self._engine.name}: {error}") from error

    def _bind(self, segment: int, size: int) -> ort.IOBinding:
        session = self._engine.sessions[segment]
        binding = session.io_binding()
        names = [value.name for value in session.get_inputs()]
        for name in names:
            if name in self._inputs:
                array = self._inputs[name]
                _bind_input(binding, name, array if name == "n_past" else array[:size])
        for layer in self._engine.segment_layers[segment]:
            for name, array in self._cache.tensors(layer):
                _bind_input(binding, name, array)
                if self._engine.lowering == "portable":
                    _bind_output(binding, f"{name}_out", array)
        for value in session.get_outputs():
            if value.name in self._outputs:
                _bind_output(binding, value.name, self._outputs[value.name][:size])
        if len(self._bindings) >= _MOST_BINDINGS:
            del self._bindings[next(iter(self._bindings))]
        return binding

    def _bind_head(self, count: int, head: ort.InferenceSession, logits: Float32) -> ort.IOBinding:
        binding = head.io_binding()
        _bind_input(binding, "readout", self._picked[:count])
        _bind_output(binding, "logits", logits[:count])
        return binding


class _Cache:
    """K and V of all layers in one block each; keys interleaved by 16 slots for the kernels' layout."""

    def __init__(self, model: ModelInfo, slots: int, lowering: str) -> None:
        heads, width = model.kv_heads, model.head_dim
        self._interleaved = lowering == "kernels"
        key_shape = (slots // _KEY_BLOCK, width, _KEY_BLOCK) if self._interleaved else (slots, width)
        self.keys = lazy_zeros((model.layers, heads, *key_shape))
        self.values = lazy_zeros((model.layers, heads, slots, width))

    def tensors(self, layer: int) -> list[tuple[str, npt.NDArray[np.float32]]]:
        return [(f"key_{layer}", self.keys[layer]), (f"value_{layer}", self.values[layer])]

    def move(self, source: Int32, target: Int32) -> None:
        if self._interleaved:
            block, lane = divmod(source, _KEY_BLOCK)
            to_block, to_lane = divmod(target, _KEY_BLOCK)
            self.keys[:, :, to_block, :, to_lane] = self.keys[:, :, block, :, lane]
        else:
            self.keys[:, :, target] = self.keys[:, :, source]
        self.values[:, :, target] = self.values[:, :, source]

    def copy_rows(self, other: _Cache, count: int) -> None:
        key_rows = -(-count // _KEY_BLOCK) if self._interleaved else count
        self.keys[:, :, :key_rows] = other.keys[:, :, :key_rows]
        self.values[:, :, :count] = other.values[:, :, :count]


class _Weights:
    """The weights file as OrtValues over its own mapping, each made once and shared by all sessions.

    Which graph uses which tensor follows from the tensors' names (docs/graphs.md); ONNX Runtime refuses one too many.
    """

    def __init__(self, bundle: Bundle) -> None:
        path = bundle.manifest.weights
        tensors = arrays(bundle.map(path), str(bundle.path / path))
        self._values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in tensors.items()}
        self._embedding = "embed" if any(_belongs(name, "embed") for name in tensors) else "head"

    def of_segment(self, first: int, last: int) -> dict[str, ort.OrtValue]:
        owners = [f"layers.{layer}" for layer in range(first, last)] + ["norm", "rope", f"exits.{last}"]
        if first == 0:
            owners.append(self._embedding)
        return self._belonging(owners)

    def of_head(self) -> dict[str, ort.OrtValue]:
        return self._belonging(["head"])

    def of_draft_head(self) -> dict[str, ort.OrtValue]:
        return {name: value for name, value in self._belonging(["draft_head"]).items() if name != _DRAFT_IDS}

    def draft_ids(self) -> Ids:
        """[N], ascending: the tokens that the draft head's rows stand for."""
        return np.array(self._values[_DRAFT_IDS].numpy(), np.int64)  # a copy, which may outlive the mapping

    def _belonging(self, owners: list[str]) -> dict[str, ort.OrtValue]:
        return {n: v for n, v in self._values.items() if any(_belongs(n, owner) for owner in owners)}


def _belongs(tensor: str, owner: str) -> bool:
    return tensor == owner or tensor.startswith(f"{owner}.")


def choose_lowering(bundle: Bundle, asked: str) -> str:
    """``auto``: the kernels if they were built for this machine, else the portable form."""
    reason = library.unavailable_reason()
    if asked == "auto" and reason:
        warnings.warn(f"standard ONNX operators are used, which is slow: {reason}", RuntimeWarning, stacklevel=3)
    if asked == "auto":
        asked = "portable" if reason or "kernels" not in bundle.manifest.graphs else "kernels"
    if asked not in LOWERINGS:
        raise EngineError(f"lowering {asked!r}: expected auto, {' or '.join(LOWERINGS)}")
    if asked == "kernels" and reason:
        raise EngineError(f"lowering 'kernels': {reason}; use --lowering portable, or reinstall with a C++ compiler")
    if asked not in bundle.manifest.graphs:
        raise EngineError(f"{bundle.path}: has no {asked} graphs, only {', '.join(bundle.manifest.graphs)}")
    return asked


def _usable_cores() -> int:
    """Cores that this process may run on, which a container or taskset may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bind_input(binding: ort.IOBinding, name: str, array: npt.NDArray[Any]) -> None:
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _bind_output(binding: ort.IOBinding, name: str, array: npt.NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
