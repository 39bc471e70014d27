"""``async def`` handlers on a synchronous run: each gets a private event loop on the run's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any

from a2a_sync.executor import RequestContext, TaskCancelled


def run_coroutine(coroutine: Coroutine[Any, Any, Any], context: RequestContext) -> Any:
    """Run `coroutine` to its end on this thread. Cancelling the task cancels it at its next ``await``.

    Raises:
        TaskCancelled: it was cancelled that way.
    """
    with asyncio.Runner() as runner:
        return _run(runner, coroutine, context)


def iterate(generator: AsyncGenerator[Any, Any], context: RequestContext) -> Iterator[Any]:
    """The items of an async generator as a plain generator; closing it closes the async one."""
    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    item = _run(runner, _next(generator), context)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            runner.run(_close(generator))


async def _next(generator: AsyncGenerator[Any, Any]) -> Any:
    return await anext(generator)


async def _close(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


def _run(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, Any], context: RequestContext) -> Any:
    loop = runner.get_loop()

    async def cancellable() -> Any:
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:
                pass  # the loop has ended: there is nothing left to cancel

        context.on_cancel(cancel)
        return await coroutine

    try:
        return runner.run(cancellable())
    except asyncio.CancelledError:
        if context.cancelled:
            raise TaskCancelled(context.task_id) from None
        raise
