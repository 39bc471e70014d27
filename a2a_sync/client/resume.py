"""How a stream goes on after a cut: it is opened again where it was cut.

What counts as a cut is known to `TaskStream`; how long to try, to `retry`; how other calls are repeated, to `repeating`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from a2a_sync import operations as op
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.repeating import in_time, told
from a2a_sync.client.retry import Patience, is_passing
from a2a_sync.client.stream import CannotBeFollowed, OneEvent, Place
from a2a_sync.errors import (
    AgentError,
    InvalidParamsError,
    MethodNotFoundError,
    OverloadedError,
    StreamInterruptedError,
    TaskNotFoundError,
    TransportError,
    TransportTimeoutError,
    UnsupportedOperationError,
)
from a2a_sync.operations import EventStream, StreamItem
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import GetTaskRequest, SubscribeToTaskRequest, Task

if TYPE_CHECKING:
    from a2a_sync.client.link import Link

logger = get_logger(__name__)

#: How agents say that a task has just ended, or that there are no streams after all: looking at it tells. Those after
#: the first are what agents of protocol 0.3 say.
NOT_TO_BE_FOLLOWED = (UnsupportedOperationError, MethodNotFoundError, InvalidParamsError, TaskNotFoundError)


class Resumption:
    """Opens one stream again, as often as need be; used on the thread that iterates it.

    `is_send`: the stream is the answer to a message; `repeat` sends that again, where it may be sent twice. It takes a
    limit until the answer begins.
    """

    def __init__(
        self,
        link: Link,
        deadline: Deadline,
        *,
        repeat: Callable[[Deadline], EventStream] | None = None,
        is_send: bool = False,
    ) -> None:
        self._link = link
        self._deadline = deadline
        self._repeat = repeat
        self._is_send = is_send
        self._patience = Patience(link.surroundings.retry)
        self._opened = 0.0
        self._silences = 0  # how often in a row it was opened and ended without a word

    def reopen(self, place: Place, cut: TransportError, closed: threading.Event) -> EventStream | None:
        """The stream from `place` on, or from a snapshot of the task on; None when `closed` was set meanwhile.

        Raises:
            StreamInterruptedError: there is no way back, or none was found in time.
            TransportTimeoutError: the overall limit ran out.
            AgentError, TransportError: the agent's last word.
        """
        if not place.begun and self._is_send and self._repeat is None:
            if self._link.version == "0.3":
                self._see_that_it_exists(place.task_id)
            # Nobody knows whether the message has arrived.
            raise cut
        stood = time.monotonic() - self._opened if self._opened else 0.0
        if not place.idle or stood > self._patience.retry.max_backoff:
            # An interruption of its own: there was news, or the agent was well and had nothing to say.
            self._patience.renew()
        # Without numbers a stream that breaks says no less than one that ends: some servers break it instead of refusing.
        silent = place.idle and self._opened and (place.ended or place.last_event_id is None)
        self._silences = self._silences + 1 if silent else 0
        error: Exception = cut
        while True:
            if not self._rest(place, error, closed):
                return None
            try:
                stream = self._open(place)
            except CannotBeFollowed:
                raise
            except (TransportError, OverloadedError) as failed:
                if not is_passing(failed):
                    raise
                error = failed
            else:
                self._opened = time.monotonic()
                return stream

    def _see_that_it_exists(self, task_id: str) -> None:
        """A message to a task that is not there was refused, whatever became of the answer.

        The official server of 0.3 has no other way to refuse a stream over HTTP+JSON than to break it.
        """
        if task_id:
            with suppress(TransportError, OverloadedError):
                self.look(task_id)

    def look(self, task_id: str) -> Task:
        """The task as it is now.

        Raises:
            StreamInterruptedError: it could not be seen just now.
            TransportTimeoutError: the overall limit ran out.
        """
        try:
            task: Task = self._link.call(
                op.GET_TASK, GetTaskRequest(id=task_id), self._deadline, opening=Deadline.after(self._patience.left)
            )
        except (TransportError, OverloadedError) as error:
            if not is_passing(error):
                raise
            in_time(self._link, self._deadline, error)
            raise StreamInterruptedError(
                f"the task could not be looked at ({told(error)})",
                phase="stream",
                agent=self._link.agent,
                task_id=task_id,
            ) from error
        return task

    def _open(self, place: Place) -> EventStream:
        opening = Deadline.after(self._patience.left)
        if not place.begun and self._repeat is not None:
            return self._repeat(opening)
        numbered = place.last_event_id is not None
        # One silent end may be a cut in a framing that cannot tell the two apart; what is numbered is worth a second try.
        # Without a number a subscription to a task that waits for its client would wait with it.
        if self._silences > numbered or (place.state.interrupted and not numbered):
            task = self.look(place.task_id)
            if task.state.paused:
                return OneEvent(task)
        request = SubscribeToTaskRequest(id=place.task_id)
        try:
            stream: EventStream = self._link.call(
                op.SUBSCRIBE_TO_TASK, request, self._deadline, place.last_event_id, opening=opening
            )
        except NOT_TO_BE_FOLLOWED as refusal:
            return self._ended(place, refusal)
        return _Subscription(stream, lambda refusal: self._ended(place, refusal))

    def _ended(self, place: Place, refusal: AgentError) -> EventStream:
        """The last word on a task that can no longer be followed."""
        task = self.look(place.task_id)
        if task.state.paused:
            return OneEvent(task)
        raise CannotBeFollowed(
            f"the stream was cut, and the agent lets nobody follow the task ({refusal})",
            phase="stream",
            agent=self._link.agent,
            task_id=place.task_id,
        ) from refusal

    def _rest(self, place: Place, error: Exception, closed: threading.Event) -> bool:
        """Pause before the next attempt; False when `closed` was set meanwhile."""
        marks = {"phase": "stream", "agent": self._link.agent, "task_id": place.task_id}
        if self._deadline.expired:
            # The limit itself ended the stream.
            raise TransportTimeoutError("the overall limit ran out", **marks) from error
        pause = self._patience.next(error)
        if pause is None:
            budget = self._patience.retry.max_elapsed
            raise StreamInterruptedError(
                f"the stream was cut and could not be taken up again within {budget:g} seconds ({told(error)})",
                **marks,
            ) from error
        logger.info("a stream was cut (%s); again in %.1f s", told(error), pause, extra={"task_id": place.task_id})
        left = self._deadline.left
        if closed.wait(pause if left is None else min(pause, left)):
            return False
        if self._deadline.expired:
            raise TransportTimeoutError(
                f"the overall limit ran out before the stream could be resumed ({told(error)})", **marks
            ) from error
        return True


class _Subscription:
    """A stream that was opened again. Its agent's refusal may be its first event: so agents of protocol 0.3 say it."""

    def __init__(self, stream: EventStream, refused: Callable[[AgentError], EventStream]) -> None:
        self._stream = stream
        self._refused = refused

    def __iter__(self) -> Iterator[StreamItem]:
        items = iter(self._stream)
        try:
            first = next(items, None)
        except NOT_TO_BE_FOLLOWED as refusal:
            self._stream.close()
            items = iter(self._refused(refusal))
            first = next(items, None)
        if first is not None:
            yield first
            yield from items

    def close(self) -> None:
        self._stream.close()
