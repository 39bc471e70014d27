"""``async def`` handlers on a synchronous run: each gets a private event loop, on the run's own thread where that can be.

It cannot where a loop runs on the thread already (an async handler called another agent in this process), nor under
gevent, where all greenlets share one thread: then the steps of the loop are taken on a native thread, one at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol

from a2a_sync.executor import RequestContext, TaskCancelled
from a2a_sync.native import NativeThread, Outcome, patched


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
        self._thread = _thread()
        self._runner = asyncio.Runner(loop_factory=_GreenletLoop if patched() else None)
        self._loop: asyncio.AbstractEventLoop = self._thread.call(self._runner.get_loop)
        self._task: asyncio.Task[Any] | None = None
        context.on_cancel(self._cancel)

    def __enter__(self) -> _Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.call(self._runner.close)
        finally:
            self._thread.end()

    def run(self, coroutine: Coroutine[Any, Any, Any], *, cancellable: bool = True) -> Any:
        """The coroutine's result."""
        work = self._cancellable(coroutine) if cancellable else coroutine
        try:
            return self._thread.call(lambda: self._variables.run(self._runner.run, work))
        except asyncio.CancelledError:
            if self._context.cancelled:
                raise TaskCancelled(self._context.task_id) from None
            raise

    async def _cancellable(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._task = asyncio.current_task()
        self._context.enter()
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


class _GreenletLoop(asyncio.SelectorEventLoop):
    """A loop that shares its thread with greenlets: under gevent, the threads of ``asyncio.to_thread`` are some.

    asyncio takes what they call for something that the loop itself calls, and would not wake up for it.
    """

    _greenlet: object = None

    def run_forever(self) -> None:
        self._greenlet = _current_greenlet()
        super().run_forever()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if _current_greenlet() is not self._greenlet:
            self._write_to_self()  # type: ignore[attr-defined]
        return handle


def _current_greenlet() -> object:
    return import_module("greenlet").getcurrent()


# -- the thread a loop runs on ------------------------------------------------------------------------------------------


def _thread() -> _Thread:
    if patched():
        return NativeThread()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _ThisThread()
    return _HelperThread()


class _Thread(Protocol):
    """Where the steps of one loop are taken. `call` waits for what it calls, and lets its exceptions through."""

    def call(self, work: Callable[[], Any]) -> Any: ...

    def end(self) -> None: ...


class _ThisThread:
    """The caller's own."""

    def call(self, work: Callable[[], Any]) -> Any:
        return work()

    def end(self) -> None:
        """Nothing to end."""


class _HelperThread:
    """A short-lived one for each step: a thread can run one loop at a time only."""

    def call(self, work: Callable[[], Any]) -> Any:
        outcome = Outcome(work)
        thread = threading.Thread(target=outcome.fetch, name="a2a-loop", daemon=True)
        thread.start()
        thread.join()
        return outcome.get()

    def end(self) -> None:
        """Each thread has ended with its step."""
