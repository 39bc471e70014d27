"""Tools that introduce defects: between endpoint and handler, on the wire, in the client, or inside the library.

`tests.conformance.variants` applies them. They are independent of the checks.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode

import requests
from werkzeug.datastructures import Headers

from a2a_sync import A2AApp, Client
from a2a_sync.operations import Call, Endpoint, GeneratorInterceptor, Operation, StreamItem

Change = Callable[[Any], Any]


def deep(change: Change) -> Change:
    """Change every object in a JSON value, the innermost first."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return change({name: walk(item) for name, item in value.items()})
        return [walk(item) for item in value] if isinstance(value, list) else value

    return walk


def leaves(change: Change) -> Change:
    """Change every value in a JSON value that is neither an object nor an array."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(item) for name, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list) else change(value)

    return walk


def result_of(change: Change) -> Change:
    """Change the result of a response or event, with or without the envelope of JSON-RPC."""

    def within(value: Any) -> Any:
        if isinstance(value, dict) and "jsonrpc" in value:
            return {**value, "result": change(value["result"])} if "result" in value else value
        return value if isinstance(value, dict) and "error" in value else change(value)

    return within


# -- the wire -----------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """A complete response before it is sent; variants change it."""

    environ: dict[str, Any]
    status: int
    headers: Headers
    body: bytes

    @property
    def value(self) -> Any:
        """The JSON of the body, or None."""
        return _read(self.body)

    @value.setter
    def value(self, value: Any) -> None:
        self.body = _written(value)

    @property
    def error(self) -> dict[str, Any] | None:
        """The error of the answer."""
        value = self.value
        error = value.get("error") if isinstance(value, dict) else None
        return error if isinstance(error, dict) else None

    @property
    def is_card(self) -> bool:
        """Whether it is the public card."""
        return "/.well-known/agent" in self.environ["PATH_INFO"]


def answering(change: Callable[[Answer], None]) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: change every response except streams."""

    def wsgi(app: A2AApp) -> Any:
        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            head, chunks = _begun(app, environ)
            if head[1].get("Content-Type", "").startswith("text/event-stream"):
                start_response(head[0], list(head[1]))
                return chunks
            answer = Answer(environ, int(head[0][:3]), head[1], b"".join(chunks))
            _close(chunks)
            change(answer)
            if "Content-Length" in answer.headers:
                answer.headers["Content-Length"] = str(len(answer.body))
            start_response(f"{answer.status} Changed", list(answer.headers))
            return [answer.body]

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
    """Change each chunk of a response."""

    def __init__(self, chunks: Iterable[bytes], change: Callable[[bytes], bytes]) -> None:
        self._chunks = chunks
        self._change = change

    def __iter__(self) -> Iterator[bytes]:
        return map(self._change, self._chunks)

    def close(self) -> None:
        _close(self._chunks)


def streaming(change: Callable[[bytes], bytes]) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: change every chunk of a stream. A chunk consists of whole frames."""

    def wsgi(app: A2AApp) -> Any:
        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            head, chunks = _begun(app, environ)
            start_response(head[0], list(head[1]))
            events = head[1].get("Content-Type", "").startswith("text/event-stream")
            return _Rewritten(chunks, change) if events else chunks

        return answer

    return wsgi


def changing_json(change: Change) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: change the JSON of every response and every event."""

    def whole(answer: Answer) -> None:
        if (value := answer.value) is not None:
            answer.value = change(value)

    return lambda app: answering(whole)(streaming(events(change))(app))


def events(change: Change) -> Callable[[bytes], bytes]:
    """For `streaming`: change the JSON of each event; None drops it."""

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
    """A request before it is parsed; variants change it."""

    environ: dict[str, Any]
    body: bytes

    @property
    def value(self) -> Any:
        """The JSON of the body, or None."""
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
        """The params of the request; empty if it has none."""
        value = self.value
        if isinstance(value, dict) and "jsonrpc" in value:
            value = value.get("params")
        return value if isinstance(value, dict) else {}

    def is_for(self, method: str, path: str) -> bool:
        """Whether it calls this JSON-RPC method, or an HTTP+JSON path with this end."""
        value = self.value
        if isinstance(value, dict) and "jsonrpc" in value:
            return bool(value.get("method") == method)
        return bool(self.environ["PATH_INFO"].endswith(path))


