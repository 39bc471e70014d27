"""Flask: mounted as a blueprint (``application``) and by a dispatcher (``dispatched``)."""

from __future__ import annotations

from flask import Flask, request
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from a2a_sync.integrations.flask import blueprint
from tests.hosts.sites import PREFIX, make_app

application = Flask(__name__)
application.register_blueprint(
    blueprint(make_app(), principal=lambda: request.headers.get("X-User")), url_prefix=PREFIX
)

dispatched = Flask("dispatched")
dispatched.wsgi_app = DispatcherMiddleware(dispatched.wsgi_app, {PREFIX: make_app()})  # type: ignore[method-assign]
