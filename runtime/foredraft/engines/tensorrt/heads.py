"""A head over rows of the last forward's readout, of which only the logits that were asked for come to the host."""

from __future__ import annotations

import math

import numpy as np

from foredraft.engines.base import Float32, Int32
from foredraft.engines.tensorrt.device import DeviceBuffer, PinnedBuffer
from foredraft.engines.tensorrt.memory import FLOAT, Memory
from foredraft.engines.tensorrt.rows import Index
from foredraft.engines.tensorrt.runnable import Addresses, Runnable
from foredraft.engines.tensorrt.steps import HeadWork, Step


class Head:
    """One head of one sequence; ``size`` logits a row."""

    def __init__(
        self, engine: Runnable, memory: Memory, weights: Addresses, buckets: tuple[int, ...], capture: bool
    ) -> None:
        """``buckets``: the numbers of rows that it runs on, ascending; more rows take several runs."""
        self._engine, self._memory, self._weights = engine, memory, weights
        self._buckets, self._capture = buckets, capture
        self._outputs = {
            name: DeviceBuffer(memory.device, tensor.nbytes(buckets[-1], 0), "logits")
            for name, tensor in engine.outputs.items()
        }
        self.size = engine.outputs["logits"].shape[1]
        self._host = PinnedBuffer(memory.device, FLOAT * self.size)
        self._steps: dict[int, Step] = {}

    def logits(self, rows: Int32) -> Float32:
        """[len(rows), size]; a view that is valid until the next call."""
        memory, size = self._memory, FLOAT * self.size
        if len(rows) * size > len(self._host.array):
            room = 2 ** math.ceil(math.log2(len(rows)))
            self._host = PinnedBuffer(memory.device, room * size)
        most = self._buckets[-1]
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            self._run(part)
            target = self._host.address + start * size
            memory.stream.to_host(target, self._outputs["logits"].address, len(part) * size)
        memory.stream.wait()
        logits: Float32 = self._host.view(np.float32, (len(rows), self.size))
        return logits

    def _run(self, rows: Int32) -> None:
        count = next(bucket for bucket in self._buckets if bucket >= len(rows))
        picks = self._memory.picks
        picks.ready()
        host = picks.host.view(np.int32)
        host[: len(rows)] = rows
        host[len(rows) : count] = 0
        known = self._steps.get(count)
        if known is None:
            self._steps[count] = known = self._step(count)
            known.run()
            self._memory.stream.wait()
            self._engine.keep_kernels()
        else:
            known.run()

    def _step(self, rows: int) -> Step:
        memory = self._memory
        outputs = {name: buffer.address for name, buffer in self._outputs.items()}
        addresses = {**self._weights, "readout": memory.picked.address, **outputs}
        work = HeadWork(
            context=self._engine.context(rows, 0, addresses, memory.scratch, memory.stream),
            upload=memory.picks,
            index=Index(memory.picks.address, memory.picks.host.view(np.int32)),
            rows=rows,
            readout=memory.readout.address,
            picked=memory.picked.address,
            width=memory.width,
            copier=memory.copier,
        )
        return Step(f"{self._engine.where}, {rows} rows", work, memory.stream, memory.picks, self._capture)
