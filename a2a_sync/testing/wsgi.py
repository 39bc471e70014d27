"""The client without a socket: a transport for `requests` that calls a WSGI application, streaming included::

    session = wsgi_session(app)
    with Client("http://agent.test", session=session) as client: ...

The application runs on the calling thread. The module is independent of agents and tasks.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from http.client import HTTPMessage
from typing import Any
from urllib.parse import urlsplit
from wsgiref.types import WSGIApplication

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
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
        self._responses = HTTPAdapter()

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
        environ["HTTP_HOST"] = urlsplit(request.url or "").netloc
        environ["SERVER_PROTOCOL"] = "HTTP/1.1"
        status, headers, body_of_app = _call(self._app, environ)
        raw = HTTPResponse(
            body=io.BufferedReader(body_of_app),
            headers=HTTPHeaderDict(headers),
            status=int(status[:3]),
            reason=status[4:],
            preload_content=False,
            request_method=request.method,
            original_response=_Original(headers),  # type: ignore[arg-type]
        )
        return self._responses.build_response(request, raw)

    def close(self) -> None:
        """Do nothing: there are no open connections."""


def _call(app: WSGIApplication, environ: dict[str, Any]) -> tuple[str, HTTPHeaderDict, _Body]:
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
    return status, HTTPHeaderDict(headers), _Body(first, chunks, getattr(iterable, "close", None))


class _Original:
    """What requests needs of a response of `http.client`: the headers that may set cookies of the session."""

    def __init__(self, headers: HTTPHeaderDict) -> None:
        self.msg = HTTPMessage()
        for value in headers.getlist("Set-Cookie"):
            self.msg["Set-Cookie"] = value

    def isclosed(self) -> bool:
        return False

    def close(self) -> None:
        pass


class _Body(io.RawIOBase):
    """A body whose reads are the application's chunks."""

    def __init__(self, first: bytes, chunks: Iterator[bytes], close: Any) -> None:
        self._chunks = chunks
        self._close_app = close
        self._left = first

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """The next chunk, or the part of it that fits; 0 at the end, where the iterable of the application is closed."""
        try:
            while not self._left and (chunk := next(self._chunks, None)) is not None:
                self._left = chunk
        except ConnectionError as error:
            self.close()
            raise ProtocolError("Connection broken", error) from error
        if not self._left:
            self.close()
        data, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

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
