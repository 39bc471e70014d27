"""Authentication and scopes, declared in the card and checked for each request (spec 4.5, 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from a2a_sync.lazymodule import lazy_names

if TYPE_CHECKING:
    from a2a_sync.auth.jwt_auth import JWTAuth
    from a2a_sync.auth.policy import Authenticator, FrameworkAuth, TokenRefusedError
    from a2a_sync.auth.request import AuthRequest, PeerCertificate
    from a2a_sync.auth.schemes import ApiKeyAuth, BasicAuth, BearerAuth, MTLSAuth
    from a2a_sync.operations import Principal

_MODULES = {
    "a2a_sync.auth.jwt_auth": ("JWTAuth",),
    "a2a_sync.auth.policy": ("Authenticator", "FrameworkAuth", "TokenRefusedError"),
    "a2a_sync.auth.request": ("AuthRequest", "PeerCertificate"),
    "a2a_sync.auth.schemes": ("ApiKeyAuth", "BasicAuth", "BearerAuth", "MTLSAuth"),
    "a2a_sync.operations": ("Principal",),
}

__all__ = [
    "ApiKeyAuth",
    "AuthRequest",
    "Authenticator",
    "BasicAuth",
    "BearerAuth",
    "FrameworkAuth",
    "JWTAuth",
    "MTLSAuth",
    "PeerCertificate",
    "Principal",
    "TokenRefusedError",
]

__getattr__: Final = lazy_names(__name__, _MODULES)
