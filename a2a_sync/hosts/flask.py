"""An app as a Flask blueprint: inside the request cycle, so logins, rate limits and error pages of the host apply.

For an app that needs none of that, Werkzeug's dispatcher is simpler::

    flask_app.wsgi_app = DispatcherMiddleware(flask_app.wsgi_app, {"/a2a": a2a_app})
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a_sync.app import A2AApp
from a2a_sync.operations import Principal

__all__ = ["blueprint"]

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def blueprint(
    app: A2AApp,
    *,
    name: str = "a2a",
    principal: Callable[[], Principal | str | None] | None = None,
) -> Any:
    """A blueprint that serves `app` under its ``url_prefix``.

    `principal` is called in Flask's request context and says who is calling: an id, a `Principal`, or None. Agents see it
    as ``context.user``, and it owns the tasks it starts. Register the blueprint under a prefix of its own::

        flask_app.register_blueprint(blueprint(app, principal=lambda: session.get("user")), url_prefix="/agents/echo")

    If your app uses Flask-WTF's ``CSRFProtect``, exempt the blueprint: its callers are programs, not forms.

    Raises:
        ImportError: Flask is not installed.
    """
    from flask import Blueprint, Response, request

    made = Blueprint(name, __name__)

    def serve(path: str = "") -> Any:
        environ = dict(request.environ)
        _move_prefix(environ, path)
        if principal is not None:
            environ["a2a_sync.principal"] = principal()
        return Response.from_app(app, environ, buffered=False)

    made.add_url_rule("/", "root", serve, methods=_METHODS, provide_automatic_options=False)
    made.add_url_rule("/<path:path>", "path", serve, methods=_METHODS, provide_automatic_options=False)
    # The bare prefix too: a redirect would turn a POST into a GET.
    made.add_url_rule("", "bare", serve, methods=_METHODS, provide_automatic_options=False)
    return made


def _move_prefix(environ: dict[str, Any], path: str) -> None:
    """Split the path where the blueprint begins, as a WSGI dispatcher would."""
    whole = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
    rest = "/" + path if path or whole.endswith("/") else ""
    prefix = whole[: len(whole) - len(rest)]
    environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + prefix.encode().decode("latin-1")
    environ["PATH_INFO"] = rest.encode().decode("latin-1")
