"""For ASGI servers: ``uvicorn examples.django_host.site.asgi:application``. The agent stands beside Django here."""

import os
from typing import Any

from django.core.asgi import get_asgi_application

from a2a_sync.integrations.asgi import ASGIApp, Dispatcher
from a2a_sync.integrations.django import database_connections
from a2a_sync.operations import Principal

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_host.site.settings")
django = get_asgi_application()

# Models can be imported from here on.
from examples.django_host.notes.agent import app  # noqa: E402
from examples.django_host.notes.login import user_of  # noqa: E402


def caller(scope: Any) -> Principal | None:
    """Django's middleware does not see this request, so the header is looked at here. Runs on a thread: it may block."""
    with database_connections():
        user = user_of(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
        return Principal(id=str(user.pk), claims={"username": user.get_username()}) if user else None


application = Dispatcher(django, {"/agents/notes": ASGIApp(app, principal=caller)})
