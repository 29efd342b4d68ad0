"""Rows of device memory from one place to another: by a kernel that reads its indices there, or copy by copy.

The kernel comes with the attention plugin, and can be captured in a CUDA graph. Both put work into a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from foredraft.engines.cuda.device import Device, DeviceBuffer, PinnedBuffer, Stream
from foredraft.engines.cuda.layout import CacheLayout, aligned
from foredraft.engines.protocol import Int32
from foredraft.errors import EngineError
from foredraft_plugins.tree_attention.gpu.driver import Kernels
from foredraft_plugins.tree_attention.gpu.images import Image, PluginError
from foredraft_plugins.tree_attention.gpu.launches import Launch, row_copy

KERNEL = "copy-rows"


class Upload:
    """A block of inputs: filled in pinned memory, ``host``, and copied to the device in one piece, at ``address``."""

    def __init__(self, device: Device, stream: Stream, size: int, what: str) -> None:
        self._pinned, self._buffer, self._stream = PinnedBuffer(device, size), DeviceBuffer(device, size, what), stream
        self.host, self.address = self._pinned.array, self._buffer.address
        self._sent = -1

    def ready(self) -> None:
        """Wait until the device has what was sent last; call before filling it again."""
        if self._sent == self._stream.waits:
            self._stream.wait()

    def send(self, size: int) -> None:
        """Put the copy of the first ``size`` bytes into the stream."""
        self._stream.to_device(self.address, self._pinned.address, size)

    def sent(self) -> None:
        """Must be called once ``send`` is in the stream, be it as part of a graph."""
        self._sent = self._stream.waits


@dataclass(frozen=True, slots=True)
class Index:
    """Row numbers int32, on the device and on the host."""

    address: int
    host: Int32


class RowCopier(Protocol):
    """Sizes in bytes."""

    def gather(self, target: int, source: int, index: Index, rows: int, width: int) -> None:
        """target[i] = source[index[i]] for i < rows."""
        ...

    def scatter(self, target: int, source: int, index: Index, rows: int, width: int) -> None:
        """target[index[i]] = source[i] for i < rows."""
        ...

    def move(self, start: int, layout: CacheLayout, source: Index, target: Index) -> None:
        """In every plane of a cache, row source[i] to target[i]; both ascend, and no target lies above its source."""
        ...


class KernelRows:
    """By our kernel, one launch each."""

    def __init__(self, device: Device, images: dict[str, Image], stream: Stream) -> None:
        self._stream = stream
        try:
            self._kernels = Kernels(device.driver, {KERNEL: images[KERNEL]})
        except PluginError as error:
            raise EngineError(str(error)) from error

    def gather(self, target: int, source: int, index: Index, rows: int, width: int) -> None:
        self._put(row_copy(source, target, rows=rows, width=width // 4, source_rows=index.address))

    def scatter(self, target: int, source: int, index: Index, rows: int, width: int) -> None:
        self._put(row_copy(source, target, rows=rows, width=width // 4, target_rows=index.address))

    def move(self, start: int, layout: CacheLayout, source: Index, target: Index) -> None:
        launch = row_copy(
            start,
            start,
            rows=len(source.host),
            width=layout.row // 4,
            source_rows=source.address,
            target_rows=target.address,
            planes=layout.planes,
            source_stride=layout.plane // 4,
            target_stride=layout.plane // 4,
        )
        self._put(launch)

    def _put(self, launch: Launch) -> None:
        try:
            self._kernels.launch(launch, self._stream.handle)
        except PluginError as error:
            raise EngineError(str(error)) from error


class PlainRows:
    """Copy by copy, for engines that bring no kernel of ours. The host's indices count."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def gather(self, target: int, source: int, index: Index, rows: int, width: int) -> None:
        for place, row, count in _runs(index.host[:rows]):
            self._stream.copy(target + place * width, source + row * width, count * width)

    def scatter(self, target: int, source: int, index: Index, rows: int, width: int) -> None:
        for place, row, count in _runs(index.host[:rows]):
            self._stream.copy(target + row * width, source + place * width, count * width)

    def move(self, start: int, layout: CacheLayout, source: Index, target: Index) -> None:
        # Ascending, in the stream's order: no row is overwritten before it has been copied.
        for row, to in zip(source.host.tolist(), target.host.tolist(), strict=True):
            for plane in layout.plane_offsets():
                at = start + plane
                self._stream.copy(at + to * layout.row, at + row * layout.row, layout.row)


def _runs(rows: Int32) -> Iterator[tuple[int, int, int]]:
    """Rows that follow one another: ``(place of the first, its row, how many)``."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    for start, end in pairwise([0, *cuts.tolist(), len(rows)]):
        yield start, int(rows[start]), end - start


class Indices:
    """Up to ``capacity`` row numbers, sent to the device ahead of a copy."""

    def __init__(self, device: Device, stream: Stream, capacity: int) -> None:
        self._upload = Upload(device, stream, 2 * aligned(4 * capacity), "row numbers")
        self._second = aligned(4 * capacity)

    def send(self, first: Int32, second: Int32) -> tuple[Index, Index]:
        """Two arrays of the same length, on the device before what is put into the stream next."""
        self._upload.ready()
        places = []
        for start, values in ((0, first), (self._second, second)):
            host = self._upload.host[start : start + 4 * len(values)].view(np.int32)
            host[:] = values
            places.append(Index(self._upload.address + start, host))
        self._upload.send(self._second + 4 * len(second))
        self._upload.sent()
        return places[0], places[1]
