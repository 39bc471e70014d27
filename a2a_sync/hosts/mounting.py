"""What hosts with requests of their own have in common: the environ of a mounted app, and pages of other sites."""

from __future__ import annotations

import io
from typing import Any
from urllib.parse import urlsplit

#: What a page of another site is told.
REFUSED = "a page of another site may not use its visitor's cookies here"


def mounted(environ: dict[str, Any], prefix: str, path: str, body: bytes | None) -> dict[str, Any]:
    """A copy of `environ`, split at the end of `prefix` as a WSGI dispatcher would. Both are decoded text.

    `body` is the request's body where the host has read it already; None leaves it to the app to read.
    """
    copy = dict(environ)
    # WSGI wants the bytes of the URL, each as one character.
    copy["SCRIPT_NAME"] = prefix.encode("utf-8", "replace").decode("latin-1")
    copy["PATH_INFO"] = path.encode("utf-8", "replace").decode("latin-1")
    if body is not None:
        copy.pop("HTTP_TRANSFER_ENCODING", None)
        copy["wsgi.input"] = io.BytesIO(body)
        copy["CONTENT_LENGTH"] = str(len(body))
    return copy


def from_another_site(environ: dict[str, Any]) -> bool:
    """A page of another site had its visitor's browser send this, with the cookies by which the host knows the visitor.

    Agents are exempt from tokens against that: their callers are programs, which send none of these headers.
    """
    if environ["REQUEST_METHOD"] in ("GET", "HEAD", "OPTIONS") or "HTTP_COOKIE" not in environ:
        return False
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site is not None:
        return site not in ("same-origin", "none")
    # Browsers that do not say it (they do over TLS) name the page's origin.
    origin = environ.get("HTTP_ORIGIN")
    return origin is not None and urlsplit(origin).netloc != environ.get("HTTP_HOST")
