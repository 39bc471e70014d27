"""A WSGI server reduced to one request at a time on the calling thread, with the standard library's validator inside.

What an application gets from here and gives back is held against PEP 3333 at every step, so a test that goes through
`Peer` also tests that the application keeps the rules.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from wsgiref.validate import validator

from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder

CARD = "/.well-known/agent-card.json"
OLD_CARD = "/.well-known/agent.json"
HOST = "agent.test"
JSON_HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}


@dataclass(frozen=True)
class Answer:
    """A complete answer."""

    status: int
    headers: Headers
    body: bytes

    @property
    def json(self) -> Any:
        """The body's JSON."""
        return json.loads(self.body)

    @property
    def result(self) -> Any:
        """What a JSON-RPC answer carries."""
        assert "error" not in self.json, self.body
        return self.json["result"]

    @property
    def error(self) -> Any:
        """The error of a JSON-RPC answer."""
        assert "result" not in self.json, self.body
        return self.json["error"]


@dataclass(frozen=True)
class Frame:
    """One server-sent event, or one comment (then ``data`` is empty)."""

    lines: tuple[str, ...]

    def field(self, name: str) -> str | None:
        """The value of the first line with this name; the name of a comment is empty."""
        found = [line.partition(": ")[2] for line in self.lines if line.partition(":")[0] == name]
        return found[0] if found else None

    @property
    def id(self) -> int | None:
        """The number of the event."""
        value = self.field("id")
        return None if value is None else int(value)

    @property
    def json(self) -> Any:
        """The JSON-RPC answer in the event."""
        value = self.field("data")
        assert value is not None, self.lines
        return json.loads(value)


@dataclass
class OpenAnswer:
    """An answer whose body is taken piece by piece; close it."""

    status: int
    headers: Headers
    chunks: Iterator[bytes]
    iterable: Any
    read: list[bytes] = field(default_factory=list)

    def chunk(self) -> bytes:
        """The next piece; ``b""`` at the end."""
        piece = next(self.chunks, b"")
        self.read.append(piece)
        return piece

    def frames(self) -> Iterator[Frame]:
        """The events and comments as they come."""
        left = ""
        while piece := self.chunk():
            *blocks, left = (left + piece.decode()).split("\n\n")
            yield from (Frame(tuple(block.split("\n"))) for block in blocks)
        assert left == "", "the body ends within an event"

    def events(self) -> Iterator[Any]:
        """What the stream's answers carry, comments passed over."""
        return (frame.json["result"] for frame in self.frames() if frame.field("data") is not None)

    def close(self) -> None:
        """What a server does when the answer is through or the client has gone."""
        if hasattr(self.iterable, "close"):
            self.iterable.close()

    def __enter__(self) -> OpenAnswer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CountingInput(io.BytesIO):
    """A request body that counts how much of it was pulled."""

    pulled = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.pulled += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer)
        self.pulled += count
        return count


class Peer:
    """Sends requests to a WSGI application; `valid` is switched off for what no server would let through."""

    def __init__(self, app: Any, *, valid: bool = True) -> None:
        #: The application itself, for other transports.
        self.served = app
        self.app = validator(app) if valid else app

    def open(
        self,
        method: str,
        path: str = "/",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        environ: Mapping[str, Any] | None = None,
    ) -> OpenAnswer:
        """Call the application and come back when it has named its status. `environ` stands over everything else."""
        variables = environ_of(method, path, body, headers or {})
        variables.update(environ or {})
        named: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            named.append((status, headers))
            return lambda data: None

        iterable = self.app(variables, start_response)
        assert len(named) == 1, "the application names its status once, before it returns"
        status, fields = named[0]
        return OpenAnswer(int(status[:3]), Headers(fields), iter(iterable), iterable)

    def request(
        self,
        method: str,
        path: str = "/",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        environ: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Send a request and read the whole answer."""
        with self.open(method, path, body, headers, environ) as answer:
            return Answer(answer.status, answer.headers, b"".join(answer.chunks))

    def post(self, body: bytes, headers: Mapping[str, str] | None = None, path: str = "/", **options: Any) -> Answer:
        """Send a body to the endpoint, as JSON of protocol 1.0 unless `headers` say otherwise."""
        return self.request("POST", path, body, {**JSON_HEADERS, **(headers or {})}, **options)

    def call(self, method: str, params: Any = None, id: Any = 1, **options: Any) -> Answer:
        """One JSON-RPC call."""
        return self.post(rpc(method, params, id), **options)

    def stream(self, method: str, params: Any, id: Any = 1, headers: Mapping[str, str] | None = None) -> OpenAnswer:
        """One streaming JSON-RPC call; close what comes back."""
        return self.open("POST", "/", rpc(method, params, id), {**JSON_HEADERS, **(headers or {})})


def environ_of(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    builder = EnvironBuilder(
        method=method,
        path=path,
        base_url=f"http://{HOST}",
        headers=list(headers.items()),
        input_stream=io.BytesIO(body),
    )
    environ = dict(builder.get_environ())
    environ["SERVER_PROTOCOL"] = "HTTP/1.1"
    environ["CONTENT_LENGTH"] = str(len(body))
    if not body:
        del environ["CONTENT_LENGTH"]
    return environ


def rpc(method: str, params: Any = None, id: Any = 1) -> bytes:
    """The body of a JSON-RPC call."""
    call = {"jsonrpc": "2.0", "id": id, "method": method}
    return json.dumps(call if params is None else {**call, "params": params}).encode()


def message(text: str = "echo hi", **members: Any) -> dict[str, Any]:
    """The params of a send."""
    return {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}], **members}}


def message_v03(text: str = "echo hi", **members: Any) -> dict[str, Any]:
    """The params of a send in protocol 0.3."""
    parts = [{"kind": "text", "text": text}]
    return {"message": {"kind": "message", "messageId": "m-1", "role": "user", "parts": parts, **members}}
