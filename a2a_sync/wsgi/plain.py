"""Answers that belong to no operation: for paths, verbs and hosts that are not served."""

from __future__ import annotations

from werkzeug.exceptions import SecurityError
from werkzeug.wrappers import Request, Response

from a2a_sync import jsontext
from a2a_sync.bindings import http_json
from a2a_sync.bindings.routes import LONGEST_VERB, OLD_PREFIX
from a2a_sync.codec import by_version
from a2a_sync.codec.fields import shown
from a2a_sync.errors import MethodNotFoundError
from a2a_sync.wsgi.cards import CARD_PATH


def only(method: str, allowed: str) -> Response:
    """The answer to a verb that a path does not take; to OPTIONS, which it takes."""
    if method == "OPTIONS":
        response = Response(status=204, headers={"Allow": allowed})
        del response.headers["Content-Type"]
        return response
    response = plain_error(405, f"{method[:LONGEST_VERB]} is not answered here; allowed: {allowed}")
    response.headers["Allow"] = allowed
    return response


def host_is_served(request: Request) -> bool:
    """The request names one of the hosts that it was told to trust."""
    try:
        return bool(request.host)
    except SecurityError:
        return False


def nothing_here(request: Request) -> Response:
    """The error of a path that is not served, as HTTP+JSON writes it (spec 11.6), for readers of 0.3 where it may be theirs."""
    path, prefix = request.environ.get("PATH_INFO", ""), request.root_path
    codec = by_version("0.3" if path.startswith(f"/{OLD_PREFIX}/") else "1.0", "HTTP+JSON")
    error = MethodNotFoundError(
        f"there is nothing at {shown(prefix + request.path)}; the card is at {prefix}{CARD_PATH}"
    )
    return Response(http_json.write_error(error, codec), status=404, content_type="application/json")


def plain_error(status: int, message: str) -> Response:
    """An error in JSON that no protocol knows."""
    body = jsontext.dumps({"error": {"code": status, "message": message}})
    return Response(body, status=status, content_type="application/json")
