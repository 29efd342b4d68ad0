"""A session for asyncio: rounds run on a thread of its own, so that the event loop never waits for the model."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar, Unpack, cast

from foredraft.request import RequestFields
from foredraft.result import Chunk, Result
from foredraft.session import Session

T = TypeVar("T")


class AsyncSession:
    """Wraps a session, which belongs to it from then on. Texts are written one after the other, in the order in which
    they were asked for; for several at once, open several sessions on one engine.

    For use by the tasks of one event loop. ``async with AsyncSession(session) as writer`` ends its thread.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="foredraft-session")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for the round that is being run, and end the thread."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def generate(self, prompt: str | Sequence[int] | None = None, **fields: Unpack[RequestFields]) -> Result:
        """The whole answer at once; arguments and errors as for ``Session.generate``.

        If the task is cancelled, the answer ends with the round that is being run.
        """
        async for chunk in self.stream(prompt, **fields):
            result = chunk.result
        assert result is not None  # the last chunk of a stream carries it
        return result

    async def stream(
        self, prompt: str | Sequence[int] | None = None, **fields: Unpack[RequestFields]
    ) -> AsyncGenerator[Chunk, None]:
        """The answer piece by piece; arguments as for ``Session.stream``.

        Raises RequestError with the first piece if the request cannot be served. Whoever stops reading early should
        call ``aclose`` (or use ``contextlib.aclosing``): the next text can then begin.
        """
        begin = functools.partial(self.session.stream, prompt, **fields)
        async with self._turn:
            chunks = cast(Generator[Chunk, None, None], await self._run(begin))
            try:
                while (chunk := await self._run(functools.partial(next, chunks, None))) is not None:
                    yield chunk
            finally:
                # Comes after the round that a cancelled task has left running.
                await asyncio.shield(self._run(chunks.close))

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
