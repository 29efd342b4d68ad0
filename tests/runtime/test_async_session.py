"""The session for asyncio: the same texts, one after the other, and the event loop stays free."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foredraft import AsyncSession, Bundle, SamplingParams, Session
from foredraft.errors import RequestError
from foredraft.result import Chunk
from tests.waiting import LIMIT

Bundles = Callable[..., Path]
PROMPT = "the cat sat on the mat, the cat sat"


def open_session(path: Path) -> Session:
    return Session(Bundle.open(path), threads=1)


def test_it_writes_what_the_session_writes(tiny_bundle: Bundles) -> None:
    path, sampling = tiny_bundle(), SamplingParams(temperature=0.8, seed=3)
    alone = open_session(path).generate(PROMPT, max_tokens=40, sampling=sampling)

    async def run() -> None:
        async with AsyncSession(open_session(path)) as writer:
            both = await asyncio.gather(*[writer.generate(PROMPT, max_tokens=40, sampling=sampling) for _ in range(3)])
            assert [result.tokens for result in both] == [alone.tokens] * 3
            chunks = [chunk async for chunk in writer.stream(PROMPT, max_tokens=40, sampling=sampling)]
            assert "".join(chunk.text for chunk in chunks) == alone.text
            assert chunks[-1].result is not None and chunks[-1].result.tokens == alone.tokens

    asyncio.run(run())


def test_errors_come_through_and_the_next_text_works(tiny_bundle: Bundles) -> None:
    async def run() -> None:
        async with AsyncSession(open_session(tiny_bundle())) as writer:
            with pytest.raises(RequestError, match="max_tokens"):
                await writer.generate(PROMPT, max_tokens=-1)
            assert (await writer.generate(PROMPT, max_tokens=3)).tokens

    asyncio.run(run())


def test_a_text_can_be_given_up(tiny_bundle: Bundles, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_bundle()
    alone = open_session(path).generate(PROMPT, max_tokens=30)

    async def run() -> None:
        async with AsyncSession(open_session(path)) as writer:
            async with contextlib.aclosing(writer.stream(PROMPT)) as chunks:
                await anext(chunks)
            assert (await writer.generate(PROMPT, max_tokens=30)).tokens == alone.tokens
            begun, go_on, stream = asyncio.Event(), threading.Event(), writer.session.stream
            loop = asyncio.get_running_loop()

            def held(*args: Any, **options: Any) -> Iterator[Chunk]:
                with contextlib.closing(stream(*args, **options)) as chunks:
                    for chunk in chunks:
                        loop.call_soon_threadsafe(begun.set)
                        go_on.wait(LIMIT)
                        yield chunk

            monkeypatch.setattr(writer.session, "stream", held)
            task = asyncio.create_task(writer.generate(PROMPT))
            await begun.wait()
            task.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await writer.generate(PROMPT, max_tokens=30)).tokens == alone.tokens

    asyncio.run(run())


def test_the_event_loop_stays_free(tiny_bundle: Bundles) -> None:
    async def run() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        async with AsyncSession(open_session(tiny_bundle())) as writer:
            ticking = asyncio.create_task(tick())
            await writer.generate(PROMPT, max_tokens=50)
            ticking.cancel()
        assert ticks > 50

    asyncio.run(run())
