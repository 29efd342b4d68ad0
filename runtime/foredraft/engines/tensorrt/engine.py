"""The engines of one bundle on one device, and their weights. Sequences share them, from any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foredraft.bundle import Bundle
from foredraft.bundle.tensor_file import arrays
from foredraft.engines.cuda.device import Device, Stream
from foredraft.engines.cuda.device_weights import DeviceWeights
from foredraft.engines.cuda.heads import Head
from foredraft.engines.cuda.layout import CacheLayout
from foredraft.engines.cuda.memory import Memory, Sizes
from foredraft.engines.cuda.native import ExactForwards
from foredraft.engines.cuda.padded import PaddedForwards
from foredraft.engines.cuda.rows import KernelRows, PlainRows, RowCopier
from foredraft.engines.cuda.sequence import CudaSequence, Forwards
from foredraft.engines.tensorrt.checks import check_tensors, check_weights
from foredraft.engines.tensorrt.libraries import library
from foredraft.engines.tensorrt.loaded import LoadedEngine
from foredraft.engines.tensorrt.match import read_images
from foredraft.errors import EngineError
from foredraft.sampling.logits import Ids
from foredraft_plugins.tree_attention import tensorrt as plugin
from foredraft_plugins.tree_attention.gpu.images import Image, PluginError

_DRAFT_IDS = "draft_head.ids"


class TensorRTEngine:
    """``engines`` is the name of one of the bundle's sets of engines, which must fit (see ``match``)."""

    trees = True
    exact = False
    lazy = False
    """Kernels are chosen by the number of rows, so a node's bits depend a little on which others share its forward."""
    threads = 1
    """That feed the device."""

    def __init__(
        self, bundle: Bundle, engines: str, device: Device, trt: Any, buckets: tuple[int, ...] | None = None
    ) -> None:
        """``trt`` is the library's Python module; ``buckets`` the numbers of rows that forwards are padded to.

        Raises EngineError for engines that cannot be loaded, or that are not what the manifest says.
        """
        self.engines = chosen = bundle.manifest.engines[engines]
        self.name = f"{chosen.library}/{chosen.precision}"
        self.version = f"{chosen.version} on {device}"
        self.model, self.device = bundle.manifest.model, device
        self.segments, self.vocab_size = len(chosen.segments), self.model.vocab_size
        self.buckets = buckets or default_buckets(chosen.decode, chosen.prefill)
        self.small = tuple(rows for rows in self.buckets if rows <= chosen.decode)
        device.activate()
        self._images = self._registered(bundle, trt)

        def loaded(path: str) -> LoadedEngine:
            return LoadedEngine(trt, library(chosen.library), device, bundle, path)

        self.loaded = [loaded(path) for path in chosen.segments]
        self.head = loaded(chosen.head)
        self.draft_head = loaded(chosen.draft_head) if chosen.draft_head else None
        self.weights, self.draft_ids = self._weighted(bundle)

    def open_sequence(self, slots: int) -> CudaSequence:
        """A fresh cache of ``slots`` rows. Raises EngineError if the engines take less, or memory is short."""
        chosen, native = self.engines, self.engines.attention == "native"
        needed = slots if native else slots + 1  # padding writes somewhere
        if needed > chosen.slots:
            raise EngineError(
                f"prompt, answer and drafts need {needed} cache rows, but these engines take {chosen.slots}; use a "
                f"--context shorter by {needed - chosen.slots} tokens, or export the model with a larger --context"
            )
        self.device.activate()
        stream = Stream(self.device)
        layout = CacheLayout(self.model, chosen.slots if native else needed, native)
        sizes = Sizes(self.model, self.segments, self.buckets[-1], self._scratch())
        memory = Memory(self.device, stream, sizes, layout, self._copier(stream))
        head = draft_head = self._over(self.head, memory)
        if self.draft_head is not None:
            draft_head = self._over(self.draft_head, memory, self.draft_ids)
        return CudaSequence(memory, self._forwards(memory), (head, draft_head), slots, owner=self)

    def _over(self, head: LoadedEngine, memory: Memory, ids: Ids | None = None) -> Head:
        capture = self.engines.attention == "plugin"
        return Head(head, memory, self.weights, self.small, capture, self.vocab_size, ids)

    def _forwards(self, memory: Memory) -> Forwards:
        chosen = self.engines
        if chosen.attention == "native":
            return ExactForwards(self.loaded, memory, self.weights, (chosen.decode, chosen.prefill))
        return PaddedForwards(self.loaded, memory, self.weights, self.buckets, self.small)

    def _copier(self, stream: Stream) -> RowCopier:
        return KernelRows(self.device, self._images, stream) if self._images else PlainRows(stream)

    def _scratch(self) -> int:
        """Bytes: engines of a sequence run one after the other, and share it."""
        return max(engine.memory for engine in self._all())

    def _all(self) -> list[LoadedEngine]:
        return [*self.loaded, self.head, *([self.draft_head] if self.draft_head else [])]

    def _registered(self, bundle: Bundle, trt: Any) -> dict[str, Image]:
        """Our kernels for this device, made known to the library, which looks for them while it loads an engine."""
        if self.engines.attention != "plugin":
            return {}
        try:
            images = read_images(bundle, self.engines)
            plugin.register(trt, images, self.device.driver)
            return images.of_device(self.device.sm)
        except PluginError as error:
            raise EngineError(f"{bundle.path / str(self.engines.plugin)}: {error}") from error

    def _weighted(self, bundle: Bundle) -> tuple[Mapping[str, int], Ids | None]:
        """Addresses of all weights that engines read, and the tokens that the draft head's logits stand for."""
        path = bundle.manifest.weights
        where = str(bundle.path / path)
        tensors = arrays(bundle.map(path), where)
        wanted = {name for engine in self._all() for name in check_tensors(engine, self.model, self.engines)}
        self._weights = DeviceWeights(self.device, tensors, wanted, where)
        for engine in self._all():
            check_weights(engine, self._weights.sizes, where)
        return self._weights.addresses, np.array(tensors[_DRAFT_IDS], np.int64) if self.draft_head else None


def default_buckets(decode: int, prefill: int) -> tuple[int, ...]:
    """Powers of two up to ``prefill``, both limits included."""
    powers = [2**n for n in range(prefill.bit_length()) if 2**n < prefill]
    return tuple(sorted({*powers, decode, prefill}))
