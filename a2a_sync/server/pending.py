"""Sends that go on without a thread that waits for their result, and what lasts until it is there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from a2a_sync.engine.hub import PolledStream, Signal, SingleItemStream, Steps, Wait
from a2a_sync.errors import AgentError, OverloadedError
from a2a_sync.operations import Call, Endpoint, EventStream, StreamItem

#: A wait that ends so many seconds late shows that the processor is busy, and the call waits for so many seconds more.
_LATE, _BUSY_WAIT = 0.01, 0.02


class CallerGone(OverloadedError):
    """The caller has disconnected, or the server is stopping, so the response is not read. The task continues."""

    def __init__(self) -> None:
        super().__init__("the connection was closed while the task went on")


def complete(steps: Steps[Any], seconds: float) -> Any:
    """The result of `steps`; a `PendingReply`, which has it later, where it waits for longer than `seconds`.

    Where a wait ends late, the processor is busy: the call may be short, and leaving the thread would only begin another one. It
    waits longer then.
    """
    try:
        wait = next(steps)
        leaves = time.monotonic() + seconds
        while (left := leaves - time.monotonic()) > 0:
            wait = steps.send(left)
            if leaves - time.monotonic() < -_LATE:
                leaves = time.monotonic() + _BUSY_WAIT
    except StopIteration as ended:
        return ended.value
    return PendingReply(steps, wait)


class PendingReply:
    """The result of a call as a stream, when it is there: the task of a blocking send that has paused, a large page, or a stream.

    A transport gets it of a call with `CallContext.deferred_after`. `poll` is for one thread at a time, `close` for any.

    Parameters:
        steps: the rest of the call.
        wait: what it waits for.
    """

    def __init__(self, steps: Steps[Any], wait: Wait) -> None:
        self.task_id: str = wait.waiter.task_id
        #: The monotonic time at which `poll` may return something else than ``[]`` though nothing has announced it.
        self.deadline: float = wait.until
        #: Releases the thread of the server that the call holds; for a transport that waits without.
        self.release_thread: Callable[[], None] = _do_nothing
        #: That of the call, which its end needs too.
        self.context: Context = copy_context()
        self._steps = steps
        #: None when the call has ended.
        self._waiter: Signal | None = wait.waiter
        self._makers: list[Callable[[Callable[[], Any]], Any]] = []
        self._callback: Callable[[], None] | None = None
        self._stream: PolledStream | None = None
        self._over = self._closed = False

    @property
    def closing(self) -> StreamItem | None:
        """That of the stream."""
        return None if self._stream is None else self._stream.closing

    @property
    def waits(self) -> bool:
        """The result is not there yet: `poll` may block as long as the end of the call takes."""
        return self._stream is None

    def then(self, make: Callable[[Callable[[], Any]], Any]) -> None:
        """Have `make` return the result in the end: its argument returns that of the call, or raises its exception."""
        self._makers.append(make)

    def poll(self, timeout: float) -> list[StreamItem] | None:
        """What follows, as `TaskEventStream.poll`. Does not wait for the result.

        Raises:
            AgentError: that of the call, which has ended.
        """
        if self._stream is None and not self._over:
            self.context.run(self._go_on)
        if self._stream is not None:
            return self._stream.poll(timeout)
        return None if self._over else []

    def _go_on(self) -> None:
        outcome = self._advance()
        if outcome is None:
            return
        self._over = True
        for make in self._makers:
            outcome = partial(make, outcome)
        callback = self._forget()
        try:
            result = outcome()
        except AgentError as error:
            # The frames of its traceback hold the request.
            raise error.with_traceback(None)
        finally:
            del outcome
        stream: Any = result if isinstance(result, EventStream) else SingleItemStream(StreamItem(result))
        if callback is not None:
            stream.notify(callback)
        self._stream, self.deadline = stream, math.inf
        if self._closed:
            stream.close()

    def _forget(self) -> Callable[[], None] | None:
        """Drop what refers back to this reply, and return the callback.

        References in a circle would keep the request in memory until the next full garbage collection.
        """
        callback, self._callback = self._callback, None
        self._makers = []
        self._waiter = None
        return callback

    def _advance(self) -> Callable[[], Any] | None:
        """Take the next steps: a function that returns or raises how they have ended; None: they wait."""
        try:
            # What the caller of a closed one waited for may be there: to go on would read it, and no reader is left.
            wait = self._steps.throw(CallerGone()) if self._closed else self._steps.send(0.0)
            while wait.waiter is not self._waiter or self._closed:
                if self._closed:
                    wait = self._steps.throw(CallerGone())
                else:
                    self._listen(wait.waiter)
                    wait = self._steps.send(0.0)
        except StopIteration as ended:
            return partial(_returned, ended.value)
        except BaseException as error:
            return partial(_raised, error)
        self.deadline = wait.until
        return None

    def _listen(self, waiter: Signal) -> None:
        self._waiter = waiter
        waiter.on_wake = self._callback

    def notify(self, callback: Callable[[], None]) -> None:
        """Call `callback` from now on when ``poll`` may return something else than ``[]``; see `TaskEventStream.notify`."""
        if self._stream is not None:
            self._stream.notify(callback)
        elif self._waiter is not None:
            self._callback = callback
            self._listen(self._waiter)

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(0)) is not None:
            yield from items

    def close(self) -> None:
        """The caller has left: the next poll raises `CallerGone`, if none has had the result; the stream is closed otherwise."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()
        elif self._callback is not None:
            self._callback()


def within(around: AbstractContextManager[None], endpoint: Endpoint, call: Call[Any, Any]) -> Any:
    """The result of `endpoint`, called in the context `around`, which lasts until a `PendingReply` has ended."""
    # Without an `ExitStack`, which would take longer than all of this.
    around.__enter__()
    try:
        result = endpoint(call)
    except BaseException as error:
        around.__exit__(type(error), error, error.__traceback__)
        raise
    if isinstance(result, PendingReply):
        result.then(partial(_leave, around))
    else:
        around.__exit__(None, None, None)
    return result


def _leave(around: AbstractContextManager[None], outcome: Callable[[], Any]) -> Any:
    with ExitStack() as stack:
        stack.push(around)
        return outcome()


def changed(result: Any, change: Callable[[Any], Any]) -> Any:
    """What `change` makes of the result of a call, now or when a `PendingReply` has it."""
    if not isinstance(result, PendingReply):
        return change(result)
    result.then(lambda outcome: change(outcome()))
    return result


def _do_nothing() -> None:
    pass


def _returned(result: Any) -> Any:
    return result


def _raised(error: BaseException) -> Any:
    raise error
