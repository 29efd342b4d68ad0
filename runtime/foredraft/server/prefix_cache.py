"""Sequences that remember the texts they last wrote, so that a prompt with a common beginning need not run again.

A sequence whose text is the beginning of the prompt is taken over. Where it would lose much of its own text (another
conversation with the same system prompt, say), the common rows are copied to another sequence instead, and both
texts stay. Used by one thread; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.bundle.manifest import Manifest
from foredraft.server.logprobs import LogitsTap
from foredraft.session import Session

MAX_KEPT = 32
"""Finished texts that are remembered, whatever their size."""
_SMALL_LOSS = 32
"""A text that loses no more tokens than this is taken over rather than copied."""
_WORTH_COPYING = 16
"""Fewer common tokens are run again: that is as fast."""
_LOGITS_ROWS = 32
"""Rows of logits that a sequence's rounds use, more or less."""


@dataclass(slots=True, eq=False)
class Slot:
    """A sequence and how many of its rows have ever been written: that many take up memory."""

    session: Session
    tap: LogitsTap
    touched: int = 0

    @property
    def settled(self) -> int:
        return self.session.chain.arena.settled

    def common(self, tokens: Sequence[int]) -> int:
        """How many tokens at the beginning of a prompt need not run; its last one always does."""
        arena = self.session.chain.arena
        count = min(arena.settled, len(tokens) - 1)
        same = arena.token[:count] == np.asarray(tokens[:count], np.int32)
        return count if same.all() else int(same.argmin())


class PrefixCache:
    """Hands out sequences, the best one for each prompt, and keeps up to ``limit`` bytes of idle ones."""

    def __init__(self, open_session: Callable[[], Session], manifest: Manifest, limit: int) -> None:
        model = manifest.model
        self._open_session = open_session
        self._limit = limit
        self._row_bytes = 8 * model.layers * model.kv_heads * model.head_dim
        self._row_bytes += 4 * model.hidden_size * (len(manifest.segments) - 1)
        self._fixed_bytes = 4 * _LOGITS_ROWS * model.vocab_size
        self._idle: list[Slot] = []  # the least recently used first
        self._busy: list[Slot] = []

    @property
    def kept_tokens(self) -> int:
        """Tokens of idle sequences."""
        return sum(slot.settled for slot in self._idle)

    @property
    def kept_bytes(self) -> int:
        """An estimate of the memory of idle sequences."""
        return sum(self._bytes(slot) for slot in self._idle)

    def take(self, tokens: Sequence[int]) -> tuple[Slot, int]:
        """A sequence that holds a beginning of the prompt and nothing else, and how many tokens that is."""
        slot, common = self._choose(tokens)
        if slot in self._idle:
            self._idle.remove(slot)
        self._busy.append(slot)
        slot.session.chain.arena.rewind(common)
        return slot, common

    def give_back(self, slot: Slot) -> None:
        """Remember a text that is finished, or was given up between rounds; forget the oldest beyond the limit."""
        self._busy.remove(slot)
        slot.tap.listen(None)
        slot.touched = max(slot.touched, slot.settled)
        self._idle.append(slot)
        while self._idle and (self.kept_bytes > self._limit or len(self._idle) > MAX_KEPT):
            del self._idle[0]

    def drop(self, slot: Slot) -> None:
        """Something went wrong on this sequence: nothing of it is used again."""
        self._busy.remove(slot)

    def _choose(self, tokens: Sequence[int]) -> tuple[Slot, int]:
        if not self._limit:
            return self._open(), 0
        best = max([*self._idle, *self._busy], key=lambda slot: slot.common(tokens), default=None)
        common = best.common(tokens) if best else 0
        if best in self._idle and best.settled - common <= _SMALL_LOSS and common:
            return best, common
        if best in self._idle and common >= _WORTH_COPYING:  # it was of use: not the next to be forgotten
            self._idle.append(self._idle.pop(self._idle.index(best)))
        target = self._spare(len(tokens))
        own = target.common(tokens)
        if best is not None and best is not target and common - own >= _WORTH_COPYING:
            target.session.chain.copy_settled(best.session.chain, common)
            return target, common
        return target, own

    def _spare(self, rows: int) -> Slot:
        """A new sequence, or the least recently used one (whose memory is already there) if the cache would get too
        large.
        """
        after = self.kept_bytes + self._fixed_bytes + rows * self._row_bytes
        if self._idle and (after > self._limit or len(self._idle) >= MAX_KEPT):
            return self._idle[0]
        return self._open()

    def _open(self) -> Slot:
        session = self._open_session()
        tap = LogitsTap(session.drafter)
        session.drafter = tap
        return Slot(session, tap)

    def _bytes(self, slot: Slot) -> int:
        return self._fixed_bytes + slot.touched * self._row_bytes
