"""Where things lie in a sequence's buffers: the block of a forward's inputs, and the rows of its caches. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foredraft.bundle.manifest import ModelInfo
from foredraft.engines.protocol import WINDOW

ALIGNMENT = 256
"""Bytes; what TensorRT asks of every address that it is given."""
MASK_WORDS = WINDOW // 32


def aligned(size: int) -> int:
    """``size`` rounded up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def input_block(rows: int) -> tuple[Mapping[str, int], int]:
    """Offsets of the inputs (all int32) of a forward of ``rows`` nodes in one block, and its size; all in bytes."""
    words = {"n_past": 1, "tokens": rows, "positions": rows, "slots": rows, "mask": rows * MASK_WORDS}
    offsets, end = {}, 0
    for name, count in words.items():
        offsets[name] = end
        end = aligned(end + 4 * count)
    return offsets, end


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """All caches of a sequence in one buffer of ``planes`` planes of ``slots`` rows; a slot's row is in every plane.

    Two planes per layer, keys and then values: [slots, kv_heads, head_dim]. With ``native`` attention it is
    [1, kv_heads, slots, head_dim], so every head has planes of its own. ``item`` is an element's size in bytes.
    """

    model: ModelInfo
    slots: int
    native: bool = False
    item: int = 2

    @property
    def planes(self) -> int:
        return 2 * self.model.layers * (self.model.kv_heads if self.native else 1)

    @property
    def row(self) -> int:
        """Bytes of a slot's row in one plane."""
        return self.item * self.model.head_dim * (1 if self.native else self.model.kv_heads)

    @property
    def plane(self) -> int:
        """Bytes from one plane to the next."""
        return aligned(self.slots * self.row) if not self.native else self.slots * self.row

    @property
    def tensor(self) -> int:
        """Bytes from one cache tensor to the next."""
        return self.plane if not self.native else aligned(self.plane * self.model.kv_heads)

    @property
    def size(self) -> int:
        return 2 * self.model.layers * self.tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one cache tensor, as its engine sees it."""
        heads, width = self.model.kv_heads, self.model.head_dim
        return (1, heads, self.slots, width) if self.native else (self.slots, heads, width)

    def tensors(self) -> dict[str, int]:
        """Offset of every cache tensor by its engine's name for it."""
        return {
            f"{which}_{layer}": (2 * layer + place) * self.tensor
            for layer in range(self.model.layers)
            for place, which in enumerate(("key", "value"))
        }

    def plane_offsets(self) -> list[int]:
        """Offset of every plane."""
        inner = self.model.kv_heads if self.native else 1
        return [start + head * self.plane for start in self.tensors().values() for head in range(inner)]
