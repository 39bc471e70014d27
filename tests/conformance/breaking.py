"""Tools that break the library: between its endpoint and its handler, on its wire, in its client, or inside of it.

What is broken with them stands in `tests.conformance.variants`. They know nothing of the checks.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode

import requests
from werkzeug.datastructures import Headers

from a2a_sync import A2AApp, Client
from a2a_sync.operations import Call, Endpoint, Operation, StreamItem

Change = Callable[[Any], Any]


def deep(change: Change) -> Change:
    """A change of every object in a JSON value, the inner ones first."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return change({name: walk(item) for name, item in value.items()})
        return [walk(item) for item in value] if isinstance(value, list) else value

    return walk


def leaves(change: Change) -> Change:
    """A change of everything in a JSON value that is neither an object nor an array."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(item) for name, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list) else change(value)

    return walk


def result_of(change: Change) -> Change:
    """A change of what an answer or an event carries, in the envelope of JSON-RPC or without one."""

    def within(value: Any) -> Any:
        if isinstance(value, dict) and "jsonrpc" in value:
            return {**value, "result": change(value["result"])} if "result" in value else value
        return value if isinstance(value, dict) and "error" in value else change(value)

    return within


# -- the wire -----------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """A whole answer before it goes out, to be changed."""

    environ: dict[str, Any]
    status: int
    headers: Headers
    body: bytes

    @property
    def value(self) -> Any:
        """The JSON; None where there is none."""
        return _read(self.body)

    @value.setter
    def value(self, value: Any) -> None:
        self.body = _written(value)

    @property
    def error(self) -> dict[str, Any] | None:
        """The error that it tells."""
        value = self.value
        error = value.get("error") if isinstance(value, dict) else None
        return error if isinstance(error, dict) else None

    @property
    def is_card(self) -> bool:
        """It is the public card."""
        return "/.well-known/agent" in self.environ["PATH_INFO"]


def answering(change: Callable[[Answer], None]) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: every answer but streams is changed."""

    def wsgi(app: A2AApp) -> Any:
        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            head, chunks = _begun(app, environ)
            if head[1].get("Content-Type", "").startswith("text/event-stream"):
                start_response(head[0], list(head[1]))
                return chunks
            told = Answer(environ, int(head[0][:3]), head[1], b"".join(chunks))
            _close(chunks)
            change(told)
            if "Content-Length" in told.headers:
                told.headers["Content-Length"] = str(len(told.body))
            start_response(f"{told.status} Changed", list(told.headers))
            return [told.body]

        return answer

    return wsgi


def _begun(app: Any, environ: dict[str, Any]) -> tuple[tuple[str, Headers], Iterable[bytes]]:
    head: list[Any] = []
    chunks = app(environ, lambda status, headers, exc_info=None: head.extend((status, Headers(headers))))
    return (head[0], head[1]), chunks


def _close(chunks: Iterable[bytes]) -> None:
    if hasattr(chunks, "close"):
        chunks.close()


class _Rewritten:
    """The chunks of an answer, each changed."""

    def __init__(self, chunks: Iterable[bytes], change: Callable[[bytes], bytes]) -> None:
        self._chunks = chunks
        self._change = change

    def __iter__(self) -> Iterator[bytes]:
        return map(self._change, self._chunks)

    def close(self) -> None:
        _close(self._chunks)


def streaming(change: Callable[[bytes], bytes]) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: every chunk of a stream is changed. A chunk holds whole frames."""

    def wsgi(app: A2AApp) -> Any:
        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            head, chunks = _begun(app, environ)
            start_response(head[0], list(head[1]))
            events = head[1].get("Content-Type", "").startswith("text/event-stream")
            return _Rewritten(chunks, change) if events else chunks

        return answer

    return wsgi


def telling(change: Change) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: the JSON of every answer and of every event is changed."""

    def whole(answer: Answer) -> None:
        if (value := answer.value) is not None:
            answer.value = change(value)

    return lambda app: answering(whole)(streaming(events(change))(app))


def events(change: Change) -> Callable[[bytes], bytes]:
    """For `streaming`: a change of the JSON of each event. What becomes None is left out."""

    def chunk(data: bytes) -> bytes:
        return b"".join(_event(block, change) for block in data.split(b"\n\n") if block)

    return chunk


def _event(block: bytes, change: Change) -> bytes:
    lines = []
    for line in block.split(b"\n"):
        if line.startswith(b"data: "):
            value = change(json.loads(line[6:]))
            if value is None:
                return b""
            line = b"data: " + _written(value)
        lines.append(line)
    return b"\n".join(lines) + b"\n\n"


@dataclass
class Asked:
    """A request before it is read, to be changed."""

    environ: dict[str, Any]
    body: bytes

    @property
    def value(self) -> Any:
        """The JSON; None where there is none."""
        return _read(self.body)

    @value.setter
    def value(self, value: Any) -> None:
        self.body = _written(value)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.environ["QUERY_STRING"], keep_blank_values=True))

    @query.setter
    def query(self, query: dict[str, str]) -> None:
        self.environ["QUERY_STRING"] = urlencode(query)

    @property
    def params(self) -> dict[str, Any]:
        """The params, wherever they stand in a body; empty where there are none."""
        value = self.value
        if isinstance(value, dict) and "jsonrpc" in value:
            value = value.get("params")
        return value if isinstance(value, dict) else {}

    def is_for(self, method: str, path: str) -> bool:
        """It asks for the method of JSON-RPC, or for a path of HTTP+JSON that ends so."""
        value = self.value
        if isinstance(value, dict) and "jsonrpc" in value:
            return bool(value.get("method") == method)
        return bool(self.environ["PATH_INFO"].endswith(path))


