"""Brings events from the scheduler's thread into an asyncio task, and notices when the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.types import Receive

from foredraft.server.api_errors import ClientGoneError
from foredraft.server.jobs import Emit, Event


class Inbox:
    """The events of one request's answers, in the order they come."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[int, Event] | None] = asyncio.Queue()

    def emitter(self, index: int) -> Emit:
        """What the ``index``-th answer hands its events to, from any thread."""

        def emit(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._queue.put_nowait, (index, event))

        return emit

    async def get(self) -> tuple[int, Event]:
        """The next event and whose it is. Raises ClientGoneError once the connection is closed."""
        item = await self._queue.get()
        if item is None:
            raise ClientGoneError
        return item

    @contextlib.asynccontextmanager
    async def watching(self, receive: Receive) -> AsyncIterator[None]:
        """Within this, ``get`` notices a closed connection. The request's body must have been read."""

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._queue.put_nowait(None)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
