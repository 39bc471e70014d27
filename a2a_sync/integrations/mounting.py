"""What hosts with requests of their own have in common: the environ of a mounted app."""

from __future__ import annotations

import io
from typing import Any


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
