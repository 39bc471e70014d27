"""Streams that are cut on their way, after as many events as a test says, whoever serves them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from a2a_sync.operations import Call, Endpoint, EventStream, StreamItem

if TYPE_CHECKING:
    from a2a_sync.card import AgentCard


class _Counts:
    """How many events each next stream may have; None: all."""

    def __init__(self, counts: Iterable[int]) -> None:
        self._lock = threading.Lock()
        self._left = iter(tuple(counts))

    def next(self) -> int | None:
        with self._lock:
            return next(self._left, None)


class CutStreams:
    """A WSGI middleware around `app` (ours or any other) that breaks the connections of event streams.

    The first stream breaks after ``after[0]`` events, the next one after ``after[1]``, and so on; those that follow are left
    alone, as is everything that is no stream. 0 breaks a stream before its first event. From any thread::

        session = wsgi_session(CutStreams(app, 2))
    """

    def __init__(self, app: WSGIApplication, *after: int) -> None:
        self._app = app
        self._counts = _Counts(after)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        streams: list[bool] = []

        def starting(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            kinds = [value for name, value in headers if name.lower() == "content-type"]
            streams.append(any(kind.startswith("text/event-stream") for kind in kinds))
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        body = self._app(environ, starting)
        after = self._counts.next() if any(streams) else None
        return body if after is None else _Broken(body, after)


class _Broken:
    """A body that breaks after so many events; ``close`` reaches the application's."""

    def __init__(self, body: Iterable[bytes], after: int) -> None:
        self._body = body
        self._after = after

    def __iter__(self) -> Iterator[bytes]:
        passed, rest = 0, b""
        # Servers send the headers with the first bytes.
        yield b": cut\n\n"
        if not self._after:
            raise ConnectionResetError("cut by the test")
        for piece in self._body:
            *frames, rest = (rest + piece).split(b"\n\n")
            for frame in frames:
                yield frame + b"\n\n"
                passed += b"data:" in frame
                if passed == self._after:
                    raise ConnectionResetError("cut by the test")

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()


class CutCalls:
    """An app or agent as a client in the same process sees it, its streams ended as `CutStreams` breaks them."""

    def __init__(self, target: Any, after: Iterable[int]) -> None:
        self._target = target
        self._counts = _Counts(after)

    def agent_card(self) -> AgentCard:
        card: AgentCard = self._target.agent_card()
        return card

    def endpoint(self) -> Endpoint:
        endpoint: Endpoint = self._target.endpoint()

        def cutting(call: Call) -> Any:
            result = endpoint(call)
            after = self._counts.next() if call.operation.streaming else None
            return result if after is None else _Ended(result, after)

        return cutting


class _Ended:
    """A stream that ends after so many events."""

    def __init__(self, stream: EventStream, after: int) -> None:
        self._stream = stream
        self._after = after

    def __iter__(self) -> Iterator[StreamItem]:
        yield from islice(self._stream, self._after)
        self.close()

    def close(self) -> None:
        self._stream.close()
