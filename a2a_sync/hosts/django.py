"""An app as Django URL patterns: inside middleware and sessions, with ``request.user`` as the caller.

For an app that needs none of that, put Werkzeug's dispatcher around ``application`` in ``wsgi.py``. On ASGI use
`a2a_sync.hosts.asgi`: Django collects a synchronous stream there before it sends the first byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from a2a_sync.app import A2AApp
from a2a_sync.operations import Principal

__all__ = ["database_connections", "urls"]


def logged_in_user(request: Any) -> Principal | None:
    """The user that Django's own login says is calling; None for anonymous requests."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    return Principal(id=str(user.pk), claims={"username": user.get_username()})


def urls(app: A2AApp, *, principal: Callable[[Any], Principal | str | None] = logged_in_user) -> list[Any]:
    """URL patterns that serve `app`; ``include`` them under a prefix of their own::

        urlpatterns = [path("agents/echo/", include(urls(app)))]

    `principal` takes Django's request and says who is calling. The view is exempt from CSRF checks (its callers are
    programs that send no cookies of their own accord); wrap it in your own decorators through ``include``.

    Raises:
        ImportError: Django is not installed.
    """
    from django.urls import re_path
    from django.views.decorators.csrf import csrf_exempt

    def serve(request: Any, path: str = "") -> Any:
        return _respond(app, request, path, principal(request))

    exempt: Any = csrf_exempt
    return [re_path(r"^(?P<path>.*)$", exempt(serve), name="a2a")]


def _respond(app: A2AApp, request: Any, path: str, caller: Principal | str | None) -> Any:
    from django.http import HttpResponse, StreamingHttpResponse

    environ = _environ(request, path, caller)
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        started.append((status, headers))
        return _no_write

    chunks = app(environ, start_response)
    status, headers = started[-1]
    streams = dict(headers).get("Content-Type", "").startswith("text/event-stream")
    make = StreamingHttpResponse if streams else HttpResponse
    response = make(chunks, status=int(status[:3]), reason=status[4:])
    del response.headers["Content-Type"]
    for header, value in headers:
        response.headers[header] = value
    if streams:
        # GZipMiddleware would keep events back until it has a block of them; what is encoded already it lets pass.
        response.headers["Content-Encoding"] = "identity"
    return response


def _no_write(data: bytes) -> None:
    raise RuntimeError("the write callable of WSGI is not used here")


def _environ(request: Any, path: str, caller: Principal | str | None) -> dict[str, Any]:
    """The request's own environ, split where the patterns begin. The body is the server's stream, read by nobody yet.

    Django's request object gives an empty body for a chunked request; the server's own stream ends where the body does.
    """
    environ = dict(request.environ)
    # Django has put decoded text into its environ; WSGI wants the bytes as latin-1.
    prefix = request.path[: len(request.path) - len(path)].removesuffix("/")
    environ["SCRIPT_NAME"] = prefix.encode().decode("latin-1")
    environ["PATH_INFO"] = ("/" + path).encode().decode("latin-1")
    environ["a2a_sync.principal"] = caller
    return environ


@contextmanager
def database_connections(context: object) -> Iterator[None]:
    """Close what a run has left of Django's database connections, before and after it: ``A2AApp(…, around_run=this)``.

    Runs are executed outside the request cycle, so nobody else would.
    """
    from django.db import close_old_connections

    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
