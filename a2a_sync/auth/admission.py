"""The door of an app: who comes in, what they may do, and what the card says about it (spec 3.3.2, 4.5, 7.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any
from wsgiref.types import WSGIEnvironment

from a2a_sync.auth.policy import Auth, Authenticator, Scopes, TokenRefusedError, as_requirement
from a2a_sync.card import (
    AgentCard,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
)
from a2a_sync.errors import PermissionDeniedError, UnauthenticatedError
from a2a_sync.operations import OPERATIONS, Call, Endpoint, Operation, Principal
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: Names all operations at once.
ALL = "*"


class Admission:
    """Lets in whoever fulfils `auth`, to the operations that their scopes allow.

    `scopes` are those that an operation needs, by its name (``"CancelTask"``; ``"*"`` for all): a list, or text with blanks.

    Raises:
        ValueError: an operation that does not exist.
    """

    def __init__(self, auth: Auth, scopes: Scopes | None = None) -> None:
        self._alternatives = as_requirement(auth).alternatives
        self._everywhere, self._needed = _read_scopes(scopes or {})
        self._names = _named(one for alternative in self._alternatives for one in alternative)
        self._challenges = tuple(dict.fromkeys(filter(None, map(_challenge, self._names.values()))))

    # -- who comes in --

    def __call__(self, environ: WSGIEnvironment) -> Principal:
        """Who sent this request. On the server's thread, before the body is read.

        Raises:
            UnauthenticatedError: nobody that is known here.
            PermissionDeniedError: somebody who lacks a scope that all need who come this way.
        """
        refusal: UnauthenticatedError | PermissionDeniedError | None = None
        for alternative in self._alternatives:
            try:
                known = [_identified(one, environ) for one in alternative]
            except (UnauthenticatedError, PermissionDeniedError) as error:
                refusal = refusal or error
                continue
            if None not in known:
                return reduce(_both, filter(None, known))
        raise self._refused(refusal, environ)

    def _refused(
        self, refusal: UnauthenticatedError | PermissionDeniedError | None, environ: WSGIEnvironment
    ) -> Exception:
        why = f"{refusal} ({refusal.check})" if isinstance(refusal, TokenRefusedError) else refusal or "no credentials"
        logger.warning("refused a caller from %s: %s", environ.get("REMOTE_ADDR", ""), why)
        if isinstance(refusal, PermissionDeniedError):
            return refusal
        kinds = ", ".join(name for name, one in self._names.items() if one.scheme is not None)
        message = refusal.message if refusal is not None else "credentials are required" + (kinds and f" ({kinds})")
        challenges = self._challenges
        if refusal is not None:
            wrong = ', error="invalid_token"'
            challenges = tuple(one + wrong if one.startswith("Bearer") else one for one in challenges)
        return UnauthenticatedError(message, metadata={"schemes": kinds} if kinds else None, challenges=challenges)

    # -- what they may do --

    @property
    def limits_operations(self) -> bool:
        """Some operations need scopes."""
        return bool(self._needed)

    def around(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, for callers with the scopes that the operation needs. Who calls inside the process needs none."""

        def allowed(call: Call) -> Any:
            needed, principal = self._needed.get(call.operation), call.context.principal
            if needed and principal is not None:
                _check_scopes(needed, principal)
            return endpoint(call)

        return allowed

    # -- what the card says --

    def declared(self, card: AgentCard) -> AgentCard:
        """`card`, with the schemes and requirements that are kept here. Its own requirements stay where clients need none."""
        schemes: dict[str, SecurityScheme] = {
            name: one.scheme for name, one in self._names.items() if one.scheme is not None
        }
        names = {one: name for name, one in self._names.items()}
        requirements = tuple(
            SecurityRequirement(
                schemes={
                    names[one]: tuple(dict.fromkeys((*one.scopes, *self._everywhere)))
                    for one in alternative
                    if one.scheme is not None
                }
            )
            for alternative in self._alternatives
            if any(one.scheme is not None for one in alternative)
        )
        return replace(
            card,
            security_schemes={**card.security_schemes, **schemes},
            security_requirements=requirements or card.security_requirements,
        )


def _identified(one: Authenticator, environ: WSGIEnvironment) -> Principal | None:
    principal = one.authenticate(environ)
    if principal is not None and one.scopes:
        _check_scopes(one.scopes, principal)
    return principal


def _both(first: Principal, second: Principal) -> Principal:
    """Who is known in two ways is the one of the first, and has the scopes of both."""
    scopes = tuple(dict.fromkeys((*first.scopes, *second.scopes)))
    return Principal(id=first.id, scopes=scopes, claims={**second.claims, **first.claims})


def _check_scopes(needed: Sequence[str], principal: Principal) -> None:
    missing = [scope for scope in needed if scope not in principal.scopes]
    if missing:
        listed = " ".join(missing)
        raise PermissionDeniedError(
            f"this needs the scope {listed}",
            metadata={"missingScopes": listed},
            challenges=(f'Bearer realm="agent", error="insufficient_scope", scope="{" ".join(needed)}"',),
        )


def _read_scopes(
    given: Scopes,
) -> tuple[tuple[str, ...], dict[Operation, tuple[str, ...]]]:
    """Those for all operations, and those for each."""
    if unknown := given.keys() - OPERATIONS.keys() - {ALL}:
        raise ValueError(f"{min(unknown)!r} is no operation; scopes are for {', '.join(OPERATIONS)} or {ALL!r}")
    listed = {name: tuple(scopes.split() if isinstance(scopes, str) else scopes) for name, scopes in given.items()}
    everywhere = listed.get(ALL, ())
    each = {
        operation: tuple(dict.fromkeys((*everywhere, *listed.get(name, ())))) for name, operation in OPERATIONS.items()
    }
    return everywhere, {operation: scopes for operation, scopes in each.items() if scopes}


def _named(authenticators: Iterator[Authenticator]) -> dict[str, Authenticator]:
    """Each once, by a name of its own."""
    names: dict[str, Authenticator] = {}
    for one in dict.fromkeys(authenticators):
        name, number = one.name, 2
        while name in names:
            name, number = f"{one.name}{number}", number + 1
        names[name] = one
    return names


def _challenge(one: Authenticator) -> str:
    """What ``WWW-Authenticate`` says of a way to authenticate (RFC 9110, 11.6.1); ``""`` where clients cannot use it."""
    scheme = one.scheme
    if scheme is None:
        return ""
    if isinstance(scheme, HTTPAuthSecurityScheme):
        return f'{scheme.scheme} realm="agent"' + (', charset="UTF-8"' if scheme.scheme == "Basic" else "")
    if isinstance(scheme, APIKeySecurityScheme):
        # Nothing is registered for keys; this tells a person where they belong.
        name = scheme.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'ApiKey realm="agent", in="{scheme.location}", name="{name}"'
    if isinstance(scheme, MutualTlsSecurityScheme):
        return 'MutualTLS realm="agent"'
    return 'Bearer realm="agent"'
