"""Everything is a tree of slots: which token sits in which row, who its parent is, what it may see.

Knows nothing of models, engines or drafting.

Slots ``0 .. settled-1`` hold committed text that every node sees. Above lies the window: a tree of nodes, parents in
lower slots than their children. Committing a path closes it up onto the settled text; cutting forgets the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foredraft.engines.protocol import WINDOW, Batch

Int32 = npt.NDArray[np.int32]
_MASK_BYTES = WINDOW // 8


class Arena:
    """A struct of arrays indexed by slot.

    ``token``, ``parent`` (a slot, -1 for the first token), ``position`` (0-based place in its text) int32 [slots];
    ``stage`` int8 [slots]: how many segments have run on the node.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.token = np.zeros(slots, np.int32)
        self.parent = np.full(slots, -1, np.int32)
        self.position = np.zeros(slots, np.int32)
        self.stage = np.zeros(slots, np.int8)
        self.settled = 0
        self.used = 0
        self._sees: list[int] = []  # per window node: bit j set if it may see slot settled + j

    def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> Int32:
        """Add nodes to the window and return their slots.

        ``parents[i]`` is a slot (``settled - 1`` hangs a node under the settled text), or ``used + j`` for the j-th
        token of this same call (j < i). Raises ValueError for a parent that is neither, OverflowError if the slots or
        the window do not suffice.
        """
        first, settled = self.used, self.settled
        end = first + len(tokens)
        if end > self.slots or end - settled > WINDOW:
            raise OverflowError(
                f"{len(tokens)} nodes at slot {first} do not fit: {self.slots} slots, window of {WINDOW} at {settled}"
            )
        for slot, token, parent in zip(range(first, end), tokens, parents, strict=True):
            if not settled - 1 <= parent < slot:
                raise ValueError(f"slot {slot}: parent {parent} is not in {settled - 1}..{slot - 1}")
            self.token[slot], self.parent[slot] = token, parent
            self.position[slot] = self.position[parent] + 1 if parent >= 0 else 0
            above = self._sees[parent - settled] if parent >= settled else 0
            self._sees.append(above | 1 << (slot - settled))
        self.stage[first:end] = 0
        self.used = end
        return np.arange(first, end, dtype=np.int32)

    def batch(self, slots: Int32) -> Batch:
        """What a forward over these window slots (ascending) needs."""
        settled, sees = self.settled, self._sees
        mask = b"".join([sees[slot - settled].to_bytes(_MASK_BYTES, "little") for slot in slots.tolist()])
        return Batch(
            tokens=self.token[slots],
            positions=self.position[slots],
            slots=slots,
            n_past=settled,
            mask=np.frombuffer(mask, np.int32).reshape(len(slots), WINDOW // 32),
        )

    def path(self, slot: int) -> list[int]:
        """The window slots from the settled text down to ``slot``, both ends of the window part included."""
        steps = []
        while slot >= self.settled:
            steps.append(slot)
            slot = int(self.parent[slot])
        return steps[::-1]

    def commit(self, path: Sequence[int]) -> tuple[Int32, Int32]:
        """Settle a path that starts under the settled text; all other window nodes are forgotten.

        Returns ``(source, target)``: the rows that the engine must move for the path to close up (often none).
        """
        source = np.asarray(path, np.int32)
        target = np.arange(self.settled, self.settled + len(source), dtype=np.int32)
        expected = self.settled - 1
        for slot in source.tolist():
            if int(self.parent[slot]) != expected or slot < self.settled:
                raise ValueError(f"slot {slot} does not continue the path at slot {expected}")
            expected = slot
        for column in (self.token, self.position, self.stage):
            column[target] = column[source]
        self.parent[target] = target - 1
        self.settled = self.used = self.settled + len(source)
        self._sees.clear()
        moved = source != target
        return source[moved], target[moved]

    def copy_settled(self, other: Arena, count: int) -> None:
        """Hold the first ``count`` settled nodes of another arena and nothing else."""
        if not 0 <= count <= min(other.settled, self.slots):
            raise ValueError(f"cannot copy {count} slots of {other.settled} settled ones into {self.slots}")
        for name in ("token", "parent", "position", "stage"):
            getattr(self, name)[:count] = getattr(other, name)[:count]
        self.settled = self.used = count
        self._sees.clear()

    def drop_window(self) -> None:
        """Forget every node above the settled text."""
        self.used = self.settled
        self._sees.clear()

    def rewind(self, length: int) -> None:
        """Keep only the first ``length`` settled slots."""
        if not 0 <= length <= self.settled:
            raise ValueError(f"cannot rewind {self.settled} settled slots to {length}")
        self.settled = self.used = length
        self._sees.clear()
