"""An app as a Flask blueprint: inside the request cycle, so logins, rate limits and error pages of the host apply.

For an app that needs none of that, Werkzeug's dispatcher is simpler::

    flask_app.wsgi_app = DispatcherMiddleware(flask_app.wsgi_app, {"/agents/echo": app})
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a_sync.integrations.mounting import mounted
from a2a_sync.operations import Principal
from a2a_sync.wsgi.origins import REFUSED
from a2a_sync.wsgi.process import Site

__all__ = ["blueprint"]

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def blueprint(
    app: Site,
    *,
    name: str = "a2a",
    principal: Callable[[], Principal | str | None] | None = None,
) -> Any:
    """A blueprint that serves `app` under the ``url_prefix`` it is registered with.

    `principal` is called in Flask's request context, after ``before_request``, and says who is calling: an id, a
    `Principal`, or None. Agents see it as ``context.user``, and it owns the tasks it starts::

        agents = blueprint(app, principal=lambda: session.get("user"))
        agents.before_request(login_required)
        flask_app.register_blueprint(agents, url_prefix="/agents/echo")

    If your app uses Flask-WTF's ``CSRFProtect``, exempt the blueprint: its callers are programs, not forms. Pages of other
    sites, but for those in the app's ``cors=``, are refused with 403.

    Raises:
        ImportError: Flask is not installed.
    """
    from flask import Blueprint, Response, abort, request

    made = Blueprint(name, __name__)

    def serve(path: str = "", **values: object) -> Any:
        if app.origins.refuse(request.environ):
            abort(403, REFUSED)
        prefix, rest = _split(request.environ, path)
        # A hook of the host may have read the body before; Flask then keeps it here.
        environ = mounted(request.environ, prefix, rest, getattr(request, "_cached_data", None))
        if principal is not None:
            environ["a2a_sync.principal"] = principal()
        response = Response.from_app(app, environ, buffered=False)
        if response.status_code == 204:
            del response.headers["Content-Type"]
        return response

    def add_rules(state: Any) -> None:
        # The bare prefix too: a redirect would turn a POST into a GET.
        for rule in ("/", "/<path:path>", *([""] if state.url_prefix else [])):
            state.add_url_rule(rule, "serve", serve, methods=_METHODS, provide_automatic_options=False)

    made.record(add_rules)
    return made


def _split(environ: dict[str, Any], path: str) -> tuple[str, str]:
    """The request's path before and after the point where the blueprint begins; `path` is what its rule found."""
    before, whole = (
        environ.get(key, "").encode("latin-1").decode("utf-8", "replace") for key in ("SCRIPT_NAME", "PATH_INFO")
    )
    rest = "/" + path if path or whole.endswith("/") else ""
    return before + whole[: len(whole) - len(rest)], rest
