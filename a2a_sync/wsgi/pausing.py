"""Bodies of responses that wait: for the events of a stream, or for the result of a call.

A body waits on the thread of its iteration. Where the server resumes bodies (`Connection.resumes`), it pauses instead, which frees the
thread.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from a2a_sync.errors import AgentError
from a2a_sync.limits import Limits
from a2a_sync.server.pending import PendingReply
from a2a_sync.server.responses import ResponseBudget
from a2a_sync.wsgi.connection import Connection


class PausableBody(ABC):
    """A body whose iteration may pause while it waits. Used by one thread at a time, but for `_wake`.

    ``caller`` is the owner that quotas count for; bodies of several callers are continued in turn.
    """

    def __init__(self, connection: Connection, limits: Limits, caller: str) -> None:
        self.caller = caller
        self._connection = connection
        self._limits = limits
        self._pauses = False
        #: What it waits for has happened since it was polled last, or may have.
        self._woken = False
        self._resume: Callable[[], None] | None = None
        #: When a paused iteration continues without being woken, and when the connection was checked last.
        self._due = self._checked = 0.0

    def allow_pauses(self, contended: Callable[[], bool]) -> None:
        """Let the iteration pause where it would wait, which it shows by yielding ``b""``. Called before the iteration.

        While `contended` returns True, others wait for its thread: it does not wait at all. The caller continues it, on any
        thread, when the function that it gave to `resume_when_woken` is called or when it `is_due`.
        """
        self._pauses = True

    def forbid_pauses(self) -> None:
        """Wait on the thread of the iteration from now on."""
        self._pauses = False

    def resume_when_woken(self, resume: Callable[[], None]) -> None:
        """Call `resume` when there is something to write, on any thread, or now if there is; perhaps more than once."""
        self._resume = resume
        if self._woken:
            self._wake()

    def is_due(self, now: float) -> bool:
        """A paused iteration must continue though nothing woke it. Does not wait."""
        if now - self._checked >= self._limits.disconnect_check_interval:
            self._checked = now
            return now >= self._due or self._connection.gone()
        return now >= self._due

    def _wake(self) -> None:
        self._woken = True
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    @abstractmethod
    def __iter__(self) -> Iterator[bytes]: ...

    @abstractmethod
    def close(self) -> None: ...


class PendingBody(PausableBody):
    """The response to a call that waits for its result. The call goes on while it is iterated, and ends when it is closed.

    Parameters:
        pending: the reply to the call.
        respond: starts the response, and returns its body. Its argument returns the result of the call, or raises its error.
        connection, limits, caller: of the request.
        budget: what the response has reserved is released with it.
    """

    def __init__(
        self,
        pending: PendingReply,
        respond: Callable[[Callable[[], Any]], Iterable[bytes]],
        connection: Connection,
        limits: Limits,
        caller: str,
        budget: ResponseBudget,
    ) -> None:
        super().__init__(connection, limits, caller)
        self._pending = pending
        self._respond = respond
        self._budget = budget
        self._waiting = threading.Event()
        pending.notify(self._wake)

    def allow_pauses(self, contended: Callable[[], bool]) -> None:
        super().allow_pauses(contended)
        self._pending.release_thread()

    def _wake(self) -> None:
        self._waiting.set()
        super()._wake()

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (outcome := self._outcome()) is None:
                self._budget.end_count()
                if self._pauses:
                    self._due, self._checked = self._pending.deadline, time.monotonic()
                    yield b""
                else:
                    self._waiting.wait(
                        max(0.0, min(self._pending.deadline - time.monotonic(), self._limits.disconnect_check_interval))
                    )
            response = self._respond(outcome)
        finally:
            self._budget.release()
        yield from response

    def _outcome(self) -> Callable[[], Any] | None:
        """Take the next steps of the call: a function that returns its result or raises its error; None: it waits."""
        self._woken = False
        self._waiting.clear()
        self._budget.count(self.caller)
        try:
            items = self._pending.poll(0.0)
        except Exception as error:
            return partial(_raise, error)
        return (lambda: items[0].event) if items else None

    def close(self) -> None:
        """End the call. The task continues."""
        self._pending.close()
        with suppress(AgentError):
            self._pending.poll(0.0)
        self._budget.release()


def _raise(error: Exception) -> NoReturn:
    raise error
