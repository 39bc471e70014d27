"""An app as Django URL patterns: inside middleware and sessions, with ``request.user`` as the caller.

For an app that needs none of that, put Werkzeug's dispatcher around ``application`` in ``wsgi.py``. On ASGI use
`a2a_sync.integrations.asgi`: Django collects a synchronous stream there before it sends the first byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from werkzeug.test import run_wsgi_app

from a2a_sync.engine.around import database_connections as database_connections
from a2a_sync.integrations.mounting import mounted
from a2a_sync.operations import Principal
from a2a_sync.wsgi.connection import has_body
from a2a_sync.wsgi.origins import REFUSED
from a2a_sync.wsgi.process import Site

__all__ = ["database_connections", "logged_in_user", "urls"]


def logged_in_user(request: Any) -> Principal | None:
    """The user that Django's own login says is calling; None for anonymous requests."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    return Principal(id=str(user.pk), claims={"username": user.get_username()})


def urls(app: Site, *, principal: Callable[[Any], Principal | str | None] = logged_in_user) -> list[Any]:
    """URL patterns that serve `app`; ``include`` them under a prefix of their own::

        urlpatterns = [path("agents/echo/", include(urls(app)))]

    `principal` takes Django's request and says who is calling: an id, a `Principal`, or None. Agents see it as
    ``context.user``, and it owns the tasks it starts. The view is exempt from CSRF tokens, because its callers are programs;
    pages of other sites, but for those in the app's ``cors=``, are refused with 403. It is never inside a transaction of
    ``ATOMIC_REQUESTS``, which would last as long as a stream.

    Raises:
        ImportError: Django is not installed.
    """
    from django.db import close_old_connections
    from django.db.transaction import non_atomic_requests
    from django.urls import re_path
    from django.views.decorators.csrf import csrf_exempt

    def serve(request: Any, path: str = "", **captured: object) -> Any:
        environ = _environ(app, request, path)
        environ["a2a_sync.principal"] = principal(request)
        # Who calls is known: a stream or a blocked send need not hold the thread's connection as long as they last.
        close_old_connections()
        return _respond(app, environ)

    exempt: Any = csrf_exempt
    return [re_path(r"^(?P<path>.*)$", exempt(non_atomic_requests(serve)), name="a2a")]


def _environ(app: Site, request: Any, path: str) -> dict[str, Any]:
    """The environ of the app below the patterns, with the scheme and the host that Django's settings make of the request."""
    from django.core.exceptions import ImproperlyConfigured, PermissionDenied

    if not hasattr(request, "environ"):
        raise ImproperlyConfigured(
            "a2a_sync.integrations.django.urls() needs Django on WSGI; on ASGI put a2a_sync.integrations.asgi.Dispatcher around the"
            " application in asgi.py"
        )
    if app.origins.refuse(request.environ):
        raise PermissionDenied(REFUSED)
    prefix = request.path[: len(request.path) - len(path)].removesuffix("/")
    environ = mounted(request.environ, prefix, "/" + path, _read_before(request))
    environ["wsgi.url_scheme"] = request.scheme
    environ["HTTP_HOST"] = request.get_host()
    return environ


def _read_before(request: Any) -> bytes | None:
    """The body, if a middleware has read it. Not so a chunked one: Django finds none there, and the server still has it."""
    return getattr(request, "_body", None) if request.environ.get("CONTENT_LENGTH") else None


def _respond(app: Site, environ: dict[str, Any]) -> Any:
    from django.http import HttpResponse, StreamingHttpResponse

    chunks, status, headers = run_wsgi_app(app, environ)
    streams = headers.get("Content-Type", "").startswith("text/event-stream")
    make = StreamingHttpResponse if streams else HttpResponse
    content = chunks if streams else b"".join(chunks)
    response = make(content, status=int(status[:3]), reason=status[4:])
    if not streams and (close := getattr(chunks, "close", None)) is not None:
        # Where the app has left a body unread, it ends the connection, so not before the server has sent the answer. Answers
        # to requests without a body can be put into a cache, which can hold no function.
        if has_body(environ):
            response._resource_closers.append(close)
        else:
            close()
    del response.headers["Content-Type"]
    for header, value in headers:
        response.headers[header] = value
    if streams:
        # GZipMiddleware would keep events back until it has a block of them; what is encoded already it lets pass.
        response.headers["Content-Encoding"] = "identity"
    return response
