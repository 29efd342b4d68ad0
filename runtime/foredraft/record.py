"""Lets a model answer prompts and records what its model database is made of. Joins sessions and databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from foredraft.bundle import Bundle
from foredraft.databases.sources import Document, read_prompts
from foredraft.drafters.levels.recycled import likeliest
from foredraft.session import Session


class Recording:
    """Greedy answers of one model, and what followed each of its tokens."""

    def __init__(self, bundle: Bundle, prompts: Path, max_tokens: int) -> None:
        """``prompts`` is a JSONL file. DatabaseError if it is malformed."""
        self._prompts, self._max_tokens = list(read_prompts(prompts)), max_tokens
        self._session = Session(bundle, "context")
        self._chat = bundle.chat_template is not None
        self.rows: dict[int, list[int]] = {}
        """{token: its likely next tokens, likeliest first, in the latest logits after it}."""

    def answers(self, progress: Callable[[int], None]) -> Iterator[Document]:
        """The answers as token ids, uint32 [tokens]; ``progress`` is told the tokens of each."""
        for prompt in self._prompts:
            messages = [{"role": "user", "content": prompt}] if self._chat else None
            tokens = self._session.encode(None if messages else prompt, messages=messages)
            answer = self._answer(tokens)
            progress(len(answer))
            yield np.array(answer, np.uint32)

    def _answer(self, prompt: list[int]) -> list[int]:
        last, answer = prompt[-1], list[int]()
        for chunk in self._session.stream(prompt, max_tokens=self._max_tokens):
            answer += chunk.tokens
            if chunk.round:
                for row, token in zip(chunk.round.rows, chunk.round.tokens, strict=True):
                    self.rows[last] = likeliest(row)
                    last = token
        return answer
