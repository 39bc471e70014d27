"""The answer of a blocking send for which no thread waits, and what lasts until there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from contextvars import Context, copy_context
from typing import Any

from a2a_sync.engine.hub import Waiter
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import Call, Endpoint, StreamItem
from a2a_sync.types import Task


class CallerGone(OverloadedError):
    """The caller has disconnected, or the server is stopping, so the response is not read. The task continues."""

    def __init__(self) -> None:
        super().__init__("the connection was closed while the task went on")


class PendingReply:
    """A stream of one item: the task of a blocking send, when it has paused. A transport asks for it by `CallContext.deferred`.

    `poll` is for one thread at a time, `close` for any.

    Parameters:
        task_id: the task.
        waiter: wakes when the task may have paused.
        look: returns the task; None: it has not paused.
        deadline: the monotonic time at which `look` returns the task as it is.
        around: is left at the end, with the exception if there is one.
    """

    closing = None

    def __init__(
        self, task_id: str, waiter: Waiter, look: Callable[[], Task | None], deadline: float, around: ExitStack
    ) -> None:
        self.task_id = task_id
        self.deadline = deadline
        #: Make the result of the task, in this order.
        self.changes: list[Callable[[Task], Task]] = []
        #: That of the call, which its end needs too.
        self.context: Context = copy_context()
        self._look = look
        self._waiter = waiter
        self._around = around
        self._over = self._closed = False

    def enclose(self, around: ExitStack) -> None:
        """Leave `around` too at the end."""
        around.push(self._around)
        self._around = around

    def poll(self, timeout: float) -> list[StreamItem] | None:
        """The item, ``[]`` while there is none, then None. Does not wait.

        Raises:
            AgentError: that of the call, which has ended.
        """
        return None if self._over else self.context.run(self._poll)

    def _poll(self) -> list[StreamItem]:
        self._over = True
        with ExitStack() as around:
            around.push(self._around)
            task = self._look()
            if task is None and self._closed:
                raise CallerGone
            if task is None:
                around.pop_all()
                self._over = False
                return []
            for change in self.changes:
                task = change(task)
        return [StreamItem(task)]

    def notify(self, callback: Callable[[], None]) -> None:
        """Call `callback` from now on when ``poll`` may return something else than ``[]``; see `TaskEventStream.notify`."""
        self._waiter.on_wake = callback

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(0)) is not None:
            yield from items

    def close(self) -> None:
        """The caller has left: the next poll raises `CallerGone`, if the task has not paused."""
        self._closed = True
        if self._waiter.on_wake is not None:
            self._waiter.on_wake()


def within(around: AbstractContextManager[None], endpoint: Endpoint, call: Call[Any, Any]) -> Any:
    """The result of `endpoint`, called in the context `around`, which lasts until a `PendingReply` has ended."""
    if not call.context.deferred:
        with around:
            return endpoint(call)
    with ExitStack() as stack:
        stack.enter_context(around)
        result = endpoint(call)
        if isinstance(result, PendingReply):
            result.enclose(stack.pop_all())
        return result
