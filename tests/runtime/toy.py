"""A model that can be checked by eye: the next token is a hash of every token the node may see, in slot order.

It honours the engine protocol to the letter (rows at slots, n_past, mask bits, hidden states between segments), so a
wrong slot, mask, move or position anywhere in the loop changes the text.
"""

from __future__ import annotations

import numpy as np

from foredraft.engines.protocol import WINDOW, Batch

VOCAB = 13


def _mix(state: int, value: int) -> int:
    return (state * 6364136223846793005 + value + 1442695040888963407) % 2**64


class ToyEngine:
    """``segments`` in a row; the exit after each but the last agrees with the whole model on about two thirds."""

    name = "toy"
    version = "1"
    threads = 1
    trees = True
    exact = True
    lazy = True
    vocab_size = VOCAB

    def __init__(self, segments: int = 1, alphabet: int = 3) -> None:
        self.segments = segments
        self.alphabet = alphabet

    def open_sequence(self, slots: int) -> ToySequence:
        return ToySequence(self, slots)


class ToySequence:
    def __init__(self, engine: ToyEngine, slots: int) -> None:
        self.slots = slots
        self.runs: list[tuple[int, int]] = []  # (segment, slot), in the order they ran
        self._engine = engine
        self._cache = np.full((engine.segments, slots, 2), -1, np.int64)  # token, position
        self._hidden = np.zeros((engine.segments, slots), np.uint64)
        self._last = (0, np.zeros(0, np.int32))

    def run(self, segment: int, batch: Batch) -> None:
        assert (np.diff(batch.slots) > 0).all(), "slots ascend"
        self._cache[segment, batch.slots, 0] = batch.tokens
        self._cache[segment, batch.slots, 1] = batch.positions
        bits = np.unpackbits(batch.mask.view(np.uint8), axis=1, bitorder="little").astype(bool)
        for row, slot in enumerate(batch.slots.tolist()):
            self.runs.append((segment, slot))
            visible = [*range(batch.n_past), *(batch.n_past + np.flatnonzero(bits[row]))]
            seen = self._cache[segment, visible]
            assert visible[-1] == slot, "a node sees itself, and nothing after itself"
            assert (seen[:, 1] == np.arange(len(visible))).all(), "positions along a path count up from 0"
            state = 0
            for token in seen[:, 0].tolist()[-4:]:
                state = _mix(state, token)
            assert segment == 0 or int(self._hidden[segment - 1, slot]) == state, "the hidden state is this node's"
            self._hidden[segment, slot] = state
        self._last = (segment, batch.slots)

    def logits(self, rows: np.ndarray) -> np.ndarray:
        segment, slots = self._last
        logits = np.zeros((len(rows), VOCAB), np.float32)
        for row, slot in enumerate(slots[rows].tolist()):
            state = int(self._hidden[segment, slot])
            logits[row] = [((state >> (3 * j)) % 8) / 8 for j in range(VOCAB)]
            wrong = segment < self._engine.segments - 1 and (state >> (20 + segment)) % 3 == 0
            logits[row, ((state >> 40) + wrong) % self._engine.alphabet] += 2
        return logits

    def draft_logits(self, rows: np.ndarray) -> np.ndarray:
        return self.logits(rows)

    def readout(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros((len(rows), 1), np.float32)

    def move(self, source: np.ndarray, target: np.ndarray) -> None:
        assert (target <= source).all() and (np.diff(target) > 0).all()
        self._cache[:, target] = self._cache[:, source]
        self._hidden[:, target] = self._hidden[:, source]


assert WINDOW % 32 == 0
