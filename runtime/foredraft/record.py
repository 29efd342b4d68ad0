"""Lets a model answer prompts and records what its model database is made of. Joins sessions and databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from foredraft import drafters
from foredraft.bundle import Bundle
from foredraft.databases.sources import Document, read_prompts
from foredraft.drafters.recorder import Recorder
from foredraft.session import Session


class Recording:
    """Greedy answers of one model, and what followed each of its tokens."""

    def __init__(self, bundle: Bundle, prompts: Path, max_tokens: int) -> None:
        """``prompts`` is a JSONL file. DatabaseError if it is malformed."""
        self._prompts, self._max_tokens = list(read_prompts(prompts)), max_tokens
        self._recorder = Recorder(drafters.create("context", vocab_size=bundle.manifest.model.vocab_size))
        self._session = Session(bundle, self._recorder)
        self._chat = bundle.chat_template is not None

    @property
    def rows(self) -> dict[int, list[int]]:
        """{token: its likely next tokens, likeliest first}."""
        return self._recorder.rows

    def answers(self, progress: Callable[[int], None]) -> Iterator[Document]:
        """The answers as token ids, uint32 [tokens]; ``progress`` is told the tokens of each."""
        for prompt in self._prompts:
            asked = {"messages": [{"role": "user", "content": prompt}]} if self._chat else {"prompt": prompt}
            result = self._session.generate(max_tokens=self._max_tokens, **asked)
            progress(len(result.tokens))
            yield np.array(result.tokens, np.uint32)
