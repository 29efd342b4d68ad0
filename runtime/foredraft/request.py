"""What is asked for: a prompt or chat messages, and how the answer is to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from foredraft.bundle import Bundle
from foredraft.errors import BundleError, RequestError
from foredraft.sampling.params import SamplingParams
from foredraft.text.messages import Message
from foredraft.text.stops import check_stops


class RequestFields(TypedDict, total=False):
    """The fields of ``Request`` besides the prompt, as keyword arguments."""

    messages: Sequence[Message] | None
    chat_template_kwargs: Mapping[str, Any] | None
    split_special_tokens: bool
    max_tokens: int | None
    sampling: SamplingParams | None
    stop: Sequence[str]


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that can be answered: the prompt's token ids, and at most how many are to be written."""

    tokens: list[int]
    limit: int
    sampling: SamplingParams
    stop: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A text or token ids to continue, or chat messages to answer; one of both."""

    prompt: str | Sequence[int] | None = None
    messages: Sequence[Message] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    """Variables that the model's chat template reads, such as ``enable_thinking``."""
    split_special_tokens: bool = False
    """Whether special tokens that are spelled in the prompt, or in any message but the system's, are plain text."""
    max_tokens: int | None = None
    """Default: what the context leaves."""
    sampling: SamplingParams | None = None
    """Default: greedy."""
    stop: Sequence[str] = ()
    """Strings that end the answer and are no part of it."""

    def check(self, bundle: Bundle, context: int) -> CheckedRequest:
        """The request as a session of ``context`` tokens answers it; RequestError if it cannot. Needs no engine."""
        tokens = self.encode(bundle)
        limit = _limit(bundle, context, len(tokens), self.max_tokens)
        return CheckedRequest(tokens, limit, self.sampling or SamplingParams(), check_stops(self.stop))

    def encode(self, bundle: Bundle) -> list[int]:
        """The token ids that prompt or messages stand for. Raises RequestError for what this model cannot take."""
        if (self.prompt is None) == (self.messages is None):
            raise RequestError("give either a prompt or messages")
        if self.chat_template_kwargs and self.messages is None:
            raise RequestError("chat_template_kwargs: only chat messages go through the template; give messages")
        info, vocab = bundle.manifest.tokenizer, bundle.manifest.model.vocab_size
        tokenizer, guard = bundle.tokenizer, bundle.tokenizer.guard if self.split_special_tokens else None
        prompt = self.prompt
        if self.messages is not None:
            prompt = self._rendered(bundle, self.messages)
        elif guard and isinstance(prompt, str):
            prompt = guard.cover(prompt)
        if isinstance(prompt, str):
            encode = tokenizer.encode_covered if guard else tokenizer.encode
            tokens = encode(prompt, add_bos=info.add_bos)
        else:
            tokens = [int(token) for token in prompt or ()]
        bad = next((token for token in tokens if not 0 <= token < vocab), None)
        if bad is not None:
            text = tokenizer.token_text(bad) if bad >= 0 else ""
            named = f" ({text!r})" if text else ""
            raise RequestError(f"token id {bad}{named} in the prompt: this model has ids 0 to {vocab - 1}")
        if not tokens and info.bos_id is not None:
            tokens = [info.bos_id]
        if not tokens:
            raise RequestError("the prompt is empty and this model has no BOS token to start from; give a prompt")
        return tokens

    def _rendered(self, bundle: Bundle, messages: Sequence[Message]) -> str:
        try:
            template = bundle.chat_template
            if template is None:
                raise RequestError(f"{bundle.path}: this model has no chat template; give a prompt instead")
            cover = bundle.tokenizer.guard.cover if self.split_special_tokens else None
            return template.render(messages, self.chat_template_kwargs, cover=cover)
        except BundleError as error:
            raise RequestError(f"{error}; give a prompt instead, this model cannot chat as it is") from error


def context_of(bundle: Bundle, context: int | None) -> int:
    """The limit of prompt and answer together, in tokens: the bundle's own, or a smaller one."""
    most = bundle.manifest.model.context
    if context is not None and not 1 <= context <= most:
        raise RequestError(f"context {context}: this bundle allows 1 to {most} tokens")
    return context or most


def _limit(bundle: Bundle, context: int, prompt: int, max_tokens: int | None) -> int:
    room = context - prompt
    if room < 0 or (room == 0 and max_tokens != 0):
        exported = bundle.manifest.model.context
        smaller = f"open the session with a larger context (up to {exported})"
        advice = smaller if context < exported else "export the model with a larger --context"
        raise RequestError(
            f"prompt of {prompt} tokens: the context holds {context} with at least one for the answer; "
            f"shorten it, or {advice}"
        )
    if max_tokens is None:
        return room
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
        raise RequestError(f"max_tokens {max_tokens!r}: expected a whole number, 0 or more")
    return min(max_tokens, room)
