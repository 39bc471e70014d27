"""The endpoint for an app or agent of this process: no network and no JSON, with the same limits and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from a2a_sync.card import AgentCard
from a2a_sync.client.deadlines import Alarm, AlarmClock, Deadline
from a2a_sync.errors import AgentError, TransportTimeoutError
from a2a_sync.operations import Call, Endpoint, EventStream, StreamItem


class LocalAgent(Protocol):
    """An agent that can be called without a network: an `A2AApp`, or an `Agent`."""

    def endpoint(self) -> Endpoint: ...

    def agent_card(self) -> AgentCard: ...


class LocalEndpoint:
    """Applies the total limit of calls to `endpoint`, which stops waiting when the limit is reached. Safe from many threads.

    `closed` says whether the client was closed, which also ends a call that waits.

    Raises (from a call, and from the streams it returns):
        AgentError: the error of the agent.
        TransportTimeoutError: the total limit was reached; the task continues.
    """

    def __init__(self, endpoint: Endpoint, agent: str, alarms: AlarmClock, closed: Callable[[], bool]) -> None:
        self._endpoint = endpoint
        self._agent = agent
        self._alarms = alarms
        self._closed = closed

    def __call__(self, call: Call[Any, Any]) -> Any:
        deadline = Deadline.after(call.context.timeout)
        until = None if deadline.left is None else deadline.at
        context = replace(call.context, deadline=until, gone=lambda: deadline.expired or self._closed())
        try:
            result = self._endpoint(Call(call.operation, call.request, context))
        except AgentError:
            if deadline.expired:
                raise self._timed_out("send") from None
            raise
        if deadline.expired and not call.operation.streaming:
            raise self._timed_out("send")
        if call.operation.streaming and deadline.left is not None:
            return _LimitedStream(result, deadline, self._alarms, lambda: self._timed_out("stream"))
        return result

    def _timed_out(self, phase: str) -> TransportTimeoutError:
        return TransportTimeoutError("the overall limit ran out", phase=phase, agent=self._agent)


class _LimitedStream:
    """A stream that is closed at its deadline."""

    def __init__(
        self, stream: EventStream, deadline: Deadline, alarms: AlarmClock, error: Callable[[], TransportTimeoutError]
    ) -> None:
        self._stream = stream
        self._alarms = alarms
        self._error = error
        self._alarm: Alarm = alarms.set(deadline.at, stream.close)

    def __iter__(self) -> Iterator[StreamItem]:
        try:
            yield from self._stream
        finally:
            self.close()
        if self._alarm.fired:
            raise self._error()

    def close(self) -> None:
        self._alarms.cancel(self._alarm)
        self._stream.close()
