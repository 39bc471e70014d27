"""``async def`` handlers on a synchronous run: one event loop per process, and on it one asyncio task per coroutine or
asynchronous generator.

The loop runs on a daemon thread of its own; the thread of the run waits for the task and stores what it yields. Objects
that belong to an event loop (clients with connection pools, sessions, locks) can therefore be shared by all runs, and
time-outs and cancel scopes may enclose a ``yield``. Code that blocks the loop delays the other runs on it. A run that
cannot start for that reason gets a loop of its own for its duration, so handlers that wait for each other make
progress.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

from a2a_sync.agent.executor import RequestContext, TaskCancelled
from a2a_sync.concurrency.eventloop import STALL_SECONDS, EventLoop, shared_loop
from a2a_sync.concurrency.gevent import native_context, wait_for_wake

#: Seconds after which a loop that has not started a task counts as blocked.
_START_SECONDS = 1.0
#: The same for a run that was started from a task of the loop, which probably blocks the loop while it waits for the
#: run.
_NESTED_START_SECONDS = 0.05

#: Whether the code was called, over any number of threads, from a task of the shared loop.
_on_shared_loop: contextvars.ContextVar[bool] = contextvars.ContextVar("a2a_sync_on_shared_loop", default=False)


def run_coroutine(coroutine: Coroutine[Any, Any, Any], context: RequestContext) -> Any:
    """Run `coroutine` in one asyncio task and return its result. Blocks the calling thread.

    Cancelling the A2A task cancels the asyncio task.

    Raises:
        TaskCancelled: the A2A task was cancelled, and the asyncio task with it.
    """
    with _async_task(context, coroutine) as work:
        work.next()
        return work.result()


def iterate(generator: AsyncGenerator[Any, Any], context: RequestContext) -> Iterator[Any]:
    """The items of an asynchronous generator, all of whose steps run in one asyncio task.

    The generator advances when the next item is asked for. Closing the iterator closes the generator, in the same task.

    Raises:
        TaskCancelled: the A2A task was cancelled, and the asyncio task with it.
    """
    for (item,) in batches(generator, context, ahead=0):
        yield item


def batches(
    generator: AsyncGenerator[Any, Any], context: RequestContext, *, interval: float = 0.0, ahead: int = 256
) -> Generator[list[Any], None, None]:
    """`iterate` for generators with many items: lists of those that the generator has yielded since the list before.

    The generator does not wait for the thread of the run, which costs as much as a small step of the generator itself.

    Parameters:
        interval: the shortest time between two lists, in seconds. The last one, and one that is full, do not wait for it.
        ahead: how many items the generator may yield before they are asked for.

    Raises:
        TaskCancelled: as `iterate`.
    """
    with _async_task(context, interval=interval) as work:
        work.coroutine = work.pump(generator, ahead)
        while work.next():
            yield [work.ready.popleft() for _ in range(len(work.ready))]
        work.result()


@contextmanager
def _async_task(
    context: RequestContext, coroutine: Coroutine[Any, Any, Any] | None = None, *, interval: float = 0.0
) -> Iterator[_AsyncTask]:
    work = _AsyncTask(context, coroutine, interval)
    context.on_cancel(work.cancel)
    try:
        yield work
    finally:
        work.close()


class _AsyncTask:
    """One asyncio task that works for the thread of a run.

    `next`, `result` and `close` are called on that thread, `cancel` on any; the rest on the thread of the loop.
    """

    def __init__(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any] | None, interval: float) -> None:
        self.coroutine = coroutine
        self._interval = interval
        self.ready: deque[Any] = deque()
        self._context = context
        self._called_on_shared_loop = _on_shared_loop.get()
        self._variables = native_context()
        self._variables.run(_on_shared_loop.set, True)
        self._event_loop: EventLoop | None = None
        self._private = False
        #: Popped by the loop when it starts the task, or by the run's thread, which then uses another loop.
        self._start_claim: deque[bool] = deque()
        self._task: asyncio.Task[None] | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._ended = self._closing = self._cancelled = False
        self._wake: Callable[[], None] | None = None
        self._item_request: asyncio.Future[None] | None = None
        #: When the thread was last woken, and the timer that wakes it next.
        self._woken_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    # -- on the thread of the run --

    def next(self) -> bool:
        """Wait for an item in `ready`, or for those of an interval; False when the task has ended without another one."""
        if not self._ended and (self._interval or not self.ready):
            if self._event_loop is None:
                self._wait(self._launch, _NESTED_START_SECONDS if self._called_on_shared_loop else _START_SECONDS)
            else:
                self._wait(lambda wake: self._call(self._request_item, wake), STALL_SECONDS)
        return bool(self.ready)

    def result(self) -> Any:
        """Return the result of the coroutine, or raise its exception; `TaskCancelled` if the A2A task was cancelled."""
        if isinstance(self._error, asyncio.CancelledError) and self._context.cancelled:
            raise TaskCancelled(self._context.task_id) from None
        if self._error is not None:
            raise self._error
        return self._value

    def close(self) -> None:
        """End the task, if it has not ended, and wait for its end. Raises an error of the generator that is closed."""
        if self._event_loop is None:
            if self.coroutine is not None:
                self.coroutine.close()
            return
        try:
            if not self._ended:
                self._wait(lambda wake: self._call(self._end, wake), STALL_SECONDS)
                if not isinstance(self._error, asyncio.CancelledError):
                    self.result()
        finally:
            if self._private:
                self._event_loop.stop()

    def _wait(self, begin: Callable[[Callable[[], None]], None], interval: float) -> None:
        wait_for_wake(begin, self._check, interval)

    def _launch(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._launch_on(shared_loop.get())
        else:
            # The loop that runs on this thread is blocked while the thread waits.
            self._launch_on_private_loop()

    def _launch_on_private_loop(self) -> None:
        self._private = True
        self._launch_on(EventLoop("a2a-loop-private"))

    def _launch_on(self, event_loop: EventLoop) -> None:
        self._event_loop, self._start_claim = event_loop, deque((True,))
        self._call(self._start, self._start_claim)

    def _check(self) -> float:
        """Called when the thread has waited for a while. Returns the seconds until the next check."""
        assert self._event_loop is not None
        if not self._private and _pop(self._start_claim):
            self._event_loop.report("an async handler cannot start on it and gets an event loop of its own")
            self._launch_on_private_loop()
        else:
            self._event_loop.probe()
        return STALL_SECONDS

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._event_loop is not None
        self._event_loop.loop.call_soon_threadsafe(function, *arguments)

    # -- on any thread --

    def cancel(self) -> None:
        """Cancel the asyncio task, unless it is being closed."""
        if self._event_loop is not None:
            with suppress(RuntimeError):  # a private loop that has ended
                self._call(self._cancel_task)

    # -- on the loop's thread --

    def _start(self, claim: deque[bool]) -> None:
        if not _pop(claim):
            return
        assert self.coroutine is not None
        if self._context.cancelled:
            self.coroutine.close()
            self._error = asyncio.CancelledError()
            self._finish()
            return
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._await_coroutine(self.coroutine), context=self._variables)
        self._task.add_done_callback(self._done)

    async def _await_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._context.enter()
        try:
            self._value = await coroutine
        except BaseException as error:
            # Not raised in the loop, which SystemExit and KeyboardInterrupt would stop.
            self._error = error

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # Cancelled before its first step.
            assert self.coroutine is not None
            self.coroutine.close()
            self._error = asyncio.CancelledError()
        self._finish()

    def _finish(self) -> None:
        self._ended = True
        self._wake_thread()

    def _wake_thread(self) -> None:
        self._stop_timer()
        wake, self._wake = self._wake, None
        if wake is not None:
            self._woken_at = time.monotonic()
            wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_in_time(self) -> None:
        """Wake the thread, if it waits for items, not before the interval is over."""
        if self._wake is None or self._timer is not None:
            return
        wait = self._woken_at + self._interval - time.monotonic()
        if wait <= 0:
            self._wake_thread()
        else:
            self._timer = asyncio.get_running_loop().call_later(wait, self._wake_thread)

    def _request_item(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        full = bool(self.ready) and self._item_request is not None
        self._advance()
        if full or self._ended:
            self._wake_thread()
        elif self.ready:
            self._wake_in_time()

    def _end(self, wake: Callable[[], None]) -> None:
        self._stop_timer()
        self._closing, self._wake = True, wake
        if self._ended:
            self._wake_thread()
        elif self._item_request is not None:
            self._advance()
        elif self._task is not None:
            # The run's thread was interrupted while the task was working for it.
            self._cancel_once(self._task)

    def _advance(self) -> None:
        if self._item_request is not None and not self._item_request.done():
            self._item_request.set_result(None)

    def _cancel_task(self) -> None:
        if self._task is not None and not self._closing:
            self._cancel_once(self._task)

    def _cancel_once(self, task: asyncio.Task[None]) -> None:
        # A second cancel would interrupt the cleanup that the first one began.
        if not self._cancelled:
            self._cancelled = True
            task.cancel()

    async def pump(self, generator: AsyncGenerator[Any, Any], ahead: int) -> None:
        """Advance the generator, at most `ahead` items before the run's thread requests them."""
        async with aclosing(generator):
            step: Awaitable[Any] = anext(generator)
            while True:
                try:
                    item = await step
                except StopAsyncIteration:
                    return
                self.ready.append(item)
                full = len(self.ready) > ahead
                if not self._closing:
                    self._wake_thread() if full else self._wake_in_time()
                try:
                    if full:
                        await self._item_requested()
                except asyncio.CancelledError as cancelled:
                    # Timeouts and cancel scopes around the `yield` cancel this task; raise it in the generator.
                    step = generator.athrow(cancelled)
                    continue
                if self._closing:
                    return
                step = anext(generator)

    async def _item_requested(self) -> None:
        while self._wake is None and not self._closing:
            self._item_request = asyncio.get_running_loop().create_future()
            try:
                await self._item_request
            finally:
                self._item_request = None


def _pop(claim: deque[bool]) -> bool:
    """Take the claim. Returns True to the first thread that takes it, False to others."""
    try:
        return claim.pop()
    except IndexError:
        return False
