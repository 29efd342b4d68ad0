"""From a checked request to the answers that it asks for. Knows nothing of HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from foredraft.sampling.params import SamplingParams
from foredraft.server.api_errors import refuse
from foredraft.server.fields import NEEDS
from foredraft.text.stops import check_stops

COMPLETION_TOKENS = 16
"""Default of ``max_tokens`` for /v1/completions, as OpenAI has it."""
Prompt = str | list[int] | list[dict[str, Any]]
"""A text, token ids, or chat messages."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request in our own terms. ``prompts`` are written ``n`` times each, the i-th time with seed + i."""

    chat: bool
    prompts: list[Prompt]
    n: int
    sampling: SamplingParams
    max_tokens: int | None
    stop: tuple[str, ...]
    top_logprobs: int | None
    """None: no log probabilities; otherwise how many alternatives beside the token's own."""
    stream: bool
    include_usage: bool
    trace: bool
    user: str | None
    chat_template_kwargs: dict[str, Any]
    split_special_tokens: bool

    def sampling_of(self, index: int) -> SamplingParams:
        """How the ``index``-th answer to a prompt is sampled."""
        return replace(self.sampling, seed=(self.sampling.seed + index) % 2**64)


def chat_call(fields: Mapping[str, Any]) -> Call:
    """From the fields of /v1/chat/completions."""
    limits = [fields[name] for name in ("max_tokens", "max_completion_tokens") if name in fields]
    return _call(
        fields,
        chat=True,
        prompts=[fields["messages"]],
        max_tokens=min(limits, default=None),
        top_logprobs=fields.get("top_logprobs", 0) if fields.get("logprobs") else None,
    )


def completion_call(fields: Mapping[str, Any]) -> Call:
    """From the fields of /v1/completions."""
    prompt = fields["prompt"]
    several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    return _call(
        fields,
        chat=False,
        prompts=prompt if several else [prompt],
        max_tokens=fields.get("max_tokens", COMPLETION_TOKENS),
        top_logprobs=fields.get("logprobs"),
    )


def _call(
    fields: Mapping[str, Any],
    chat: bool,
    prompts: list[Prompt],
    max_tokens: int | None,
    top_logprobs: int | None,
) -> Call:
    for name, (other, nothing) in NEEDS.items():
        if name in fields and not fields.get(other) and fields[name] not in nothing:
            raise refuse(name, f"needs {other}: true")
    stream = fields.get("stream", False)
    trace = fields.get("foredraft", {}).get("trace", False)
    if trace and not stream:
        raise refuse("foredraft.trace", "needs stream: true")
    return Call(
        chat=chat,
        prompts=prompts,
        n=fields.get("n", 1),
        sampling=_sampling(fields),
        max_tokens=max_tokens,
        stop=_stops(fields.get("stop", [])),
        top_logprobs=top_logprobs,
        stream=stream,
        include_usage=fields.get("stream_options", {}).get("include_usage", False),
        trace=trace,
        user=fields.get("user"),
        chat_template_kwargs=fields.get("chat_template_kwargs", {}),
        split_special_tokens=fields.get("split_special_tokens", False),
    )


def _sampling(fields: Mapping[str, Any]) -> SamplingParams:
    """OpenAI's defaults: temperature 1, and a seed of its own for each request that has none."""
    values = {name: fields[name] for name in SamplingParams.__dataclass_fields__ if name in fields}
    return SamplingParams(**{"temperature": 1.0, "seed": secrets.randbits(53)} | values)


def _stops(stop: str | list[str]) -> tuple[str, ...]:
    return check_stops([stop] if isinstance(stop, str) else stop)
