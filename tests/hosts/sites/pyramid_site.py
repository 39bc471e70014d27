"""Pyramid: a route whose rest is the agent's path."""

from __future__ import annotations

from typing import Any

from pyramid.config import Configurator
from pyramid.request import Request
from pyramid.wsgi import wsgiapp2

from tests.hosts.sites import PREFIX, make_app


def as_user(wsgi_app: Any) -> Any:
    """Set the caller, as a view with Pyramid's security policy would."""
    view = wsgiapp2(wsgi_app)

    def known(context: Any, request: Request) -> Any:
        request.environ["a2a_sync.principal"] = request.headers.get("X-User")
        return view(context, request)

    return known


with Configurator() as config:
    config.add_route("a2a", PREFIX + "*subpath")
    config.add_view(as_user(make_app()), route_name="a2a")
    application = config.make_wsgi_app()
