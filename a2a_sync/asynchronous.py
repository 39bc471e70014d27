"""``async def`` handlers on a synchronous run: each gets a private event loop, on the run's own thread where that can be.

It cannot where a loop runs on the thread already (an async handler called another agent in this process), nor under
gevent, where all greenlets share one thread: then the steps of the loop are taken on a native thread, one at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any

from a2a_sync.executor import RequestContext, TaskCancelled


def run_coroutine(coroutine: Coroutine[Any, Any, Any], context: RequestContext) -> Any:
    """Run `coroutine` to its end, waiting for it. Cancelling the task cancels it at its next ``await``.

    Raises:
        TaskCancelled: it was cancelled that way.
    """
    with _Loop(context) as loop:
        return loop.run(coroutine)


def iterate(generator: AsyncGenerator[Any, Any], context: RequestContext) -> Iterator[Any]:
    """The items of an async generator as a plain generator; closing it closes the async one."""
    with _Loop(context) as loop:
        try:
            while True:
                try:
                    item = loop.run(_next(generator))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            loop.run(_close(generator), cancellable=False)


async def _next(generator: AsyncGenerator[Any, Any]) -> Any:
    return await anext(generator)


async def _close(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


class _Loop:
    """An event loop of one handler. Cancelling the run cancels what the loop is doing at that moment."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._variables = contextvars.copy_context()
        self._call = _caller()
        self._runner = asyncio.Runner()
        self._loop: asyncio.AbstractEventLoop = self._runner.get_loop()
        self._task: asyncio.Task[Any] | None = None
        context.on_cancel(self._cancel)

    def __enter__(self) -> _Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._runner.close)

    def run(self, coroutine: Coroutine[Any, Any, Any], *, cancellable: bool = True) -> Any:
        """The coroutine's result."""
        work = self._cancellable(coroutine) if cancellable else coroutine
        try:
            return self._call(lambda: self._variables.run(self._runner.run, work))
        except asyncio.CancelledError:
            if self._context.cancelled:
                raise TaskCancelled(self._context.task_id) from None
            raise

    async def _cancellable(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._task = asyncio.current_task()
        if self._context.cancelled:
            # Told before there was anything to cancel.
            coroutine.close()
            raise asyncio.CancelledError
        try:
            return await coroutine
        finally:
            self._task = None

    def _cancel(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel_task)
        except RuntimeError:
            pass  # the loop has ended: there is nothing left to cancel

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _caller() -> Callable[[Callable[[], Any]], Any]:
    """How to call what runs the loop: plainly, or on another thread."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        return _on_native_thread
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _here
    return _on_helper_thread


def _here(work: Callable[[], Any]) -> Any:
    return work()


def _on_native_thread(work: Callable[[], Any]) -> Any:
    result: list[Any] = []
    sys.modules["gevent"].get_hub().threadpool.apply(_keep_outcome, (work, result))
    return _outcome(result)


def _on_helper_thread(work: Callable[[], Any]) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=_keep_outcome, args=(work, result), name="a2a-loop", daemon=True)
    thread.start()
    thread.join()
    return _outcome(result)


def _keep_outcome(work: Callable[[], Any], result: list[Any]) -> None:
    try:
        result += [work(), None]
    except BaseException as error:
        result += [None, error]


def _outcome(result: list[Any]) -> Any:
    value, error = result
    if error is not None:
        raise error
    return value
