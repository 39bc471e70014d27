"""Event loops that run on threads of their own, one of them shared by all runs of the process."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.concurrency.gevent import (
    Outcome,
    native_context,
    original,
    patched,
    run_on_gevent_hub,
    spawn_native,
    start_native,
    use_native_threads,
    wait_for_wake,
)
from a2a_sync.concurrency.pool import WorkerPool
from a2a_sync.concurrency.quotas import Quotas, current_owner
from a2a_sync.telemetry.logs import get_logger

logger: Final = get_logger(__name__)

#: Threads for `asyncio.to_thread` and its like, of which one owner has half at most. asyncio's own default is six on a machine
#: with two cores.
_EXECUTOR_THREADS = 128
#: A loop that does nothing for so many seconds is reported.
STALL_SECONDS = 5.0
#: Items that a thread reads ahead of their consumer.
_MAX_WAITING = 16
_END: Final = object()
#: Seconds for which a loop runs callbacks before it looks for others.
_ROUND_SECONDS = 0.005
#: Owners whose seconds are kept.
_MAX_OWNERS = 1000


class EventLoop:
    """An event loop that runs on a daemon thread of its own: under gevent on a native one."""

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop
        self._name = name
        self._stopped = False
        self._thread_id = 0
        self._probed_at: float | None = None
        self._reported = False
        self._failure: BaseException | None = None
        wait_for_wake(self._begin, lambda: STALL_SECONDS, STALL_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _begin(self, wake: Callable[[], None]) -> None:
        if patched():
            start_native(lambda: self._serve(wake))
        else:
            threading.Thread(target=self._serve, args=(wake,), name=self._name, daemon=True).start()

    def _serve(self, wake: Callable[[], None]) -> None:
        try:
            runner = self._make_loop()
        except BaseException as error:
            self._failure = error
            return
        finally:
            wake()
        with runner:
            while not self._stopped:
                try:
                    self.loop.run_forever()
                except (KeyboardInterrupt, SystemExit):
                    logger.exception("a task of an async handler tried to end the process; its event loop continues")

    def _make_loop(self) -> asyncio.Runner:
        if patched():
            with suppress(ImportError):
                # What async code connects to SQLite with: sessions of the ADK, checkpoints of LangGraph.
                use_native_threads(import_module("aiosqlite.core"))
        runner = asyncio.Runner(loop_factory=_GreenletLoop if patched() else _FairLoop)
        self.loop = runner.get_loop()
        executor = _NativeExecutor() if patched() else _FairExecutor(f"{self._name}-executor")
        self.loop.set_default_executor(executor)
        _executors[self.loop] = executor
        self._thread_id = original("_thread", "get_ident")()
        return runner

    def stop(self) -> None:
        """Cancel the tasks of the loop and end its thread, without waiting for that."""
        self._stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    # -- detecting code that blocks it --

    def probe(self) -> None:
        """Check that the loop runs callbacks, and report it when it has run none since the last call but one."""
        now = time.monotonic()
        if self._probed_at is None:
            self._probed_at = now
            self.loop.call_soon_threadsafe(self._alive)
        elif now - self._probed_at >= STALL_SECONDS * 0.9:
            self.report(f"nothing has run on it for {now - self._probed_at:.0f} seconds")

    def _alive(self) -> None:
        self._probed_at, self._reported = None, False

    def report(self, consequence: str) -> None:
        """Log what blocks the loop, once until it runs again."""
        if self._reported:
            return
        self._reported = True
        self.loop.call_soon_threadsafe(self._alive)
        # Under gevent the code that waits is a greenlet, which the thread has left.
        waiting = getattr(getattr(self.loop, "greenlet", None), "gr_frame", None)
        frame = waiting or sys._current_frames().get(self._thread_id)
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        text = (
            "the event loop of async handlers is blocked: %s. Await what blocks it, or call it by asyncio.to_thread.\n"
        )
        # Arguments have no line breaks in the log.
        logger.warning(text + stack.replace("%", "%%"), consequence)


async def iterate_on_thread(iterate: Callable[[], Iterable[Any]]) -> AsyncGenerator[Any, None]:
    """The items of an iterator that blocks; a thread reads them, one of the executor of the running loop under gevent.

    An iteration that is left early does not wait for the thread, which stops at its next item.
    """
    loop, items, left = asyncio.get_running_loop(), asyncio.Queue[Any](), deque[bool]()
    places = threading.Semaphore(_MAX_WAITING)

    def put(item: Any) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(items.put_nowait, item)

    def read() -> None:
        try:
            for item in iterate():
                places.acquire()
                if left:
                    return
                put(item)
        finally:
            put(_END)

    reading = loop.run_in_executor(None if patched() else _readers, contextvars.copy_context().run, read)
    try:
        while (item := await items.get()) is not _END:
            places.release()
            yield item
        await reading
    finally:
        left.append(True)
        places.release()
        reading.add_done_callback(retrieve_error)
        # The loop may be closed before the thread stops.
        reading.cancel()


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """Read the exception of a call that nothing waits for, which asyncio would log otherwise."""
    if not future.cancelled():
        future.exception()


class _SharedLoop:
    """The event loop of this process, started by the first run that needs it. It lives as long as the process."""

    def __init__(self) -> None:
        self._event_loop: EventLoop | None = None
        #: Loops of parent processes. They are kept, because finalizing one would warn that it was not closed.
        self._parent_loops: list[EventLoop] = []
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread of the loop is the parent's."""
        self._lock = threading.Lock()
        if self._event_loop is not None:
            self._parent_loops.append(self._event_loop)
            self._event_loop = None

    @run_on_gevent_hub
    def get(self) -> EventLoop:
        """The loop, which is started if necessary."""
        with self._lock:
            if self._event_loop is None:
                self._event_loop = EventLoop("a2a-loop")
            return self._event_loop


