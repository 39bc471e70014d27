"""Streams, broken."""

from __future__ import annotations

from itertools import count
from typing import Any

from a2a_sync import (
    A2AApp,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)
from a2a_sync import operations as op
from a2a_sync import types as t
from a2a_sync.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from a2a_sync.operations import Call, Endpoint, StreamItem
from tests.conformance.breaking import (
    Answer,
    Asked,
    Stream,
    answering,
    asking,
    calling,
    deep,
    dropping,
    events,
    forgiving,
    result_of,
    streaming,
    with_streams,
)
from tests.conformance.ours import Variant
from tests.conformance.variants.operations import as_new, is_status, looked_at

_ENDS = is_status(TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED)


class _Beginning(Stream):
    """A message is put behind a task."""

    def items(self, item: StreamItem) -> list[StreamItem]:
        if not isinstance(item.event, Message):
            return [item]
        task = Task(id=t.new_id(), context_id=item.event.context_id, status=TaskStatus(state=TaskState.COMPLETED))
        return [StreamItem(task), item]


class _Buffered(Stream):
    """Nothing is sent before the end."""

    def poll(self, timeout: float) -> list[StreamItem] | None:
        if self.__dict__.get("done"):
            return None
        items: list[StreamItem] = []
        while (more := self.stream.poll(0.1)) is not None:
            items += more
        self.done = True
        return items


class _Closing(Stream):
    """Ends in the auth-required state."""

    over = False

    def poll(self, timeout: float) -> list[StreamItem] | None:
        return None if self.over else super().poll(timeout)

    def items(self, item: StreamItem) -> list[StreamItem]:
        self.over = self.over or is_status(TaskState.AUTH_REQUIRED)(item.event)
        return [item]


class _Silent(Stream):
    """A failure ends it without a word."""

    def poll(self, timeout: float) -> list[StreamItem] | None:
        try:
            return super().poll(timeout)
        except Exception:
            return None


class Swapping(Stream):
    """Each artifact comes behind the event that follows it."""

    held: StreamItem | None = None

    def items(self, item: StreamItem) -> list[StreamItem]:
        if self.held is None and isinstance(item.event, TaskArtifactUpdateEvent):
            self.held = item
            return []
        held, self.held = self.held, None
        return [item, *([held] if held is not None else [])]


class _Twice(Stream):
    """What the snapshot holds comes again: one artifact event is doubled."""

    def items(self, item: StreamItem) -> list[StreamItem]:
        return [item, item] if isinstance(item.event, TaskArtifactUpdateEvent) else [item]


class Missing(Stream):
    """What happens between the snapshot and listening gets lost: the first update."""

    seen = 0

    def items(self, item: StreamItem) -> list[StreamItem]:
        self.seen += 1
        return [] if self.seen == 2 and not _ENDS(item.event) else [item]


def _forgetful(agent: Any, **options: Any) -> A2AApp:
    """Each artifact is sent to one of two listeners."""
    turn = count()

    class Sharing(Stream):
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self.turn = next(turn)

        def items(self, item: StreamItem) -> list[StreamItem]:
            mine = (item.number or 0) % 2 == self.turn % 2
            return [item] if mine or not isinstance(item.event, TaskArtifactUpdateEvent) else []

    return with_streams(Sharing, op.SUBSCRIBE_TO_TASK)(agent, **options)


def _jumbled(agent: Any, **options: Any) -> A2AApp:
    """Each second listener gets the events in another order."""
    turn = count()
    return with_streams(
        lambda stream: Swapping(stream) if next(turn) % 2 else stream, op.SUBSCRIBE_TO_TASK, op.SEND_STREAMING_MESSAGE
    )(agent, **options)


def _together(agent: Any, **options: Any) -> A2AApp:
    """Closing one stream closes all."""
    open_streams: list[Stream] = []

    class Tied(Stream):
        over = False

        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            open_streams.append(self)

        def poll(self, timeout: float) -> list[StreamItem] | None:
            return None if self.over else super().poll(min(timeout, 0.1))

        def close(self) -> None:
            super().close()
            for other in open_streams:
                other.over = True  # type: ignore[attr-defined]

    return with_streams(Tied)(agent, **options)


def _owning(endpoint: Endpoint, call: Call) -> Any:
    """A task is cancelled with its stream."""
    result = endpoint(call)
    if call.operation is not op.SEND_STREAMING_MESSAGE:
        return result

    class Owner(Stream):
        task_id = ""

        def items(self, item: StreamItem) -> list[StreamItem]:
            self.task_id = self.task_id or getattr(item.event, "id", "")
            return [item]

        def close(self) -> None:
            super().close()
            try:
                endpoint(Call(op.CANCEL_TASK, t.CancelTaskRequest(id=self.task_id)))
            except (TaskNotCancelableError, TaskNotFoundError):
                pass

    return Owner(result)


class Fixed:
    """A stream of what is given."""

    closing = None

    def __init__(self, *items: StreamItem) -> None:
        self._items: list[StreamItem] | None = list(items)

    def poll(self, timeout: float) -> list[StreamItem] | None:
        items, self._items = self._items, None
        return items or None

    def close(self) -> None:
        pass


def _early_as_events(app: A2AApp) -> Any:
    """Errors in a request for a stream are sent in a stream."""

    def change(answer: Answer) -> None:
        accepted = answer.environ.get("HTTP_ACCEPT", "")
        streams = ":stream" in answer.environ["PATH_INFO"] or ":subscribe" in answer.environ["PATH_INFO"]
        if answer.error is not None and (streams or "event-stream" in accepted or _asks_for_stream(answer)):
            answer.status = 200
            answer.headers["Content-Type"] = "text/event-stream"
            answer.body = b"data: " + answer.body + b"\n\n"

    def keep(asked: Asked) -> None:
        asked.environ["tests.method"] = (asked.value or {}).get("method", "") if isinstance(asked.value, dict) else ""

    return asking(keep)(answering(change)(app))