def asking(change: Callable[[Asked], None]) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: change every request before it is parsed."""

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
    """For `Variant.wsgi`: change the JSON of every request."""

    def whole(asked: Asked) -> None:
        if (value := asked.value) is not None:
            asked.value = change(value)

    return asking(whole)


def in_parameters(name: str, change: Change) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: change a parameter in the query, or at any depth of a body; None drops it."""

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
    """For `Variant.app`: replace every call by `fault(endpoint, call)`."""

    def app(agent: Any, **options: Any) -> A2AApp:
        return A2AApp(agent, interceptors=[_Faulty(fault)], **options)

    return app


class _Faulty(GeneratorInterceptor):
    """Serves gRPC too, whose calls hold a thread then, so that a defect is in results themselves."""

    def __init__(self, fault: Callable[[Endpoint, Call], Any]) -> None:
        self._fault = fault

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        def faulty(call: Call) -> Any:
            return self._fault(endpoint, replace(call, context=replace(call.context, deferred_after=math.inf)))

        return faulty


def with_requests(change: Callable[[Any], Any], *operations: Operation) -> Callable[..., A2AApp]:
    """For `Variant.app`: change the requests of these operations."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        return endpoint(replace(call, request=change(call.request)) if call.operation in operations else call)

    return calling(fault)


def with_results(change: Callable[[Any], Any], *operations: Operation) -> Callable[..., A2AApp]:
    """For `Variant.app`: change the results of these operations."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        result = endpoint(call)
        return change(result) if call.operation in operations else result

    return calling(fault)


def forgiving(error: type[Exception], instead: Callable[[Endpoint, Call], Any], *operations: Operation) -> Any:
    """For `Variant.app`: replace the error `error` of these operations by another outcome."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        try:
            return endpoint(call)
        except error:
            if call.operation not in operations:
                raise
            return instead(endpoint, call)

    return calling(fault)


class Stream:
    """A stream that delegates to a server's stream; subclasses change it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    @property
    def closing(self) -> Any:
        return self.stream.closing

    def poll(self, timeout: float) -> list[StreamItem] | None:
        items: list[StreamItem] | None = self.stream.poll(timeout)
        return items if items is None else [new for item in items for new in self.items(item)]

    def items(self, item: StreamItem) -> list[StreamItem]:
        """The replacement of an item."""
        return [item]

    def __iter__(self) -> Iterator[StreamItem]:
        while (items := self.poll(1.0)) is not None:
            yield from items

    def close(self) -> None:
        self.stream.close()


def with_streams(cls: Callable[[Any], Any], *operations: Operation) -> Callable[..., A2AApp]:
    """For `Variant.app`: wrap the streams of these operations (of all, if none is named)."""

    def fault(endpoint: Endpoint, call: Call) -> Any:
        result = endpoint(call)
        return (
            cls(result) if call.operation.streaming and call.operation in (operations or (call.operation,)) else result
        )

    return calling(fault)


def dropping(unwanted: Callable[[Any], bool]) -> type[Stream]:
    """For `with_streams`: drop events."""

    class Dropping(Stream):
        def items(self, item: StreamItem) -> list[StreamItem]:
            return [] if unwanted(item.event) else [item]

    return Dropping


# -- inside and in the client -------------------------------------------------------------------------------------------


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[object]]:
    """For `Variant.inside`: replace an attribute of the library by the result of `make`. `owner` may be the name of a module."""
    if isinstance(owner, str):
        return lambda: patch(f"{owner}.{name}", make(_attribute(owner, name)))
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def _attribute(module: str, name: str) -> Any:
    return getattr(__import__(module, fromlist=[name]), name)


def posting(change: Callable[[dict[str, Any]], None]) -> Callable[..., Client]:
    """For `Variant.client`: change the arguments of every request (`method`, `url`, `headers`, `data` …)."""

    class Session(requests.Session):
        def request(self, method: Any, url: Any, **options: Any) -> Any:
            asked = {"method": method, "url": url, **options}
            change(asked)
            return super().request(**asked)

    def client(target: Any, **options: Any) -> Client:
        return Client(target, **{"session": Session(), **options})

    return client


def around_calls(fault: Callable[[Endpoint, Call], Any]) -> Callable[..., Client]:
    """For `Variant.client`: replace every call by `fault`."""

    def client(target: Any, **options: Any) -> Client:
        def around(endpoint: Endpoint) -> Endpoint:
            return lambda call: fault(endpoint, call)

        return Client(target, **{**options, "interceptors": [*options.get("interceptors", ()), around]})

    return client
