"""From a checked request to the answers that it asks for. Knows nothing of HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foredraft.request import Request
from foredraft.sampling.params import SamplingParams
from foredraft.server.api_errors import refuse
from foredraft.server.fields import NEEDS
from foredraft.text.stops import check_stops

COMPLETION_TOKENS = 16
"""Default of ``max_tokens`` for /v1/completions, as OpenAI has it."""


@dataclass(frozen=True, slots=True)
class Call:
    """What an HTTP request asks for: each of ``requests`` is answered ``n`` times, the i-th time with seed + i."""

    chat: bool
    requests: list[Request]
    n: int
    top_logprobs: int | None
    """None: no log probabilities; otherwise how many alternatives beside the token's own."""
    stream: bool
    include_usage: bool
    trace: bool
    user: str | None

    @property
    def seed(self) -> int:
        """Of the first answer."""
        sampling = self.requests[0].sampling
        return sampling.seed if sampling else 0


def chat_call(fields: Mapping[str, Any]) -> Call:
    """From the fields of /v1/chat/completions."""
    limits = [fields[name] for name in ("max_tokens", "max_completion_tokens") if name in fields]
    request = Request(
        messages=fields["messages"],
        chat_template_kwargs=fields.get("chat_template_kwargs", {}),
        max_tokens=min(limits, default=None),
        **_shared(fields),
    )
    return _call(fields, True, [request], fields.get("top_logprobs", 0) if fields.get("logprobs") else None)


def completion_call(fields: Mapping[str, Any]) -> Call:
    """From the fields of /v1/completions."""
    prompt = fields["prompt"]
    several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    shared = _shared(fields)
    limit = fields.get("max_tokens", COMPLETION_TOKENS)
    requests = [Request(one, max_tokens=limit, **shared) for one in (prompt if several else [prompt])]
    return _call(fields, False, requests, fields.get("logprobs"))


def _call(fields: Mapping[str, Any], chat: bool, requests: list[Request], top_logprobs: int | None) -> Call:
    for name, (other, nothing) in NEEDS.items():
        if name in fields and not fields.get(other) and fields[name] not in nothing:
            raise refuse(name, f"needs {other}: true")
    stream = fields.get("stream", False)
    trace = fields.get("foredraft", {}).get("trace", False)
    if trace and not stream:
        raise refuse("foredraft.trace", "needs stream: true")
    return Call(
        chat=chat,
        requests=requests,
        n=fields.get("n", 1),
        top_logprobs=top_logprobs,
        stream=stream,
        include_usage=fields.get("stream_options", {}).get("include_usage", False),
        trace=trace,
        user=fields.get("user"),
    )


def _shared(fields: Mapping[str, Any]) -> dict[str, Any]:
    stop = fields.get("stop", [])
    return {
        "sampling": _sampling(fields),
        "stop": check_stops([stop] if isinstance(stop, str) else stop),
        "split_special_tokens": fields.get("split_special_tokens", False),
    }


def _sampling(fields: Mapping[str, Any]) -> SamplingParams:
    """OpenAI's defaults: temperature 1, and a seed of its own for each request that has none."""
    values = {name: fields[name] for name in SamplingParams.__dataclass_fields__ if name in fields}
    return SamplingParams(**{"temperature": 1.0, "seed": secrets.randbits(53)} | values)
