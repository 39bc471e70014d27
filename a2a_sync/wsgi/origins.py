"""The web pages that may call an app: those of its own site, and those of the origins that it allows (CORS).

A browser sends what any page asks it to send, from inside its visitor's network and with the visitor's cookies; it withholds
the response only, which is too late. Programs are not affected: they do not send the headers that are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: The error of a page of another site.
REFUSED = "a page of another site may not call this agent from its visitor's browser"
#: How long a browser may cache the result of a preflight request, in seconds.
_MAX_AGE = "600"
#: Response headers that a page may read besides those that every page may.
_EXPOSED = "A2A-Extensions, ETag, Retry-After, WWW-Authenticate, X-A2A-Extensions"
_ANY = "*"
#: The longest origin, and the longest list of headers, that a response repeats, in characters.
_MAX_ORIGIN_LENGTH = 512
_MAX_LIST_LENGTH = 1024
_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]*")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Origins:
    """`allowed` are origins, such as ``https://app.example.com``; ``*`` is every one.

    Raises:
        ValueError: one of them is not an origin.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        if isinstance(allowed, str):
            raise TypeError("cors_origins takes a list, not one string")
        self._allowed = frozenset(map(_origin, allowed))

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def allow(self, origin: str) -> bool:
        """Pages of `origin` may call."""
        return len(origin) <= _MAX_ORIGIN_LENGTH and (_ANY in self._allowed or origin.lower() in self._allowed)

    def refuse(self, environ: WSGIEnvironment) -> bool:
        """The request comes from a page of another site that is not allowed."""
        if "HTTP_ORIGIN" not in environ and "HTTP_SEC_FETCH_SITE" not in environ:
            return False
        if environ["REQUEST_METHOD"] in _SAFE_METHODS or (self._allowed and self.allow(environ.get("HTTP_ORIGIN", ""))):
            return False
        site = environ.get("HTTP_SEC_FETCH_SITE")
        if site is not None:
            return site not in ("same-origin", "none")
        # Browsers that do not send it (they do over TLS, and to this machine) send the page's origin.
        return bool(environ["HTTP_ORIGIN"].partition("://")[2] != environ.get("HTTP_HOST"))

    def around(self, app: WSGIApplication) -> WSGIApplication:
        """`app`, whose responses may be read by pages of the allowed origins; preflight requests are answered here."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            origin = environ.get("HTTP_ORIGIN", "")
            if not origin or not self.allow(origin):
                return app(environ, _adding(start_response, [("Vary", "Origin")]))
            named = [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
            if environ["REQUEST_METHOD"] == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ:
                start_response("204 No Content", [*named, *_permission(environ)])
                return []
            return app(environ, _adding(start_response, [*named, ("Access-Control-Expose-Headers", _EXPOSED)]))

        return answer


def _permission(environ: WSGIEnvironment) -> list[tuple[str, str]]:
    """What a page may send: the methods of the protocol, and the headers that it asks for. Never the visitor's cookies."""
    wanted = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")
    allowed = len(wanted) <= _MAX_LIST_LENGTH and _NAMES.fullmatch(wanted)
    return [
        ("Access-Control-Allow-Methods", "GET, POST, DELETE"),
        ("Access-Control-Allow-Headers", wanted if allowed else ""),
        ("Access-Control-Max-Age", _MAX_AGE),
    ]


def _adding(start_response: StartResponse, added: list[tuple[str, str]]) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        vary = ", ".join(value for name, value in headers if name.lower() == "vary")
        kept = [(name, value) for name, value in headers if name.lower() != "vary"]
        new = [(name, f"{vary}, {value}" if name == "Vary" and vary else value) for name, value in added]
        return start_response(status, [*kept, *new], exc_info) if exc_info else start_response(status, [*kept, *new])

    return start


def _origin(text: str) -> str:
    if text == _ANY:
        return text
    parts = urlsplit(text.rstrip("/"))
    if not parts.scheme or not parts.netloc or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{text!r} is not an origin: it has a scheme and a host, such as 'https://app.example.com'")
    return parts.geturl().lower()
