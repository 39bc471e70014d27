"""Django: mounted in its URL patterns (``application``), and by a dispatcher in WSGI (``dispatched``) and ASGI (``asgi``).

Its middleware is that of a new project, with compression, which would buffer a stream.
"""

from __future__ import annotations

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.urls import include, path
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from a2a_sync.integrations.asgi import ASGIApp, Dispatcher
from a2a_sync.integrations.django import urls
from tests.hosts.sites import PREFIX, THREADS, make_app

settings.configure(
    SECRET_KEY="for tests only",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[
        "django.middleware.gzip.GZipMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
)
django.setup()

urlpatterns = [
    path(PREFIX.strip("/") + "/", include(urls(make_app(), principal=lambda request: request.headers.get("X-User"))))
]
application = get_wsgi_application()
dispatched = DispatcherMiddleware(application, {PREFIX: make_app()})


def user(scope: object) -> str | None:
    headers: dict[bytes, bytes] = dict(scope["headers"])  # type: ignore[index]
    return headers.get(b"x-user", b"").decode() or None


asgi = Dispatcher(get_asgi_application(), {PREFIX: ASGIApp(make_app(), threads=THREADS, principal=user)})
