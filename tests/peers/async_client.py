"""Runs the asynchronous clients of the official Python SDKs in synchronous tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

#: The calls of one test, which receive the client.
Conversation = Callable[[Any], Awaitable[None]]
_TIMEOUT = 40.0


def run(client: AbstractAsyncContextManager[Any], conversation: Conversation) -> None:
    """Open the client in a new event loop and await `conversation`, for at most 40 seconds."""

    async def main() -> None:
        async with client as opened:
            await asyncio.wait_for(conversation(opened), _TIMEOUT)

    asyncio.run(main())


async def events(stream: AsyncIterable[Any]) -> list[Any]:
    """All events of a stream."""
    return [event async for event in stream]
