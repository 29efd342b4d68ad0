"""The model behind the endpoints: bundle, engine and scheduler, opened once. Knows nothing of HTTP."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from foredraft.bundle import Bundle
from foredraft.errors import BundleError
from foredraft.request import Request
from foredraft.server.api_errors import ApiError
from foredraft.server.calls import Call, Prompt
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
        self._front = Session(self.bundle, **settings.session)  # checks requests and never writes
        self._texts = TokenTexts(self.bundle.tokenizer)
        self.traits = _traits(self.bundle)
        cache = PrefixCache(self._open_session, self.bundle.manifest, settings.cache_mb * 2**20)
        self.scheduler = RequestScheduler(cache, self.metrics, settings.sequences, settings.queue)

    @property
    def context(self) -> int:
        """The limit of prompt and answer together, in tokens."""
        return self._front.context

    @property
    def texts(self) -> TokenTexts:
        """What single tokens read like."""
        return self._texts

    def check_model(self, name: str) -> None:
        """Raises ApiError (404) for the name of another model."""
        if name != self.model_name:
            message = f"model {name[:80]!r} is not served here, only {self.model_name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def encode(self, call: Call) -> list[list[int]]:
        """Token ids of all prompts. Raises RequestError where a session would refuse the request. Thread-safe."""
        prompts = [self._request(prompt, call).encode(self.bundle) for prompt in call.prompts]
        for tokens in prompts:
            self._front.stream(tokens, max_tokens=call.max_tokens, sampling=call.sampling, stop=call.stop)
        return prompts

    def jobs(self, call: Call, prompts: list[list[int]], emitter: Callable[[int], Emit]) -> list[Job]:
        """One job for each answer, those to the same prompt next to each other."""
        deadline = time.monotonic() + self.settings.timeout
        return [
            Job(
                tokens=tokens,
                max_tokens=call.max_tokens,
                sampling=call.sampling_of(i),
                stop=call.stop,
                top_logprobs=call.top_logprobs,
                emit=emitter(place * call.n + i),
                deadline=deadline,
            )
            for place, tokens in enumerate(prompts)
            for i in range(call.n)
        ]

    def tracer(self) -> Tracer:
        """Describes the rounds of one answer."""
        return Tracer(self.bundle.tokenizer, self._front.level_names)

    def close(self) -> None:
        """End the scheduler; answers that are still being written end with an error."""
        self.scheduler.close()

    def _request(self, prompt: Prompt, call: Call) -> Request:
        split = call.split_special_tokens or self.settings.split_special_tokens
        if not call.chat:
            return Request(prompt, split_special_tokens=split)  # type: ignore[arg-type]
        variables = self.settings.chat_template_kwargs | call.chat_template_kwargs
        return Request(messages=prompt, chat_template_kwargs=variables, split_special_tokens=split)  # type: ignore[arg-type]

    def _open_session(self) -> Session:
        return Session(self.bundle, **self.settings.session, engine=self._front.engine)


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
