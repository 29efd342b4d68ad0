"""Sequences that remember the texts they last wrote, so that a prompt with a common beginning need not run again.

A sequence whose text is the beginning of the prompt is taken over. Where it would lose much of its own text (another
conversation with the same system prompt, say), the common rows are copied to another sequence instead, and both
texts stay. Rows that are written for the first time cost many times what a copy costs, since the system has to find
memory for them: so that is done ahead, in small steps. Used by one thread; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.bundle.manifest import Manifest
from foredraft.session import Session

MAX_KEPT = 32
"""Finished texts that are remembered, whatever their size."""
ENOUGH = 8
"""With this many, the oldest text gives way where a prompt would otherwise wait for memory from the system."""
AHEAD_BYTES = 32 << 20
"""The most memory that is taken before a prompt needs it."""
_STEP_BYTES = 1 << 20
"""How much of it at a time: about a millisecond."""
_SMALL_LOSS = 32
"""A text that loses no more tokens than this is taken over rather than copied."""
_WORTH_COPYING = 16
"""Fewer common tokens are run again: that is as fast."""
_LOGITS_ROWS = 32
"""Rows of logits that a sequence's rounds use, more or less."""


@dataclass(slots=True, eq=False)
class CachedSequence:
    """A sequence and how many of its rows take up memory: those that were ever written, or all of them."""

    session: Session
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
        self._step = max(1, _STEP_BYTES // self._row_bytes)
        self._ahead: CachedSequence | None = None  # holds no text, only memory
        self._idle: list[CachedSequence] = []  # the least recently used first
        self._busy: list[CachedSequence] = []

    @property
    def kept_tokens(self) -> int:
        """Tokens of idle sequences."""
        return sum(sequence.settled for sequence in self._idle)

    @property
    def kept_bytes(self) -> int:
        """An estimate of the memory of idle sequences."""
        return sum(self._bytes(sequence) for sequence in self._unused())

    def take(self, tokens: Sequence[int]) -> tuple[CachedSequence, int]:
        """A sequence that holds a beginning of the prompt and nothing else, and how many tokens that is."""
        sequence, common = self._choose(tokens)
        if sequence in self._idle:
            self._idle.remove(sequence)
        self._busy.append(sequence)
        sequence.session.chain.arena.rewind(common)
        return sequence, common

    def give_back(self, sequence: CachedSequence) -> None:
        """Remember a text that is finished, or was given up between rounds; forget the oldest beyond the limit."""
        self._busy.remove(sequence)
        sequence.touched = max(sequence.touched, sequence.settled)
        self._idle.append(sequence)
        while self._idle and (self.kept_bytes > self._limit or len(self._idle) > MAX_KEPT):
            del self._idle[0]

    def drop(self, sequence: CachedSequence) -> None:
        """Something went wrong on this sequence: nothing of it is used again."""
        self._busy.remove(sequence)

    def prepare(self) -> bool:
        """Take a little more memory for a text to come; False if there is enough, or no room for more."""
        rows, done = self._rows_ahead(), self._ahead.touched if self._ahead else 0
        if done >= rows:
            return False
        if self._ahead is None:
            if not self._has_room(rows, [*self._idle, *self._busy]):
                return False
            self._ahead = self._open()
        end = min(done + self._step, rows)
        self._ahead.session.chain.touch(done, end)
        self._ahead.touched = end
        return True

    def _choose(self, tokens: Sequence[int]) -> tuple[CachedSequence, int]:
        if not self._limit:
            return self._open(), 0
        best = max([*self._idle, *self._busy], key=lambda sequence: sequence.common(tokens), default=None)
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

    def _spare(self, rows: int) -> CachedSequence:
        """The sequence whose memory was taken ahead; where it is not ready, the least recently used one, or a new one
        while there are few texts and there is room.
        """
        ahead = self._ahead
        ready = ahead is not None and ahead.touched >= min(rows, self._rows_ahead())
        enough = len(self._idle) >= ENOUGH or not self._has_room(rows, self._unused())
        if self._idle and enough and not ready:
            return self._idle[0]
        self._ahead = None
        return ahead or self._open()

    def _rows_ahead(self) -> int:
        """As many as the longest text has that is remembered: the next one may be as long."""
        return min(AHEAD_BYTES // self._row_bytes, max((sequence.settled for sequence in self._idle), default=0))

    def _has_room(self, rows: int, beside: Sequence[CachedSequence]) -> bool:
        """Whether the cache may hold another text of so many rows beside these."""
        taken = sum(self._bytes(sequence) for sequence in beside) + self._fixed_bytes + rows * self._row_bytes
        return taken <= self._limit and len(beside) < MAX_KEPT

    def _unused(self) -> list[CachedSequence]:
        return [*self._idle, self._ahead] if self._ahead else self._idle

    def _open(self) -> CachedSequence:
        session = self._open_session()
        return CachedSequence(session, 0 if session.engine.lazy else session.chain.arena.slots)

    def _bytes(self, sequence: CachedSequence) -> int:
        return self._fixed_bytes + sequence.touched * self._row_bytes
