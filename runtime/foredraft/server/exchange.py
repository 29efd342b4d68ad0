"""One request while it is answered: collects its answers, or streams them as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import Receive, Scope, Send

from foredraft.request import CheckedRequest
from foredraft.server.answers import Answer, AnswerChoice, usage
from foredraft.server.api_errors import ApiError, ClientGoneError, as_api_error
from foredraft.server.calls import Call
from foredraft.server.inbox import Inbox
from foredraft.server.jobs import AnswerPiece, Failure, Job
from foredraft.server.service import Service

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
_HEADERS += [(b"x-accel-buffering", b"no")]  # proxies must not hold pieces back


class Exchange:
    """The answers that one call asked for. ``log`` receives figures for the request's log line."""

    def __init__(
        self, service: Service, call: Call, requests: list[CheckedRequest], request_id: str, log: dict[str, Any]
    ) -> None:
        self._service = service
        self._call = call
        self._log = log
        self._inbox = Inbox()
        self._jobs: list[Job] = service.jobs(call, requests, self._inbox.emitter)
        self._choices = [AnswerChoice(index) for index in range(len(self._jobs))]
        self._answer = Answer(
            id=("chatcmpl-" if call.chat else "cmpl-") + request_id,
            model=service.model_name,
            created=int(time.time()),
            chat=call.chat,
            logprobs=call.top_logprobs is not None,
            texts=service.texts,
            include_usage=call.include_usage,
        )
        service.scheduler.submit(self._jobs)

    async def whole(self, receive: Receive) -> dict[str, Any]:
        """The body of the answer. Raises ApiError, or ClientGoneError once nobody waits for it."""
        async with self._attended(receive):
            async for _ in self._pieces():
                pass
        return self._answer.whole(self._choices, self._call.n)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as an event stream. What goes wrong before the first event is raised, and can still become an
        ordinary error; later it becomes an event.
        """
        started = False
        try:
            async with self._attended(receive):
                async for event in self._events():
                    if not started:
                        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                        started = True
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        except ClientGoneError:
            self._log["status"] = 499
            return
        except (ApiError, asyncio.CancelledError) as error:  # cancelled: the time to finish at shutdown is over
            if not started:
                raise
            known = as_api_error(error)
            self._log |= {"status": known.status, "error": known.message}
            await send({"type": "http.response.body", "body": _event(known.to_json()), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        tracers = [self._service.tracer() if self._call.trace else None for _ in self._jobs]
        opened: set[int] = set()
        async for choice, piece in self._pieces():
            if self._call.chat and choice.index not in opened:
                opened.add(choice.index)
                yield _event(self._answer.opening(choice.index))
            tracer = tracers[choice.index]
            trace = {"foredraft": tracer.describe(piece).to_json()} if tracer else {}
            told = piece.text or piece.logprobs or piece.result
            if told or (trace and piece.tokens):
                chunk = self._answer.chunk(choice, piece)
                yield _event(chunk | trace)
        if self._call.include_usage:
            yield _event(self._answer.closing(self._choices, self._call.n))
        yield b"data: [DONE]\n\n"

    async def _pieces(self) -> AsyncIterator[tuple[AnswerChoice, AnswerPiece]]:
        """What the rounds of all answers wrote, until all are finished."""
        left = len(self._choices)
        while left:
            index, event = await self._inbox.get()
            if isinstance(event, Failure):
                raise event.error
            choice = self._choices[index]
            choice.add(event)
            left -= event.result is not None
            yield choice, event

    @contextlib.asynccontextmanager
    async def _attended(self, receive: Receive) -> AsyncIterator[None]:
        """However this ends, no answer is written on for nobody, and the log knows what was."""
        try:
            async with self._inbox.watching(receive):
                yield
        finally:
            self._service.scheduler.cancel(self._jobs)
            self._note()

    def _note(self) -> None:
        results = [choice.result for choice in self._choices if choice.result]
        counts = usage(self._choices, self._call.n)
        self._log |= {
            "prompt_tokens": counts["prompt_tokens"],
            "cached_tokens": counts["prompt_tokens_details"]["cached_tokens"],
            "completion_tokens": counts["completion_tokens"],
            "finish_reasons": [result.finish_reason for result in results],
            "rounds": sum(result.stats.rounds for result in results),
            "drafted": sum(result.stats.drafted for result in results),
            "accepted": sum(result.stats.accepted for result in results),
        }
        first = [job.first - job.created for job in self._jobs if job.first]
        if first:
            self._log["seconds_to_first_token"] = round(min(first), 4)


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
