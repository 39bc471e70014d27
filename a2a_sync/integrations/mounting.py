"""The environ of an app that is mounted in a web framework."""

from __future__ import annotations

import io
from typing import Any

from a2a_sync.wsgi.process import Site


def check_site(app: object) -> None:
    """Check that `app` can be mounted.

    Raises:
        TypeError: it is no `A2AApp` or `AgentHost`.
    """
    if not isinstance(app, Site):
        raise TypeError(
            f"only an A2AApp or AgentHost can be mounted, not a {type(app).__name__}; for an agent: A2AApp(agent)"
        )


def mounted_environ(environ: dict[str, Any], prefix: str, path: str, body: bytes | None) -> dict[str, Any]:
    """A copy of `environ`, split at the end of `prefix` as a WSGI dispatcher would. Both are decoded text.

    `body` is the body of the request if the framework has read it already; None if the app has to read it.
    """
    copy = dict(environ)
    # In WSGI, each byte of the URL is one character.
    copy["SCRIPT_NAME"] = prefix.encode("utf-8", "replace").decode("latin-1")
    copy["PATH_INFO"] = path.encode("utf-8", "replace").decode("latin-1")
    if body is not None:
        copy.pop("HTTP_TRANSFER_ENCODING", None)
        copy["wsgi.input"] = io.BytesIO(body)
        copy["CONTENT_LENGTH"] = str(len(body))
    return copy
