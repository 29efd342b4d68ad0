"""Everything that a sequence holds on the device. Nothing in it ever changes its address."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.bundle.manifest import ModelInfo
from foredraft.engines.cuda.device import Device, DeviceBuffer, Stream
from foredraft.engines.cuda.layout import CacheLayout, input_block
from foredraft.engines.cuda.rows import Indices, RowCopier, Upload
from foredraft.engines.cuda.steps import Hidden
from foredraft.engines.protocol import WINDOW

FLOAT = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """``rows``: most nodes of a forward; ``scratch``: bytes that any engine needs while it runs."""

    model: ModelInfo
    segments: int
    rows: int
    scratch: int


class Memory:
    """Caches [planes, slots] and hidden states [slots, hidden_size] float32 per boundary; tensors of a forward."""

    def __init__(self, device: Device, stream: Stream, sizes: Sizes, layout: CacheLayout, copier: RowCopier) -> None:
        self.device, self.stream, self.copier, self.layout = device, stream, copier, layout
        self.width = FLOAT * sizes.model.hidden_size
        context = f"a context of {layout.slots} slots"
        self.caches = DeviceBuffer(device, layout.size, f"the KV cache of {context}")
        self.hidden = [
            DeviceBuffer(device, layout.slots * self.width, f"the hidden states of {context}")
            for _ in range(sizes.segments - 1)
        ]
        self.scratch = DeviceBuffer(device, sizes.scratch, "scratch memory")
        # What the engines read and write: hidden states, the readout of a batch and of a part, and rows for a head.
        self.read, self.written, self.readout, self.part, self.picked = (
            DeviceBuffer(device, sizes.rows * self.width, "a forward's hidden states") for _ in range(5)
        )
        for buffer in (self.caches, *self.hidden, self.read, self.written, self.readout):
            # What a masked row holds must not be a NaN: nothing times NaN is NaN.
            stream.zero(buffer)
        # One block each: while the device still reads one segment's inputs, the next one's can be written.
        self.uploads = [
            Upload(device, stream, input_block(sizes.rows)[1], "a forward's inputs") for _ in range(sizes.segments)
        ]
        self.picks = Upload(device, stream, FLOAT * sizes.rows, "row numbers")
        self.indices = Indices(device, stream, WINDOW)

    def tensors(self) -> dict[str, int]:
        """Addresses of what engines read and write by name; a cache's output is the cache itself."""
        caches = {name: self.caches.address + offset for name, offset in self.layout.tensors().items()}
        outputs = {f"{name}_out": address for name, address in caches.items()}
        own = {"hidden": self.read, "hidden_out": self.written, "readout": self.readout}
        return {**caches, **outputs, **{name: buffer.address for name, buffer in own.items()}}

    def hidden_of(self, segment: int) -> Hidden:
        """How hidden states get into a segment and out of it."""
        last = len(self.hidden)
        return Hidden(
            width=self.width,
            before=self.hidden[segment - 1].address if segment else None,
            read=self.read.address,
            written=self.written.address,
            after=self.hidden[segment].address if segment < last else None,
        )
