"""What reverse proxies in front of an app report of the request that they got: its scheme, its host, the prefix they removed.

Any client can send the same headers, so only the values that a given number of proxies have added are trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.middleware.proxy_fix import ProxyFix

#: The headers that the address of the app depends on.
ADDRESS_HEADERS = ("X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix")
_MOUNT = "a2a_sync.mount"
_FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PREFIX")
#: Characters of a header that are read: a microsecond each. The values of proxies are at its end.
_MAX_LENGTH = 2048


class TrustedProxies:
    """WSGI middleware: `app` sees the request as the first of `hops` proxies got it.

    Each proxy adds its value to ``X-Forwarded-For``, ``-Proto``, ``-Host`` and ``-Prefix`` or replaces what is there; the
    value that counts is the one `hops` from the right. A header with fewer values is ignored. Of a header the last 2,048 characters are read.
    """

    def __init__(self, app: WSGIApplication, hops: int) -> None:
        """Raises ValueError: the number of proxies is not positive."""
        if hops < 1:
            raise ValueError(f"trusted_proxies is the number of proxies, not {hops}")
        self._app = app
        self._fix = ProxyFix(self._below_proxies, x_for=hops, x_proto=hops, x_host=hops, x_prefix=hops)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI interface; changes `environ`."""
        for name in _FORWARDED:
            if len(value := environ.get(name, "")) > _MAX_LENGTH:
                environ[name] = value[-_MAX_LENGTH:].partition(",")[2]
        # ProxyFix replaces the path that the app is mounted at with the prefix, which belongs before it.
        environ[_MOUNT] = environ.get("SCRIPT_NAME", "")
        environ["SCRIPT_NAME"] = ""
        return self._fix(environ, start_response)

    def _below_proxies(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        prefix = environ["SCRIPT_NAME"].strip("/")
        environ["SCRIPT_NAME"] = ("/" + prefix if prefix else "") + environ.pop(_MOUNT)
        if environ["wsgi.url_scheme"] not in ("http", "https"):
            environ["wsgi.url_scheme"] = environ["werkzeug.proxy_fix.orig"]["wsgi.url_scheme"]
        return self._app(environ, start_response)
