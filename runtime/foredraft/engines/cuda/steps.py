"""What one call puts into a stream: inputs up, rows gathered, an engine run, rows scattered. Captured if it may be.

A CUDA graph is captured for each engine and number of rows, and has an execution context of its own, since shapes that
change in a context change what an earlier capture of it stands for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from foredraft.engines.cuda.device import Graph, Stream
from foredraft.engines.cuda.layout import input_block
from foredraft.engines.cuda.rows import Index, RowCopier, Upload
from foredraft.engines.cuda.runnable import Addresses, Context
from foredraft.engines.protocol import Batch
from foredraft.engines.tensorrt.messages import patience
from foredraft.errors import EngineError

_log = logging.getLogger("foredraft")


class Inputs:
    """The inputs of a forward of ``rows`` nodes in an upload block: their addresses, and how they are filled."""

    def __init__(self, upload: Upload, rows: int, spare: int) -> None:
        """``spare`` is the cache row that rows beyond a batch write to: nobody ever sees it."""
        self.rows, self._upload, self._spare = rows, upload, spare
        offsets, self.size = input_block(rows)
        self.addresses: Addresses = {name: upload.address + offset for name, offset in offsets.items()}
        ends = [*list(offsets.values())[1:], self.size]
        self._parts = {
            name: upload.host[start:end].view("int32") for (name, start), end in zip(offsets.items(), ends, strict=True)
        }
        self.slots = Index(self.addresses["slots"], self._parts["slots"])

    def fill(self, batch: Batch) -> None:
        """Write the batch into pinned memory once the device has what was there before."""
        self._upload.ready()
        count, end = len(batch), self.rows
        parts = self._parts
        parts["n_past"][0] = batch.n_past
        for name, values, beyond in (
            ("tokens", batch.tokens, 0),
            ("positions", batch.positions, 0),
            ("slots", batch.slots, self._spare),
        ):
            parts[name][:count] = values
            parts[name][count:end] = beyond
        words = batch.mask.shape[1]
        parts["mask"][: count * words] = batch.mask.reshape(-1)
        parts["mask"][count * words : end * words] = 0

    def send(self) -> None:
        """Put their way to the device into the stream."""
        self._upload.send(self.size)


@dataclass(frozen=True, slots=True)
class Hidden:
    """Where hidden states come from and go to: rows of ``width`` bytes at device addresses.

    ``before`` and ``after`` hold a row per slot (None at the model's ends); ``read`` and ``written`` are the engine's
    own tensors, a row per node.
    """

    width: int
    before: int | None
    read: int
    written: int
    after: int | None


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """A segment on the nodes of ``inputs``."""

    context: Context
    inputs: Inputs
    hidden: Hidden
    copier: RowCopier

    def __call__(self) -> None:
        inputs, hidden = self.inputs, self.hidden
        inputs.send()
        if hidden.before is not None:
            self.copier.gather(hidden.read, hidden.before, inputs.slots, inputs.rows, hidden.width)
        self.context.enqueue()
        if hidden.after is not None:
            self.copier.scatter(hidden.after, hidden.written, inputs.slots, inputs.rows, hidden.width)


@dataclass(frozen=True, slots=True)
class HeadWork:
    """A head on ``rows`` rows of ``readout``, those of ``index``, which ``picked`` holds side by side."""

    context: Context
    upload: Upload
    index: Index
    rows: int
    readout: int
    picked: int
    width: int
    copier: RowCopier

    def __call__(self) -> None:
        self.upload.send(4 * self.rows)
        self.copier.gather(self.picked, self.readout, self.index, self.rows, self.width)
        self.context.enqueue()


class Step:
    """Work that is done again and again: the first time as it is, then as a graph if it may be captured."""

    def __init__(self, what: str, work: SegmentWork | HeadWork, stream: Stream, upload: Upload, capture: bool) -> None:
        self._what, self._work, self._stream, self._upload = what, work, stream, upload
        self._capture, self._done = capture, False
        self._graph: Graph | None = None

    def run(self) -> None:
        """Put it into the stream."""
        if self._graph is not None:
            self._graph.launch()
        elif self._done:
            self._work()
        else:
            self._first()
        self._upload.sent()

    def _first(self) -> None:
        """The library sets itself up (and may finish kernels) in a first run, which must not happen in a capture."""
        with patience(lambda: f"{self._what}: preparing the device's kernels"):
            self._work()
        self._done = True
        if not self._capture:
            return
        try:
            if not self._work.context.capturable():
                raise EngineError("the engine does work that cannot be captured; build it again")
            self._graph = self._stream.capture(self._work)
        except EngineError as error:
            _log.warning("%s: runs without a CUDA graph, which is slower: %s", self._what, error)
