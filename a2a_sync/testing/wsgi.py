"""The client without a socket: a transport for `requests` that calls a WSGI application, streaming included::

    session = wsgi_session(app)
    with Client("http://agent.test", session=session) as client: ...

The application runs on the calling thread. The module is independent of agents and tasks.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any
from wsgiref.types import WSGIApplication

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPHeaderDict, HTTPResponse
from urllib3.exceptions import ProtocolError
from werkzeug.test import EnvironBuilder


class WSGIAdapter(BaseAdapter):
    """A transport for `requests` that calls a WSGI application on the calling thread.

    Bodies are not buffered: each chunk that the application yields is one read, and closing the response closes the
    iterable of the application, as a server does when a client disconnects. A `ConnectionError` that the application
    raises while it is read breaks the connection.
    """

    def __init__(self, app: WSGIApplication) -> None:
        super().__init__()
        self._app = app

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send one request. Arguments for timeouts, proxies and certificates are ignored."""
        body = request.body or b""
        builder = EnvironBuilder(
            method=request.method or "GET",
            base_url=None,
            path=request.path_url.split("?")[0],
            query_string=(request.url or "").partition("?")[2],
            data=body.encode() if isinstance(body, str) else body,
            headers=[(name, str(value)) for name, value in request.headers.items() if name.lower() != "content-length"],
        )
        environ = builder.get_environ()
        environ["HTTP_HOST"] = requests.compat.urlparse(request.url or "").netloc
        environ["SERVER_PROTOCOL"] = "HTTP/1.1"
        status, headers, chunks, close = _run(self._app, environ)
        raw = HTTPResponse(
            body=_Body(chunks, close),
            headers=headers,
            status=int(status[:3]),
            reason=status[4:],
            preload_content=False,
            request_method=request.method,
        )
        response = requests.Response()
        response.status_code = raw.status
        response.reason = raw.reason or ""
        response.headers = CaseInsensitiveDict(raw.headers)
        response.url = request.url or ""
        response.raw = raw
        response.request = request
        return response

    def close(self) -> None:
        """Do nothing: there are no open connections."""


def _run(app: WSGIApplication, environ: dict[str, Any]) -> tuple[str, HTTPHeaderDict, Iterator[bytes], Any]:
    """Call the app and read its first chunk, before which it has to call ``start_response``."""
    named: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        named.append((status, headers))
        return lambda data: None

    iterable: Iterable[bytes] = app(environ, start_response)
    chunks = iter(iterable)
    first = next(chunks, b"")
    if not named:
        raise AssertionError("the application sent a body without a status")
    status, headers = named[-1]
    return status, HTTPHeaderDict(headers), _chain(first, chunks), getattr(iterable, "close", None)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _Body(io.RawIOBase):
    """A body whose reads are the application's chunks."""

    def __init__(self, chunks: Iterator[bytes], close: Any) -> None:
        self._chunks = chunks
        self._close_app = close
        self._left = b""

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        """The next chunk, or the part of it that fits; ``b""`` at the end."""
        while not self._left:
            try:
                chunk = next(self._chunks, None)
            except ConnectionError as error:
                self.close()
                raise ProtocolError("Connection broken", error) from error
            if chunk is None:
                self.close()
                return b""
            self._left = chunk
        size = len(self._left) if size is None or size < 0 else size
        data, self._left = self._left[:size], self._left[size:]
        return data

    def read(self, size: int | None = -1) -> bytes:
        """`size` bytes, or everything."""
        parts: list[bytes] = []
        wanted = None if size is None or size < 0 else size
        while wanted is None or wanted > 0:
            data = self.read1(-1 if wanted is None else wanted)
            if not data:
                break
            parts.append(data)
            wanted = None if wanted is None else wanted - len(data)
        return b"".join(parts)

    def close(self) -> None:
        close, self._close_app = self._close_app, None
        super().close()
        if close is not None:
            close()


def wsgi_session(app: WSGIApplication, *prefixes: str) -> requests.Session:
    """A session whose requests to `prefixes` (by default ``http://`` and ``https://``) call `app`."""
    session = requests.Session()
    adapter = WSGIAdapter(app)
    for prefix in prefixes or ("http://", "https://"):
        session.mount(prefix, adapter)
    return session
