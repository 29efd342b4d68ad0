"""A bundle's weights on the device: every tensor once, wherever engines ask for it by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from foredraft.engines.cuda.device import Device, DeviceBuffer, PinnedBuffer, Stream
from foredraft.engines.cuda.layout import aligned
from foredraft.engines.tensorrt.messages import patience
from foredraft.errors import EngineError

Arrays = Mapping[str, npt.NDArray[Any]]
CHUNK = 32 << 20
"""Bytes that are copied at a time, through pinned memory."""


class DeviceWeights:
    """``addresses`` and ``sizes`` (bytes) of tensors by name; nothing else of the weights file is on the device."""

    def __init__(self, device: Device, arrays: Arrays, wanted: Collection[str], where: str) -> None:
        """Copies the ``wanted`` of the ``arrays``, which may lie in a mapped file.

        Raises EngineError naming the file ``where`` for a tensor that it does not hold.
        """
        if missing := sorted(set(wanted) - set(arrays)):
            raise EngineError(f"{where}: has no tensor {missing[0]!r}, which an engine reads; build the engines again")
        self.sizes = {name: arrays[name].nbytes for name in sorted(wanted)}
        offsets, total = {}, 0
        for name, size in self.sizes.items():
            offsets[name] = total
            total += aligned(size)
        self._buffer = DeviceBuffer(device, total, "the weights")
        self.addresses = {name: self._buffer.address + offset for name, offset in offsets.items()}
        _copy(device, {self.addresses[name]: arrays[name] for name in self.sizes})


def _copy(device: Device, arrays: Mapping[int, npt.NDArray[Any]]) -> None:
    """Each array to its device address."""
    total, done = sum(array.nbytes for array in arrays.values()), 0
    stream, staging = Stream(device), PinnedBuffer(device, min(CHUNK, max(total, 1)))
    with patience(lambda: f"weights: {done // 10**6} of {total // 10**6} MB are on the device"):
        for address, array in arrays.items():
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for start in range(0, len(flat), CHUNK):
                part = flat[start : start + CHUNK]
                staging.array[: len(part)] = part
                stream.to_device(address + start, staging.address, len(part))
                stream.wait()  # before the staging memory is filled again
                done += len(part)
