"""Calls of remote agents from the event loops of frameworks: `RemoteCall`.

The client blocks, so it works on a thread of the loop's executor; its events arrive on the loop. No framework is imported here.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple

from a2a_sync.client.client import Client
from a2a_sync.client.stream import TaskStream
from a2a_sync.errors import A2AError
from a2a_sync.types import Content, Message, StreamResponse, Task

#: The longest time that a cancel of an abandoned task may take, in seconds.
_CANCEL_SECONDS = 2.0
_END = object()


class RemoteEvent(NamedTuple):
    """One event of the stream of a remote task, and the text that it adds to the artifacts."""

    event: StreamResponse
    new_text: str


class RemoteCall:
    """One message to a remote agent: iterate over its events, then read `result`.

    When the iteration is closed or its asyncio task is cancelled, reading stops and the remote task is cancelled.

    Parameters:
        client: the client of the agent.
        content: the message.
        cancel_remote: whether an abandoned task is cancelled.
        options: further arguments of `Client.stream`, such as ``task_id``, ``context_id`` and ``timeout``.
    """

    def __init__(self, client: Client, content: Content, *, cancel_remote: bool = True, **options: Any) -> None:
        self._client = client
        self._content = content
        self._cancel_remote = cancel_remote
        self._options = options
        self._stream: TaskStream | None = None
        self._abandoned = False
        #: The task or message that the agent has answered with.
        self.result: Task | Message | None = None

    async def events(self) -> AsyncIterator[RemoteEvent]:
        """Send the message; its events as they arrive.

        Raises:
            AgentError, TransportError: as `Client.stream`.
        """
        loop, items = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def put(item: Any) -> None:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(items.put_nowait, item)

        reading = loop.run_in_executor(None, contextvars.copy_context().run, self._read, put)
        try:
            while (item := await items.get()) is not _END:
                yield item
            await reading
        finally:
            if not reading.done():
                reading.add_done_callback(_retrieve)
                self._abandoned = True
                loop.run_in_executor(None, self._abandon).add_done_callback(_retrieve)

    async def run(self) -> Task | Message:
        """Send the message and wait for the answer. Raises as `events`."""
        async for _ in self.events():
            pass
        assert self.result is not None
        return self.result

    # -- on threads --

    def _read(self, put: Any) -> None:
        try:
            with self._client.stream(self._content, **self._options) as stream:
                self._stream = stream
                if self._abandoned:
                    return
                for event in stream:
                    put(RemoteEvent(event, stream.new_text))
                self.result = stream.message or stream.task
        finally:
            put(_END)

    def _abandon(self) -> None:
        stream = self._stream
        if stream is None:
            return
        stream.close()
        if self._cancel_remote and stream.task_id and not stream.state.paused:
            with suppress(A2AError):
                self._client.cancel_task(stream.task_id, timeout=_CANCEL_SECONDS)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Read the exception of an abandoned call."""
    if not future.cancelled():
        future.exception()
