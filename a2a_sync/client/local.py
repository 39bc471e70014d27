"""The endpoint for an app or agent of this process: no network and no JSON, with the same limits and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from a2a_sync.card import AgentCard
from a2a_sync.client.deadlines import Deadline
from a2a_sync.concurrency.alarms import Alarm, AlarmClock
from a2a_sync.concurrency.closing import ClosingIterable
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
            return self._limited(result, deadline)
        return result

    def _timed_out(self, phase: str) -> TransportTimeoutError:
        return TransportTimeoutError("the total timeout expired", phase=phase, agent=self._agent)

    def _limited(self, stream: EventStream, deadline: Deadline) -> EventStream:
        """`stream`, closed at its deadline."""
        alarm = self._alarms.set(deadline.at, stream.close)
        return ClosingIterable(self._items(stream, alarm), partial(self._close, stream, alarm))

    def _items(self, stream: EventStream, alarm: Alarm) -> Iterator[StreamItem]:
        try:
            yield from stream
        finally:
            self._close(stream, alarm)
        if alarm.fired:
            raise self._timed_out("stream")

    def _close(self, stream: EventStream, alarm: Alarm) -> None:
        self._alarms.cancel(alarm)
        stream.close()
