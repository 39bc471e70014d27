"""HTTP Basic for programs, beside the sessions that browsers have."""

import base64
import binascii
from collections.abc import Callable
from typing import Any

from django.contrib.auth import authenticate
from django.http import HttpRequest, HttpResponse


def user_of(authorization: str) -> Any:
    """The user whose name and password the header has, or None."""
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return authenticate(username=name, password=password)


def basic_login(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: HTTP Basic credentials set the user of the request."""

    def middleware(request: HttpRequest) -> HttpResponse:
        user = user_of(request.headers.get("Authorization", ""))
        if user is not None:
            request.user = user
        return get_response(request)

    return middleware
