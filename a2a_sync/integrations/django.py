"""An app as Django URL patterns: inside middleware and sessions, with ``request.user`` as the caller.

For an app that does not need them, wrap ``application`` in ``wsgi.py`` with Werkzeug's dispatcher. On ASGI use
`a2a_sync.integrations.asgi`: there Django reads a synchronous stream completely before it sends the first byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from werkzeug.test import run_wsgi_app

from a2a_sync.engine.around import database_connections as database_connections
from a2a_sync.integrations.mounting import check_site, mounted_environ
from a2a_sync.operations import Principal
from a2a_sync.wsgi.connection import has_body
from a2a_sync.wsgi.origins import REFUSED
from a2a_sync.wsgi.process import Site

__all__ = ["database_connections", "logged_in_user", "urls"]


def logged_in_user(request: Any) -> Principal | None:
    """The user that is logged in by ``django.contrib.auth``; None for anonymous requests."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    return Principal(id=str(user.pk), claims={"username": user.get_username()})


def urls(app: Site, *, principal: Callable[[Any], Principal | str | None] = logged_in_user) -> list[Any]:
    """URL patterns that serve `app`; ``include`` them under a prefix of their own::

        urlpatterns = [path("agents/echo/", include(urls(app)))]

    `principal` is a function of Django's request that returns the caller: an id, a `Principal`, or None. Agents see it
    as ``context.user``, and it owns the tasks that it starts. The view is exempt from CSRF tokens, because its callers
    are programs; pages of other sites are refused with 403, except for those in the app's
    ``HTTPOptions(cors_origins=…)``. The view is never inside a transaction of ``ATOMIC_REQUESTS``, which would last as
    long as a stream.

    Raises:
        ImportError: Django is not installed.
        TypeError: `app` is no `A2AApp` or `AgentHost`.
    """
    check_site(app)
    from django.db import close_old_connections
    from django.db.transaction import non_atomic_requests
    from django.urls import re_path
    from django.views.decorators.csrf import csrf_exempt

    def serve(request: Any, path: str = "", **captured: object) -> Any:
        environ = _environ(app, request, path)
        environ["a2a_sync.principal"] = principal(request)
        # The caller is determined; a stream or blocking send must not hold the database connection of its thread.
        close_old_connections()
        return _respond(app, environ)

    exempt: Any = csrf_exempt
    return [re_path(r"^(?P<path>.*)$", exempt(non_atomic_requests(serve)), name="a2a")]


def _environ(app: Site, request: Any, path: str) -> dict[str, Any]:
    """The environ of the app below the patterns, with the scheme and host that Django determines by its settings."""
    from django.core.exceptions import ImproperlyConfigured, PermissionDenied

    if not hasattr(request, "environ"):
        raise ImproperlyConfigured(
            "a2a_sync.integrations.django.urls() needs Django on WSGI; on ASGI put a2a_sync.integrations.asgi.Dispatcher around the"
            " application in asgi.py"
        )
    if app.origins.refuse(request.environ):
        raise PermissionDenied(REFUSED)
    prefix = request.path[: len(request.path) - len(path)].removesuffix("/")
    environ = mounted_environ(request.environ, prefix, "/" + path, _read_before(request))
    environ["wsgi.url_scheme"] = request.scheme
    environ["HTTP_HOST"] = request.get_host()
    return environ


def _read_before(request: Any) -> bytes | None:
    """The body, if a middleware has read it. None for a chunked body, which Django does not read from the server."""
    return getattr(request, "_body", None) if request.environ.get("CONTENT_LENGTH") else None


def _respond(app: Site, environ: dict[str, Any]) -> Any:
    from django.http import HttpResponse, StreamingHttpResponse

    chunks, status, headers = run_wsgi_app(app, environ)
    streams = headers.get("Content-Type", "").startswith("text/event-stream")
    make: Any = StreamingHttpResponse if streams else HttpResponse
    content = chunks if streams else b"".join(chunks)
    response = make(content, status=int(status[:3]), reason=status[4:])
    if not streams and (close := getattr(chunks, "close", None)) is not None:
        # If the app has not read a body, `close` ends the connection, so it must run after the server has sent the
        # response. Responses to requests without a body may be cached, and a cache cannot store a function.
        if has_body(environ):
            response._resource_closers.append(close)
        else:
            close()
    del response.headers["Content-Type"]
    for header, value in headers:
        response.headers[header] = value
    if streams:
        # GZipMiddleware would buffer events until a block is full; it does not change responses that are encoded
        # already.
        response.headers["Content-Encoding"] = "identity"
    return response
