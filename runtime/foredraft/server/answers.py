"""Answers in OpenAI's words: chat completions and completions, whole and in pieces. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from foredraft.result import Result
from foredraft.server.jobs import AnswerPiece
from foredraft.server.logprobs import TokenLogprob
from foredraft.text.token_texts import TokenTexts

_REASONS = {"eos": "stop", "stop": "stop", "length": "length"}


@dataclass(slots=True)
class AnswerChoice:
    """One answer as far as it has come."""

    index: int
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    result: Result | None = None

    def add(self, piece: AnswerPiece) -> None:
        """Append what a round wrote."""
        self.text += piece.text
        self.logprobs += piece.logprobs
        self.offsets += piece.offsets
        self.result = piece.result

    @property
    def finish_reason(self) -> str | None:
        return _REASONS[self.result.finish_reason] if self.result else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What all parts of one answer share."""

    id: str
    model: str
    created: int
    chat: bool
    logprobs: bool
    texts: TokenTexts
    include_usage: bool
    """Whether a stream ends with its usage; its other chunks then say null."""

    def whole(self, choices: Sequence[AnswerChoice], answers_per_prompt: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        items = []
        for choice in choices:
            content = {"message": {"role": "assistant", "content": choice.text, "refusal": None}}
            item: dict[str, Any] = {"index": choice.index, **(content if self.chat else {"text": choice.text})}
            items.append(item | self._end(choice.finish_reason, choice.logprobs, choice.offsets))
        body = self._head("chat.completion" if self.chat else "text_completion")
        return body | {"choices": items, "usage": usage(choices, answers_per_prompt)}

    def opening(self, index: int) -> dict[str, Any]:
        """The first chunk of a chat answer: who speaks."""
        item = {"index": index, "delta": {"role": "assistant", "content": ""}}
        return self._chunk([item | self._end(None, (), ())])

    def chunk(self, choice: AnswerChoice, piece: AnswerPiece) -> dict[str, Any]:
        """What a round wrote."""
        if self.chat:
            item: dict[str, Any] = {"index": choice.index, "delta": {"content": piece.text} if piece.text else {}}
        else:
            item = {"index": choice.index, "text": piece.text}
        return self._chunk([item | self._end(choice.finish_reason, piece.logprobs, piece.offsets)])

    def closing(self, choices: Sequence[AnswerChoice], answers_per_prompt: int) -> dict[str, Any]:
        """The chunk with the usage, which has no choices."""
        return self._chunk([]) | {"usage": usage(choices, answers_per_prompt)}

    def _chunk(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {"usage": None} if self.include_usage else {}
        return self._head("chat.completion.chunk" if self.chat else "text_completion") | {"choices": items} | usage

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _end(self, reason: str | None, logprobs: Sequence[TokenLogprob], offsets: Sequence[int]) -> dict[str, Any]:
        values: dict[str, Any] | None = None
        if self.logprobs:
            values = self._chat_logprobs(logprobs) if self.chat else self._completion_logprobs(logprobs, offsets)
        return {"logprobs": values, "finish_reason": reason}

    def _chat_logprobs(self, items: Sequence[TokenLogprob]) -> dict[str, Any]:
        def entry(token: int, logprob: float) -> dict[str, Any]:
            text = self.texts.text(token)
            return {"token": text, "logprob": logprob, "bytes": self.texts.bytes(token)}

        def full(item: TokenLogprob) -> dict[str, Any]:
            top = [entry(token, logprob) for token, logprob in item.top]
            return entry(item.token, item.logprob) | {"top_logprobs": top}

        return {"content": [full(item) for item in items], "refusal": None}

    def _completion_logprobs(self, items: Sequence[TokenLogprob], offsets: Sequence[int]) -> dict[str, Any]:
        return {
            "tokens": [self.texts.text(item.token) for item in items],
            "token_logprobs": [item.logprob for item in items],
            "top_logprobs": [{self.texts.text(token): logprob for token, logprob in item.top} for item in items],
            "text_offset": list(offsets),
        }


def usage(choices: Sequence[AnswerChoice], answers_per_prompt: int) -> dict[str, Any]:
    """Token counts of finished answers; a prompt that was answered several times counts once."""
    stats = [choice.result.stats for choice in choices if choice.result]
    prompts = stats[::answers_per_prompt]
    prompt, written = sum(s.prompt_tokens for s in prompts), sum(s.tokens for s in stats)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(s.cached_tokens for s in prompts)},
    }
