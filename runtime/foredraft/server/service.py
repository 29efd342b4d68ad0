"""The model behind the endpoints: bundle, engine and scheduler, opened once. Knows nothing of HTTP."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace

from foredraft.bundle import Bundle
from foredraft.errors import BundleError
from foredraft.request import CheckedRequest, Request
from foredraft.server.api_errors import ApiError
from foredraft.server.calls import Call
from foredraft.server.jobs import Emit, Job
from foredraft.server.metrics import Metrics
from foredraft.server.prefix_cache import PrefixCache
from foredraft.server.scheduler import RequestScheduler
from foredraft.server.settings import Settings
from foredraft.session import Session
from foredraft.text.template_probe import Traits
from foredraft.text.token_texts import TokenTexts
from foredraft.tracing import Tracer


class Service:
    """Opens the bundle and loads the engine; raises ForedraftError if that cannot be done."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bundle = Bundle.open(settings.bundle)
        self.model_name = settings.model_name or self.bundle.manifest.model.name
        self.created = int(time.time())
        self.metrics = Metrics()
        first = Session(self.bundle, **settings.session)
        self._engine, self._level_names = first.engine, first.level_names
        self._opened = [first]
        self.context = first.context
        """The limit of prompt and answer together, in tokens."""
        self._texts = TokenTexts(self.bundle.tokenizer)
        self.traits = _traits(self.bundle)
        cache = PrefixCache(self._open_session, self.bundle.manifest, settings.cache_mb * 2**20)
        self.scheduler = RequestScheduler(cache, self.metrics, settings.sequences, settings.queue)

    @property
    def texts(self) -> TokenTexts:
        """What single tokens read like."""
        return self._texts

    def check_model(self, name: str) -> None:
        """Raises ApiError (404) for the name of another model."""
        if name != self.model_name:
            message = f"model {name[:80]!r} is not served here, only {self.model_name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def check(self, call: Call) -> list[CheckedRequest]:
        """All requests of a call. Raises RequestError where a session would refuse one. Thread-safe."""
        return [self._with_defaults(request).check(self.bundle, self.context) for request in call.requests]

    def jobs(self, call: Call, requests: list[CheckedRequest], emitter: Callable[[int], Emit]) -> list[Job]:
        """One job for each answer, those to the same request next to each other."""
        deadline = time.monotonic() + self.settings.timeout
        return [
            Job(_later(request, i), call.top_logprobs, emitter(place * call.n + i), deadline)
            for place, request in enumerate(requests)
            for i in range(call.n)
        ]

    def tracer(self) -> Tracer:
        """Describes the rounds of one answer."""
        return Tracer(self.bundle.tokenizer, self._level_names)

    def close(self) -> None:
        """End the scheduler; answers that are still being written end with an error."""
        self.scheduler.close()

    def _with_defaults(self, request: Request) -> Request:
        variables = request.chat_template_kwargs
        if request.messages is not None:
            variables = {**self.settings.chat_template_kwargs, **(variables or {})}
        split = request.split_special_tokens or self.settings.split_special_tokens
        return replace(request, chat_template_kwargs=variables, split_special_tokens=split)

    def _open_session(self) -> Session:
        """The one that was opened first, then others on its engine."""
        return (
            self._opened.pop() if self._opened else Session(self.bundle, **self.settings.session, engine=self._engine)
        )


def _later(request: CheckedRequest, index: int) -> CheckedRequest:
    """The request for its ``index``-th answer."""
    seed = (request.sampling.seed + index) % 2**64
    return replace(request, sampling=replace(request.sampling, seed=seed))


def _traits(bundle: Bundle) -> Traits | None:
    """Those of the chat template; None without one that works, which is said once."""
    try:
        return bundle.chat_template.traits if bundle.chat_template else None
    except BundleError as error:
        logging.getLogger("foredraft.server").warning("%s; every chat will be refused, completions work", error)
        return None


def threads_of_worker(workers: int) -> int:
    """Threads for the engine of each of several worker processes that share this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)
