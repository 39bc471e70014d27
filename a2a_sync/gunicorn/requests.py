"""Requests and responses of the worker of `a2a_sync.gunicorn`: those of gunicorn, with less work for each of them.

A client repeats the heads of its requests byte for byte, but for the length of the body. Gunicorn parses a head once, and `Heads`
makes later requests with the same bytes from the result. A `Response` sends its head together with the first bytes of its body.
"""

from __future__ import annotations

import io
import re
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from gunicorn.config import PreRequest
from gunicorn.http import wsgi
from gunicorn.http.body import LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.util import http_date

#: The most heads that a worker keeps, and the most bytes of each.
_MAX_HEADS = 256
_MAX_HEAD_BYTES = 4096
#: The most bytes of a body that are copied in order to send them together with the head.
_MAX_JOINED_BYTES = 64 * 1024
#: The longest value of a response header, in characters, whose check is kept.
_MAX_KEPT_VALUE = 200
#: The bytes of an unread body that are copied at once in order to discard them.
_MAX_DISCARDED_BYTES = 1024 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
#: The attributes of a request that its head does not give.
_OF_ONE_MESSAGE = ("unreader", "body", "req_number", "peer_addr", "remote_addr")
#: What gunicorn puts into the environ for one request or one connection.
_OF_ONE_REQUEST = ("wsgi.input", "wsgi.errors", "wsgi.early_hints", "gunicorn.socket", "REMOTE_ADDR", "REMOTE_PORT")


class _Head(NamedTuple):
    """A parsed head: the attributes of its request, and its environ without what belongs to one request."""

    attributes: dict[str, Any]
    #: Those of them that every request has in its class already.
    defaulted: dict[str, Any]
    environ: dict[str, Any]
    #: The place of Content-Length in the headers of the request.
    length_at: int | None


class KnownRequest(Request):  # type: ignore[misc]
    """A request that is made from a known head. Its whole body has arrived."""

    body: Any
    unreader: Any
    req_number: int
    peer_addr: Any
    remote_addr: Any
    #: The bytes after the request.
    rest: bytes

    def __init__(self, head: _Head, data: bytes, end: int, length: bytes) -> None:
        for name, value in head.defaulted.items():
            setattr(self, name, value)
        self._head = head
        self.trailers: list[Any] = []
        self.headers: list[tuple[str, str]] = head.attributes["headers"].copy()
        #: Without what belongs to one connection.
        self.environ: dict[str, Any] = head.environ.copy()
        if head.length_at is not None:
            digits = self.environ["CONTENT_LENGTH"] = length.decode()
            self.headers[head.length_at] = ("CONTENT-LENGTH", digits)
        ends = end + int(length)
        self.body = self.environ["wsgi.input"] = io.BytesIO(data[end:ends])
        self.rest = data[ends:]

    def __getattr__(self, name: str) -> Any:
        """What its head says. A copy would need more memory than the rest of the request."""
        try:
            return self._head.attributes[name]
        except KeyError:
            raise AttributeError(name) from None


class Heads:
    """The heads that a worker has parsed. Safe from many threads.

    What a head means depends on its bytes, on the address that the client has connected to, and on gunicorn's settings. With
    settings by which the address of the client matters as well, or with a hook of the program for requests, no head is kept.
    """

    def __init__(self, cfg: Any) -> None:
        # A hook may change a request for its client.
        hooked = cfg.pre_request is not PreRequest.pre_request
        named = cfg.secure_scheme_headers or cfg.forwarder_headers
        self._enabled = not (named or hooked) and cfg.proxy_protocol == "off"
        self._known: dict[tuple[Any, ...], _Head] = {}

    def find(self, data: bytes, server: Any) -> KnownRequest | None:
        """The request that `data` begins with, if its head is known; all of its bytes must have arrived."""
        end = data.find(b"\r\n\r\n") + 4
        key, length = _key(data[:end], server)
        head = self._known.get(key)
        return None if head is None else KnownRequest(head, data, end, length)

    def keep(self, data: bytes, server: Any, request: Request, environ: dict[str, Any]) -> None:
        """Keep the head of a request that gunicorn has parsed from `data`, if it says no more than the bytes to come."""
        end = data.find(b"\r\n\r\n") + 4
        with_length = isinstance(getattr(request.body, "reader", None), LengthReader)
        if not (self._enabled and with_length and end <= _MAX_HEAD_BYTES) or request._expected_100_continue:
            return
        key, length = _key(data[:end], server)
        places = [place for place, (name, _) in enumerate(request.headers) if name == "CONTENT-LENGTH"]
        if places and request.headers[places[0]][1] != length.decode():
            # Gunicorn reads lengths that `_key` does not find; the next body would be taken for a request.
            return
        attributes = {name: value for name, value in vars(request).items() if name not in _OF_ONE_MESSAGE}
        environ = {name: value for name, value in environ.items() if name not in _OF_ONE_REQUEST}
        if len(self._known) >= _MAX_HEADS:
            self._known.clear()
        defaulted = {name: value for name, value in attributes.items() if hasattr(Request, name)}
        self._known[key] = _Head(attributes, defaulted, environ, places[0] if places else None)


