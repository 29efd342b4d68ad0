"""A head over rows of the last forward's readout, of which only the highest logits come to the host."""

from __future__ import annotations

import math

import numpy as np

from foredraft.engines.cuda.device import DeviceBuffer, PinnedBuffer
from foredraft.engines.cuda.memory import FLOAT, Memory
from foredraft.engines.cuda.rows import Index
from foredraft.engines.cuda.runnable import Addresses, Runnable
from foredraft.engines.cuda.steps import HeadWork, Step
from foredraft.engines.cuda.top import HeadVocabulary, TopRows
from foredraft.engines.protocol import Float32, Int32
from foredraft.errors import EngineError
from foredraft.sampling.logits import Ids, Rows, rows_over, whole

_TOP = ("top_ids", "top_logits", "log_total")


class Head:
    """One head of one sequence."""

    def __init__(
        self,
        engine: Runnable,
        memory: Memory,
        weights: Addresses,
        buckets: tuple[int, ...],
        capture: bool,
        vocab_size: int,
        ids: Ids | None = None,
    ) -> None:
        """``buckets``: the numbers of rows that it runs on, ascending; more rows take several runs.

        ``ids`` are the tokens that its logits stand for, ascending; None: the whole vocabulary.
        """
        self._engine, self._memory, self._weights = engine, memory, weights
        self._buckets, self._capture = buckets, capture
        self._outputs = {
            name: DeviceBuffer(memory.device, tensor.nbytes(buckets[-1], 0), "logits")
            for name, tensor in engine.outputs.items()
        }
        self._vocabulary = HeadVocabulary(engine.outputs["logits"].shape[1], vocab_size, ids)
        self._size = FLOAT * self._vocabulary.size
        self._host = PinnedBuffer(memory.device, self._size)
        self._top = engine.outputs["top_ids"].shape[1] if set(_TOP) <= set(engine.outputs) else 0
        self._top_host = {name: PinnedBuffer(memory.device, self._outputs[name].size) for name in _TOP if self._top}
        self._steps: dict[int, Step] = {}
        self._runs = 0

    def logits(self, rows: Int32) -> Rows:
        """A row for each, valid until the next call; all logits where the engine has no top, or runs several times."""
        if not self._top or len(rows) > self._buckets[-1]:
            return rows_over(self._vocabulary.ids, self._all(rows), self._vocabulary.vocab_size)
        self._run(rows)
        for name, host in self._top_host.items():
            size = len(rows) * self._engine.outputs[name].nbytes(1, 0)
            self._memory.stream.to_host(host.address, self._outputs[name].address, size)
        self._memory.stream.wait()
        shape, run = (len(rows), self._top), self._runs
        return TopRows(
            self._top_host["top_ids"].view(np.int32, shape),
            self._top_host["top_logits"].view(np.float32, shape),
            self._top_host["log_total"].view(np.float32, shape[:1]),
            self._vocabulary,
            lambda row: self._fetch(row, run),
        )

    def _all(self, rows: Int32) -> Float32:
        """[len(rows), size]."""
        memory, size = self._memory, self._size
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
        logits: Float32 = self._host.view(np.float32, (len(rows), self._vocabulary.size))
        return logits

    def _fetch(self, row: int, run: int) -> Float32:
        """All logits of a row of that run, [vocab_size]."""
        if run != self._runs:
            raise EngineError(f"{self._engine.where}: row {row} was asked for after the head had run again")
        memory = self._memory
        memory.device.activate()
        memory.stream.to_host(self._host.address, self._outputs["logits"].address + row * self._size, self._size)
        memory.stream.wait()
        vocabulary = self._vocabulary
        logits = self._host.view(np.float32, (1, vocabulary.size)).copy()
        return whole(rows_over(vocabulary.ids, logits, vocabulary.vocab_size)[0])

    def _run(self, rows: Int32) -> None:
        self._runs += 1
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