def asking(change: Callable[[Asked], None]) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: every request is changed before it is read."""

    def wsgi(app: A2AApp) -> Any:
        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            asked = Asked(dict(environ), environ["wsgi.input"].read(length) if length else b"")
            change(asked)
            asked.environ["wsgi.input"] = io.BytesIO(asked.body)
            if "CONTENT_LENGTH" in environ:
                asked.environ["CONTENT_LENGTH"] = str(len(asked.body))
            return app(asked.environ, start_response)

        return answer

    return wsgi


def asking_with(change: Change) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: the JSON of every request is changed."""

    def whole(asked: Asked) -> None:
        if (value := asked.value) is not None:
            asked.value = change(value)

    return asking(whole)


def in_parameters(name: str, change: Change) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: a parameter is changed wherever it stands, in a body at any depth or in the query; None drops it."""

    def one(members: dict[str, Any]) -> dict[str, Any]:
        if name not in members:
            return members
        value = change(members[name])
        return {
            **{key: item for key, item in members.items() if key != name},
            **({} if value is None else {name: value}),
        }

    def whole(asked: Asked) -> None:
        if (value := asked.value) is not None:
            asked.value = deep(one)(value)
        if name in asked.query:
            asked.query = one(asked.query)

    return asking(whole)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _written(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# -- between the endpoint and the handler -------------------------------------------------------------------------------


def calling(fault: Callable[[Endpoint, Call], Any]) -> Callable[..., A2AApp]:
    """For `Variant.app`: every call is answered with what `fault` makes of it."""

    def app(agent: Any, **options: Any) -> A2AApp:
        def around(endpoint: Endpoint) -> Endpoint:
            return lambda call: fault(endpoint, call)

        return A2AApp(agent, interceptors=[around], **options)

    return app


def with_requests(change: Callable[[Any], Any], *operations: Operation) -> Callable[..., A2AApp]:
    """For `Variant.app`: the requests of these operations are changed."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        return endpoint(replace(call, request=change(call.request)) if call.operation in operations else call)

    return calling(fault)


def with_results(change: Callable[[Any], Any], *operations: Operation) -> Callable[..., A2AApp]:
    """For `Variant.app`: the results of these operations are changed."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        result = endpoint(call)
        return change(result) if call.operation in operations else result

    return calling(fault)


def forgiving(error: type[Exception], instead: Callable[[Endpoint, Call], Any], *operations: Operation) -> Any:
    """For `Variant.app`: where one of these operations is refused with `error`, something else is done instead."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        try:
            return endpoint(call)
        except error:
            if call.operation not in operations:
                raise
            return instead(endpoint, call)

    return calling(fault)


class Stream:
    """A stream of a server that is another's, but for what a subclass says."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    @property
    def closing(self) -> Any:
        return self.stream.closing

    def poll(self, timeout: float) -> list[StreamItem] | None:
        items: list[StreamItem] | None = self.stream.poll(timeout)
        return items if items is None else [new for item in items for new in self.items(item)]

    def items(self, item: StreamItem) -> list[StreamItem]:
        """What is told in place of an item."""
        return [item]

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(1.0)) is not None:
            yield from items

    def close(self) -> None:
        self.stream.close()


def with_streams(cls: Callable[[Any], Any], *operations: Operation) -> Callable[..., A2AApp]:
    """For `Variant.app`: the streams of these operations (none: of all) are put into another one."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        result = endpoint(call)
        return (
            cls(result) if call.operation.streaming and call.operation in (operations or (call.operation,)) else result
        )

    return calling(fault)


def dropping(unwanted: Callable[[Any], bool]) -> type[Stream]:
    """For `with_streams`: events are swallowed."""

    class Dropping(Stream):
        def items(self, item: StreamItem) -> list[StreamItem]:
            return [] if unwanted(item.event) else [item]

    return Dropping


# -- inside and in the client -------------------------------------------------------------------------------------------


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[object]]:
    """For `Variant.inside`: an attribute of the library is what `make` makes of it. `owner` may be the name of a module."""
    if isinstance(owner, str):
        return lambda: patch(f"{owner}.{name}", make(_attribute(owner, name)))
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def _attribute(module: str, name: str) -> Any:
    return getattr(__import__(module, fromlist=[name]), name)


def posting(change: Callable[[dict[str, Any]], None]) -> Callable[..., Client]:
    """For `Variant.client`: the arguments of every request (`method`, `url`, `headers`, `data` …) are changed."""

    class Session(requests.Session):
        def request(self, method: Any, url: Any, **options: Any) -> Any:
            asked = {"method": method, "url": url, **options}
            change(asked)
            return super().request(**asked)

    def client(target: Any, **options: Any) -> Client:
        return Client(target, **{"session": Session(), **options})

    return client


def around_calls(fault: Callable[[Endpoint, Call], Any]) -> Callable[..., Client]:
    """For `Variant.client`: every call is made as `fault` makes it."""

    def client(target: Any, **options: Any) -> Client:
        def around(endpoint: Endpoint) -> Endpoint:
            return lambda call: fault(endpoint, call)

        return Client(target, **{**options, "interceptors": [*options.get("interceptors", ()), around]})

    return client
