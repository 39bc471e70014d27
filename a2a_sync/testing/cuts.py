"""Streams that break after a number of events that the test sets, for any server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from a2a_sync.concurrency.closing import ClosingIterable
from a2a_sync.operations import Call, Endpoint, EventStream, StreamItem

if TYPE_CHECKING:
    from a2a_sync.card import AgentCard


class _EventCounts:
    """The number of events of each next stream; None for all."""

    def __init__(self, counts: Iterable[int]) -> None:
        self._lock = threading.Lock()
        self._left = iter(tuple(counts))

    def next(self) -> int | None:
        with self._lock:
            return next(self._left, None)


class CutStreams:
    """A WSGI middleware around `app`, which may be any application, that breaks the connections of event streams.

    The first stream breaks after ``after[0]`` events, the next one after ``after[1]``, and so on; further streams and
    other responses are unchanged. 0 breaks a stream before its first event. Thread-safe::

        session = wsgi_session(CutStreams(app, 2))
    """

    def __init__(self, app: WSGIApplication, *after: int) -> None:
        self._app = app
        self._counts = _EventCounts(after)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        streams: list[bool] = []

        def capture_headers(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            kinds = [value for name, value in headers if name.lower() == "content-type"]
            streams.append(any(kind.startswith("text/event-stream") for kind in kinds))
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        body = self._app(environ, capture_headers)
        after = self._counts.next() if any(streams) else None
        return body if after is None else ClosingIterable(_broken(body, after), getattr(body, "close", lambda: None))


def _broken(body: Iterable[bytes], after: int) -> Iterator[bytes]:
    """A body that breaks after `after` events."""
    passed, rest = 0, b""
    # Servers send the headers with the first bytes.
    yield b": cut\n\n"
    if not after:
        raise ConnectionResetError("cut by the test")
    for piece in body:
        *frames, rest = (rest + piece).split(b"\n\n")
        for frame in frames:
            yield frame + b"\n\n"
            passed += b"data:" in frame
            if passed == after:
                raise ConnectionResetError("cut by the test")


class CutCalls:
    """A target for clients in the same process whose streams end as those of `CutStreams` break."""

    def __init__(self, target: Any, after: Iterable[int]) -> None:
        self._target = target
        self._counts = _EventCounts(after)

    def agent_card(self) -> AgentCard:
        card: AgentCard = self._target.agent_card()
        return card

    def endpoint(self) -> Endpoint:
        endpoint: Endpoint = self._target.endpoint()

        def cut(call: Call[Any, Any]) -> Any:
            result = endpoint(call)
            after = self._counts.next() if call.operation.streaming else None
            return result if after is None else ClosingIterable(_end_after(result, after), result.close)

        return cut


def _end_after(stream: EventStream, count: int) -> Iterator[StreamItem]:
    yield from islice(stream, count)
    stream.close()
