"""Responses that belong to no operation: health, metrics, and errors of paths, methods and hosts that are not served.

``/healthz`` reports that the process responds. ``/readyz`` reports whether it can accept work: the store can be read and
written, and the app is not closing. ``/metrics`` is served where the app has `Metrics`. None of them shows anything of tasks
or callers; still, the proxy of a public server need not pass them on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit
from wsgiref.types import WSGIEnvironment

from werkzeug.exceptions import SecurityError
from werkzeug.wrappers import Request, Response

from a2a_sync import jsontext
from a2a_sync.bindings import http_json
from a2a_sync.bindings.routes import LONGEST_VERB, V03_PREFIX
from a2a_sync.codec import by_version
from a2a_sync.codec.fields import shown
from a2a_sync.errors import MethodNotFoundError
from a2a_sync.server.metrics import Metrics
from a2a_sync.wsgi.cards import CARD_PATH

#: Pages without content, served under any host name, as load balancers ask for them.
HEALTH = ("/healthz", "/readyz")
#: Of a request that names what its client has already.
IF_NONE_MATCH, IF_MATCH = "HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"
#: Lists in the head of a request, and what separates their values. They are read before the caller is known, by loops in Python.
_LISTS = (("QUERY_STRING", "&"), (IF_NONE_MATCH, ","), (IF_MATCH, ","))
_MAX_LISTED = 1000
#: The error of a request with `has_long_lists`.
LONG_LISTS = f"the query or a condition of this request has more than {_MAX_LISTED:,} values"
#: The characters of a host and port: the parser of URLs would take a part before ``@`` for a user.
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]+")


class OperatorPages:
    """The pages for operators, at `paths`. `not_ready_reason` returns why no work can be accepted, ``""`` when it can."""

    def __init__(self, not_ready_reason: Callable[[], str], metrics: Metrics | None) -> None:
        self._not_ready_reason = not_ready_reason
        self._metrics = metrics
        self.paths: tuple[str, ...] = (*HEALTH, *(("/metrics",) if metrics is not None else ()))

    def respond(self, path: str, request: Request) -> Response:
        """The page at one of the paths, for GET and HEAD."""
        if path == "/metrics" and self._metrics is not None:
            body, content_type = self._metrics.page()
            return Response(body, content_type=content_type)
        reason = self._not_ready_reason() if path == "/readyz" else ""
        body = jsontext.dumps({"status": reason or "ok"})
        response = Response(body, status=503 if reason else 200, content_type="application/json")
        response.headers["Cache-Control"] = "no-store"
        return response


def method_not_allowed(method: str, allowed: str) -> Response:
    """The response to a method that a path does not support; the one to OPTIONS, which every path does."""
    if method == "OPTIONS":
        response = Response(status=204, headers={"Allow": allowed})
        del response.headers["Content-Type"]
        return response
    response = plain_error(405, f"{method[:LONGEST_VERB]} is not answered here; allowed: {allowed}")
    response.headers["Allow"] = allowed
    return response


def werkzeug_request(environ: WSGIEnvironment) -> Request:
    """The request as Werkzeug reads it.

    The environ, which it keeps, does not refer to it as usual: both would stay in memory until a garbage collection.
    """
    return Request(environ, populate_request=False)


def has_long_lists(environ: WSGIEnvironment) -> bool:
    """A list in the head of a request is too long to be read."""
    return any(environ.get(name, "").count(separator) >= _MAX_LISTED for name, separator in _LISTS)


def host_is_served(environ: WSGIEnvironment, trusted: Iterable[str]) -> bool:
    """The request names a trusted host, or one below a domain that begins with a dot. Ports do not count."""
    try:
        host = host_name(werkzeug_request(environ).host)
    except SecurityError:
        return False
    return bool(host) and any(_matches(host, one) for one in trusted)


def _matches(host: str, trusted: str) -> bool:
    name = host_name(trusted.removeprefix(".").encode("idna").decode("ascii"))
    return host == name or (trusted.startswith(".") and bool(name) and host.endswith(f".{name}"))


def host_name(text: str) -> str:
    """The host of a host and port, in lower case; ``""`` where it is malformed."""
    if not _HOST.fullmatch(text):
        return ""
    try:
        return (urlsplit(f"//{text}").hostname or "").lower()
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """`host` is an IP address."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """`host` is a loopback address."""
    return is_address(host) and ip_address(host).is_loopback


def path_not_found(request: Request) -> Response:
    """The error of a path that is not served, as HTTP+JSON writes it (spec 11.6), in the form of 0.3 below its prefix."""
    path, prefix = request.environ.get("PATH_INFO", ""), request.root_path
    codec = by_version("0.3" if path.startswith(f"/{V03_PREFIX}/") else "1.0", "HTTP+JSON")
    error = MethodNotFoundError(
        f"there is nothing at {shown(prefix + request.path)}; the card is at {prefix}{CARD_PATH}"
    )
    return Response(http_json.write_error(error, codec), status=404, content_type="application/json")


def plain_error(status: int, message: str) -> Response:
    """An error in JSON outside the protocol."""
    body = jsontext.dumps({"error": {"code": status, "message": message}})
    return Response(body, status=status, content_type="application/json")
