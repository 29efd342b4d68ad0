"""The portable graphs on ONNX Runtime's GPU providers. Caches, hidden states and inputs stay on the device.

All memory is ours and bound by address, as for TensorRT's engines: ONNX Runtime copies what lies on the host only once,
when it is bound, and offers no copies of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnxruntime as ort

from foredraft.bundle import Bundle
from foredraft.engines.cuda.device import Device, DeviceBuffer, Stream
from foredraft.engines.cuda.heads import Head
from foredraft.engines.cuda.layout import CacheLayout
from foredraft.engines.cuda.memory import Memory, Sizes
from foredraft.engines.cuda.native import ExactForwards
from foredraft.engines.cuda.rows import PlainRows
from foredraft.engines.cuda.runnable import Addresses, Runnable, Tensor
from foredraft.engines.cuda.sequence import CudaSequence
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.engines.protocol import WINDOW, Batch
from foredraft.engines.providers import Provider
from foredraft.errors import EngineError

_HEAD_ROWS = tuple(2**n for n in range(7))
_NUMPY = {"tensor(float)": np.dtype(np.float32), "tensor(int32)": np.dtype(np.int32)}


class ProviderEngine:
    """ONNX Runtime's sessions with one provider; sequences hold the memory."""

    trees = True
    exact = False
    lazy = False

    def __init__(self, bundle: Bundle, provider: Provider, device: Device, threads: int | None = None) -> None:
        """Raises EngineError if the provider is not here or cannot take the graphs."""
        # The providers run with the CPU's threads what they do not know themselves.
        self._sessions = opened = OnnxRuntimeEngine(bundle, threads, "portable", provider)
        self.name = f"onnxruntime/{provider.name}"
        self.version = f"{opened.version} on {device}"
        self.model, self.segments, self.vocab_size = opened.model, opened.segments, opened.vocab_size
        self.threads, self.device = opened.threads, device
        graphs = bundle.manifest.graphs["portable"]

        def bound(path: str, session: ort.InferenceSession) -> BoundSession:
            return BoundSession(str(bundle.path / path), session, provider.device)

        self._segments: list[Runnable] = [bound(*each) for each in zip(graphs.segments, opened.sessions, strict=True)]
        self._head = bound(graphs.head, opened.head)
        self._draft_head = bound(graphs.draft_head, opened.draft_head) if graphs.draft_head else None

    def open_sequence(self, slots: int) -> CudaSequence:
        """A fresh cache of ``slots`` rows. Raises EngineError if memory is short."""
        self.device.activate()
        stream = Stream(self.device)
        layout = CacheLayout(self.model, slots, native=True, item=4)
        memory = Memory(self.device, stream, Sizes(self.model, self.segments, WINDOW, 1), layout, PlainRows(stream))
        forwards = ExactForwards(self._segments, memory, {}, (WINDOW,), cut=_whole)
        head = draft_head = Head(self._head, memory, {}, _HEAD_ROWS, False, self.vocab_size)
        if self._draft_head is not None:
            ids = self._sessions.draft_ids
            draft_head = Head(self._draft_head, memory, {}, _HEAD_ROWS, False, self.vocab_size, ids)
        return CudaSequence(memory, forwards, (head, draft_head), slots, owner=self)


class BoundSession:
    """A session as a sequence sees it."""

    def __init__(self, where: str, session: ort.InferenceSession, device: str) -> None:
        self.where, self.session, self.device = where, session, device
        self.inputs: Mapping[str, Tensor] = {value.name: _tensor(value) for value in session.get_inputs()}
        self.outputs: Mapping[str, Tensor] = {value.name: _tensor(value) for value in session.get_outputs()}

    def context(
        self, rows: int, slots: int, addresses: Addresses, scratch: DeviceBuffer, stream: Stream
    ) -> BoundContext:
        context = BoundContext(self, addresses, stream)
        context.shape(rows, slots)
        return context

    def keep_kernels(self) -> None:
        """The providers keep what they compile themselves, or not at all."""


class BoundContext:
    """A session's binding, made anew where the number of rows changes."""

    def __init__(self, session: BoundSession, addresses: Addresses, stream: Stream) -> None:
        self._session, self._addresses, self._stream = session, addresses, stream
        self._shape: tuple[int, int] | None = None

    def shape(self, rows: int, slots: int) -> None:
        if self._shape == (rows, slots):
            return
        self._shape, owner = (rows, slots), self._session
        self._binding = binding = owner.session.io_binding()
        for tensors, bind in ((owner.inputs, binding.bind_input), (owner.outputs, binding.bind_output)):
            for tensor in tensors.values():
                kind, shape = np.dtype(tensor.dtype).type, tensor.sized(rows, slots)
                bind(tensor.name, owner.device, 0, kind, shape, self._addresses[tensor.name])

    def capturable(self) -> bool:
        return False

    def enqueue(self) -> None:
        # ONNX Runtime has a stream of its own: what lies in ours must be done before, and it waits for its own.
        self._stream.wait()
        try:
            self._session.session.run_with_iobinding(self._binding)
            self._binding.synchronize_outputs()
        except Exception as error:
            raise EngineError(f"{self._session.where}: {error}") from error


def _tensor(value: ort.NodeArg) -> Tensor:
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    dtype = _NUMPY[value.type]
    return Tensor(value.name, shape, dtype.name, dtype.itemsize)


def _whole(batch: Batch) -> Iterable[Batch]:
    """These graphs write to any slots."""
    return (batch,)
