"""An app as a Flask blueprint, inside the request cycle: logins, rate limits and error pages of the host apply.

For an app that does not need them, Werkzeug's dispatcher is simpler::

    flask_app.wsgi_app = DispatcherMiddleware(flask_app.wsgi_app, {"/agents/echo": app})
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a_sync.integrations.mounting import check_site, mounted_environ
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

    `principal` is called in Flask's request context, after ``before_request``, and returns the caller: an id, a
    `Principal`, or None. Agents see it as ``context.user``, and it owns the tasks that it starts::

        agents = blueprint(app, principal=lambda: session.get("user"))
        agents.before_request(login_required)
        flask_app.register_blueprint(agents, url_prefix="/agents/echo")

    If your app uses Flask-WTF's ``CSRFProtect``, exempt the blueprint: its callers are programs, not forms. Pages of
    other sites are refused with 403, except for those in the app's ``HTTPOptions(cors_origins=…)``.

    Raises:
        ImportError: Flask is not installed.
        TypeError: `app` is no `A2AApp` or `AgentHost`.
    """
    check_site(app)
    from flask import Blueprint, Response, abort, request

    made = Blueprint(name, __name__)

    def serve(path: str = "", **values: object) -> Any:
        if app.origins.refuse(request.environ):
            abort(403, REFUSED)
        prefix, rest = _split(request.environ, path)
        # If a hook of the host has read the body, Flask stores it in this attribute.
        environ = mounted_environ(request.environ, prefix, rest, getattr(request, "_cached_data", None))
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
    """The path of the request, split where the blueprint begins; `path` is the part that its rule matched."""
    before, whole = (
        environ.get(key, "").encode("latin-1").decode("utf-8", "replace") for key in ("SCRIPT_NAME", "PATH_INFO")
    )
    rest = "/" + path if path or whole.endswith("/") else ""
    return before + whole[: len(whole) - len(rest)], rest