def _key(head: bytes, server: Any) -> tuple[tuple[Any, ...], bytes]:
    """What a head is known by, and the digits of its Content-Length."""
    found = _LENGTH.search(head)
    if found is None:
        return (server, head), b"0"
    return (server, head[: found.start(1)], head[found.end(1) :]), found[1]


class Parser(RequestParser):  # type: ignore[misc]
    """The parser of a connection whose requests the worker receives."""

    mesg: Any
    req_count: int

    def __init__(self, heads: Heads, connection: Any) -> None:
        super().__init__(connection.cfg, connection.sock, connection.client)
        self._heads = heads
        self._connection = connection
        #: The bytes that the current request was parsed from; empty where its head is known, or need not be kept.
        self._parsed = b""

    def __next__(self) -> Any:
        if self._connection.paused is not None:
            return self.mesg
        self._parsed = b""
        if self._connection.sock.received:
            # The request before was read to its end, or its connection would have been closed.
            data = self.unreader.take_buffered()
            request = self._heads.find(data, self._connection.server)
            if request is not None:
                self.unreader.unread(request.rest)
                self.req_count += 1
                request.unreader, request.req_number = self.unreader, self.req_count
                request.peer_addr = request.remote_addr = self.source_addr
                self.mesg = request
                return request
            self._parsed = data
            self.unreader.unread(data)
        return super().__next__()

    def finish_body(self, deadline: float | None = None, max_bytes: int | None = None) -> bool:
        """As in gunicorn, but False for a malformed body: its response was sent, and the one to the error would be a second one."""
        try:
            return type(self.mesg) is KnownRequest or bool(super().finish_body(deadline, max_bytes))
        except Exception:
            return False

    def free_body(self) -> None:
        """Free the memory of the body of the current request: the application has read it, or will not.

        Otherwise an idle connection, and one with an open stream, would keep it until its next request.
        """
        self._parsed = b""
        if type(self.mesg) is KnownRequest:
            self.mesg.body.truncate(0)
        elif self.mesg and self._connection.sock.received:
            # None of it is awaited: it has arrived.
            with suppress(Exception):  # where the next request begins is then unknown, and the connection is closed
                while self.mesg.body.read(_MAX_DISCARDED_BYTES):
                    pass

    def create(self, request: Request) -> tuple[Response, dict[str, Any]]:
        """The response and the environ of a request, as `gunicorn.http.wsgi.create` makes them."""
        cfg, sock, client, server = self.cfg, self._connection.sock, self._connection.client, self._connection.server
        if type(request) is not KnownRequest:
            response, environ = wsgi.create(request, sock, client, server, cfg, response_class=Response)
            if self._parsed:
                self._heads.keep(self._parsed, server, request, environ)
            return response, environ
        response, environ = Response(request, sock, cfg), request.environ
        # It refers to the request. Kept by it, both would stay in memory until a garbage collection.
        del request.environ
        environ["gunicorn.socket"] = sock
        environ["wsgi.errors"] = wsgi.WSGIErrorsWrapper(cfg)
        environ["wsgi.early_hints"] = wsgi._make_early_hints_callback(request, sock, response)
        if isinstance(client, tuple):
            environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = client[0], str(client[1])
        else:
            environ["REMOTE_ADDR"] = client if isinstance(client, str) else client.decode()
        return response, environ


class Response(wsgi.Response):  # type: ignore[misc]
    """The response to a request of a buffered connection."""

    headers_sent: bool
    response_length: int | None

    def process_headers(self, headers: list[tuple[str, str]]) -> None:
        """As in gunicorn; a header that was checked before is not checked again."""
        for header in headers:
            name, value = header
            if name == "Content-Length" and value.isdecimal() and value.isascii():
                self.response_length = int(value)
            elif len(value) > _MAX_KEPT_VALUE or not _is_plain(name, value):
                super().process_headers([header])
                continue
            self.headers.append(header)

    def write(self, data: bytes) -> None:
        """As in gunicorn; the first bytes of the body are sent together with the head."""
        size = len(data)
        whole = self.response_length == size
        if self.headers_sent or not 0 < size <= _MAX_JOINED_BYTES or self._omits_body or not (whole or self.chunked):
            super().write(data)
            return
        head = "".join([*self.default_headers(), *[f"{name}: {value}\r\n" for name, value in self.headers], "\r\n"])
        body = (b"%X\r\n" % size, data, b"\r\n") if self.chunked else (data,)
        self.headers_sent = True
        self.sent = size
        self.sock.sendall(b"".join((head.encode("latin-1"), *body)))

    def default_headers(self) -> list[str]:
        """As in gunicorn."""
        if self.upgrade:
            return list(super().default_headers())
        major, minor = self.req.version
        lines = (
            f"HTTP/{major}.{minor} {self.status}\r\nServer: {self.version}\r\nDate: {_date(int(time.time()))}\r\n"
            f"Connection: {'close' if self.should_close() else 'keep-alive'}\r\n"
        )
        return [lines, "Transfer-Encoding: chunked\r\n"] if self.chunked else [lines]


@lru_cache(1024)
def _is_plain(name: str, value: str) -> bool:
    """Whether gunicorn accepts this header, sends it as it is, and does nothing else for it."""
    probe = wsgi.Response(None, None, None)
    probe.process_headers([(name, value)])
    return probe.headers == [(name, value)] and probe.response_length is None and not probe.upgrade


_date = lru_cache(2)(http_date)