def _asks_for_stream(answer: Answer) -> bool:
    return answer.environ.get("tests.method") in ("SendStreamingMessage", "SubscribeToTask")


def _in_lines(chunk: bytes) -> bytes:
    return chunk.replace(b'"jsonrpc":"2.0",', b'"jsonrpc":"2.0",\ndata: ').replace(b'{"task":', b'{"task":\ndata: ')


def _one_verb(app: A2AApp) -> Any:
    def change(answer: Answer) -> None:
        if answer.environ["PATH_INFO"].endswith(":subscribe") and answer.environ["REQUEST_METHOD"] == "GET":
            answer.status, answer.body = 405, b"{}"

    def keep(asked: Asked) -> None:
        if asked.environ["PATH_INFO"].endswith(":subscribe") and asked.environ["REQUEST_METHOD"] == "GET":
            asked.environ["PATH_INFO"] += "-by-post"

    return asking(keep)(answering(change)(app))


BROKEN: dict[str, Variant] = {
    "plain events": Variant(
        "V1-STRM-01",
        "the media type of a stream is not text/event-stream",
        wsgi=lambda app: (
            lambda environ, start: app(
                environ,
                lambda status, headers, exc_info=None: start(
                    status, [(n, v.replace("text/event-stream", "text/plain")) for n, v in headers]
                ),
            )
        ),
    ),
    "message behind a task": Variant(
        "V1-STRM-02", "the stream of a message has a task first", app=with_streams(_Beginning)
    ),
    "end swallowed": Variant("V1-STRM-03", "a stream ends without its last event", app=with_streams(dropping(_ENDS))),
    "no task first": Variant(
        "V1-STRM-03",
        "a stream has no task at its start",
        app=with_streams(dropping(lambda event: isinstance(event, Task)), op.SEND_STREAMING_MESSAGE),
    ),
    "bare events": Variant(
        "V1-STRM-04", "events are not wrapped", wsgi=streaming(events(result_of(lambda e: next(iter(e.values())))))
    ),
    "streams by any id": Variant(
        "V1-STRM-05",
        "a stream for an unknown task starts a new one",
        app=forgiving(TaskNotFoundError, as_new, op.SEND_STREAMING_MESSAGE),
    ),
    "streams of ended tasks": Variant(
        "V1-STRM-05",
        "a stream for a terminal task starts a new one",
        app=forgiving(UnsupportedOperationError, as_new, op.SEND_STREAMING_MESSAGE),
    ),
    "errors in streams": Variant("V1-STRM-06", "errors in a request are sent in a stream", wsgi=_early_as_events),
    "buffered": Variant("V1-STRM-07", "a stream is sent at its end", app=with_streams(_Buffered)),
    "many lines": Variant("V1-STRM-08", "the data of an event has several lines", wsgi=streaming(_in_lines)),
    "over at the login": Variant("V1-STRM-10", "a stream ends in the auth-required state", app=with_streams(_Closing)),
    "cut in silence": Variant("V1-STRM-11", "a failing stream ends without an error", app=with_streams(_Silent)),
    "always a new artifact": Variant(
        "V1-STRM-12",
        "chunks of an artifact lack `append`",
        wsgi=streaming(events(deep(lambda members: {n: v for n, v in members.items() if n != "append"}))),
    ),
    "out of order": Variant("V1-ORD-01", "events are reordered", app=with_streams(Swapping)),
    "shared events": Variant("V1-ORD-02", "each event is sent to one subscriber only", app=_forgetful),
    "orders of their own": Variant("V1-ORD-03", "each subscriber gets another order", app=_jumbled),
    "closed together": Variant("V1-ORD-04", "closing one stream closes all", app=_together),
    "dies with its stream": Variant("V1-ORD-05", "a task is cancelled with its stream", app=calling(_owning)),
    "no snapshot": Variant(
        "V1-SUB-01",
        "a subscription has no task at its start",
        app=with_streams(dropping(lambda event: isinstance(event, Task)), op.SUBSCRIBE_TO_TASK),
    ),
    "no end": Variant(
        "V1-SUB-02", "a subscription gets no end", app=with_streams(dropping(_ENDS), op.SUBSCRIBE_TO_TASK)
    ),
    "ended tasks followed": Variant(
        "V1-SUB-03",
        "a subscription to a terminal task returns it and ends",
        app=forgiving(
            UnsupportedOperationError,
            lambda endpoint, call: Fixed(StreamItem(looked_at(endpoint, call))),
            op.SUBSCRIBE_TO_TASK,
        ),
    ),
    "nothing followed": Variant(
        "V1-SUB-04",
        "a subscription to an unknown task is an empty stream",
        app=forgiving(TaskNotFoundError, lambda endpoint, call: Fixed(), op.SUBSCRIBE_TO_TASK),
    ),
    "a gap": Variant(
        "V1-SUB-05", "events after the snapshot are dropped", app=with_streams(Missing, op.SUBSCRIBE_TO_TASK)
    ),
    "repeated events": Variant(
        "V1-SUB-05", "events in the snapshot are sent again", app=with_streams(_Twice, op.SUBSCRIBE_TO_TASK)
    ),
    "subscribed by POST": Variant("V1-SUB-06", "a subscription by GET is refused", wsgi=_one_verb),
}