shared_loop: Final = _SharedLoop()


class _FairLoop(asyncio.SelectorEventLoop):
    """A loop that divides its time fairly between owners: long steps of one owner delay others by one step, not by all of them."""

    def __init__(self, selector: Any = None) -> None:
        super().__init__(selector)
        # asyncio has what it calls next in a deque of this name, which is not documented.
        self._ready = _Turns()


class _Turns:
    """The callbacks that are ready; first those of the owner whose callbacks took least time. It replaces the deque of a loop.

    `append` is called on any thread, the rest on that of the loop. In each round a loop removes as many as there are, then looks for
    what else is ready. In a long round it gets a handle that is cancelled, which it omits, for each of the rest.
    """

    def __init__(self) -> None:
        self._arrived: deque[asyncio.Handle] = deque()
        self._ready: dict[str, deque[asyncio.Handle]] = {}
        self._number = 0
        #: The seconds of each owner; of one that had no callbacks for a while as many as of the one that has least.
        self._spent: dict[str, float] = {}
        self._least = 0.0
        self._running: str | None = None
        self._began = self._round_ends = 0.0
        self._omitted: asyncio.Handle | None = None

    def append(self, handle: asyncio.Handle) -> None:
        self._arrived.append(handle)

    def __bool__(self) -> bool:
        # Called first in each round, before the loop waits.
        self._charge(time.monotonic())
        return bool(self._arrived or self._number)

    def __len__(self) -> int:
        self._sort()
        self._began = time.monotonic()
        self._round_ends = self._began + _ROUND_SECONDS
        return self._number

    def popleft(self) -> asyncio.Handle:
        now = time.monotonic()
        self._charge(now)
        if now > self._round_ends and self._omitted is not None:
            return self._omitted
        if self._arrived:
            self._sort()
        owner = next(iter(self._ready)) if len(self._ready) == 1 else min(self._ready, key=self._spent.__getitem__)
        self._least = max(self._least, self._spent[owner])
        handle = self._ready[owner].popleft()
        self._number -= 1
        if not self._ready[owner]:
            del self._ready[owner]
        if self._omitted is None:
            self._omitted = asyncio.Handle(print, (), handle._loop, contextvars.Context())  # type: ignore[attr-defined]
            self._omitted.cancel()
        self._running, self._began = owner, now
        return handle

    def clear(self) -> None:
        self._arrived.clear()
        self._ready.clear()
        self._number = 0

    def _charge(self, now: float) -> None:
        if self._running is not None:
            self._spent[self._running] += now - self._began
            self._running = None

    def _sort(self) -> None:
        while self._arrived:
            handle = self._arrived.popleft()
            owner = handle._context.get(current_owner, "")  # type: ignore[attr-defined]
            if (queue := self._ready.get(owner)) is None:
                queue = self._ready[owner] = deque()
                if len(self._spent) > _MAX_OWNERS:
                    self._spent = {one: self._spent[one] for one in self._ready if one in self._spent}
                self._spent[owner] = max(self._spent.get(owner, 0.0), self._least)
            queue.append(handle)
            self._number += 1


class _GreenletLoop(_FairLoop):
    """A loop that shares its thread with greenlets: under gevent, the threads of ``asyncio.to_thread`` are greenlets.

    asyncio regards their calls as calls of the loop itself, and would not wake up for them.
    """

    greenlet: object = None

    def run_forever(self) -> None:
        self.greenlet = _current_greenlet()
        super().run_forever()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if _current_greenlet() is not self.greenlet:
            self._write_to_self()  # type: ignore[attr-defined]
        return handle


def _current_greenlet() -> object:
    return import_module("greenlet").getcurrent()


class _FairExecutor(ThreadPoolExecutor):
    """Makes calls on daemon threads, of which each owner has a fair share: the call of a canceled run keeps its thread until it returns.

    A loop accepts no other class as its default executor.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1)
        quotas = Quotas()
        quotas.several = True
        self._pool = WorkerPool(
            threads=_EXECUTOR_THREADS, max_queued=sys.maxsize, max_abandoned=0, name=name, quotas=quotas
        )

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*arguments, **named))
                except BaseException as error:
                    future.set_exception(error)

        slot = self._pool.reserve(current_owner.get())
        try:
            slot.submit(call)
        except RuntimeError:
            slot.release()
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.close()


class _NativeExecutor(ThreadPoolExecutor):
    """Makes the calls of one loop on native threads: those of the standard library are greenlets of the loop's thread here."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        loop, future, outcome = (
            asyncio.get_running_loop(),
            Future[Any](),
            Outcome(partial(function, *arguments, **named)),
        )

        def call() -> None:
            outcome.fetch()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(deliver)

        def deliver() -> None:
            # On the loop's thread, because the future's lock is one for greenlets.
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(outcome.get())
                except BaseException as error:
                    future.set_exception(error)

        spawn_native(partial(native_context().run, call))
        return future


#: The threads of `iterate_on_thread`. They are not those of the running loop, whose few threads others need meanwhile.
_readers: Final = _FairExecutor("a2a-reader")
_executors: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor]] = (
    weakref.WeakKeyDictionary()
)


def loop_executor() -> ThreadPoolExecutor:
    """The executor of the running `EventLoop`, for frameworks that would use threads of their own."""
    return _executors[asyncio.get_running_loop()]
