"""Authentication and scopes of an app, and their declaration in the card (spec 3.3.2, 4.5, 7.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from a2a_sync.auth.policy import Auth, Authenticator, Scopes, TokenRefusedError, as_principal, as_requirement
from a2a_sync.auth.request import AuthRequest
from a2a_sync.card import (
    AgentCard,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
)
from a2a_sync.errors import PermissionDeniedError, UnauthenticatedError
from a2a_sync.operations import (
    CREATE_PUSH_CONFIG,
    OPERATIONS,
    AnyOperation,
    Call,
    Endpoint,
    Principal,
    RequestT,
    ResultT,
)
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import SendMessageRequest

logger: Final = get_logger(__name__)

#: Means all operations.
ALL = "*"
#: The client chooses between the two, so the scopes of one are those of the other, unless that has its own.
_SENDS = ("SendMessage", "SendStreamingMessage")


class Admission:
    """Admits requests that fulfil `auth`, to the operations that the caller's scopes allow.

    `scopes` are those that each operation needs, by its name (``"CancelTask"``; ``"*"`` for all): a list, or text with
    blanks. Those of SendMessage also apply to SendStreamingMessage, and the reverse, where only one is listed. A send with
    a webhook needs those of CreateTaskPushNotificationConfig too.

    Raises:
        ValueError: an operation does not exist, or subjects of several issuers would be the same caller.
    """

    def __init__(self, auth: Auth, scopes: Scopes | None = None) -> None:
        self._alternatives = as_requirement(auth).alternatives
        # The id is that of the first of each.
        if len({issuer for first, *_ in self._alternatives for issuer in first.subject_issuers}) > 1:
            raise ValueError(
                "several issuers may use the same subject for different callers: give each JWTAuth an identify= that"
                " distinguishes them"
            )
        self.scopes_of_each: dict[AnyOperation, tuple[str, ...]]
        self._scopes_of_all, self.scopes_of_each = _parse_scopes(scopes or {})
        self._names = _unique_names(one for alternative in self._alternatives for one in alternative)
        self._challenges = tuple(dict.fromkeys(filter(None, map(_challenge, self._names.values()))))

    # -- authentication --

    def authenticate(self, request: AuthRequest) -> Principal:
        """The caller. Runs on the request's thread, before the body is read.

        Raises:
            UnauthenticatedError: the request has no credentials, or wrong ones.
            PermissionDeniedError: the caller lacks a scope that its authenticator requires.
        """
        refusal: UnauthenticatedError | PermissionDeniedError | None = None
        for alternative in self._alternatives:
            try:
                principals = [_authenticate(one, request) for one in alternative]
            except (UnauthenticatedError, PermissionDeniedError) as error:
                refusal = refusal or error
                continue
            if None not in principals:
                return reduce(_merge, filter(None, principals))
        raise self._refused(refusal, request)

    def _refused(self, refusal: UnauthenticatedError | PermissionDeniedError | None, request: AuthRequest) -> Exception:
        why = f"{refusal} ({refusal.check})" if isinstance(refusal, TokenRefusedError) else refusal or "no credentials"
        logger.warning("refused a caller from %s: %s", request.peer_address or "an unknown address", why)
        if isinstance(refusal, PermissionDeniedError):
            return refusal
        kinds = ", ".join(name for name, one in self._names.items() if one.scheme is not None)
        message = refusal.message if refusal is not None else "credentials are required" + (kinds and f" ({kinds})")
        challenges = self._challenges
        if refusal is not None:
            parameter = ', error="invalid_token"'
            challenges = tuple(one + parameter if one.startswith("Bearer") else one for one in challenges)
        return UnauthenticatedError(message, metadata={"schemes": kinds} if kinds else None, challenges=challenges)

    # -- authorization --

    def require_scopes(self, endpoint: Endpoint) -> Endpoint:
        """Wrap `endpoint`: each caller needs the scopes of the operation. Calls inside the process need none."""

        def authorized(call: Call[RequestT, ResultT]) -> ResultT:
            needed, principal = self.scopes_of_each.get(call.operation, ()), call.context.principal
            if isinstance(call.request, SendMessageRequest) and _sets_webhook(call.request):
                needed = tuple(dict.fromkeys((*needed, *self.scopes_of_each.get(CREATE_PUSH_CONFIG, ()))))
            if needed and principal is not None:
                _check_scopes(needed, principal)
            return endpoint(call)

        return authorized

    # -- the card --

    def declare(self, card: AgentCard) -> AgentCard:
        """`card` with these schemes and requirements. Its own requirements stay where these need nothing of clients."""
        schemes: dict[str, SecurityScheme] = {
            name: one.scheme for name, one in self._names.items() if one.scheme is not None
        }
        names = {one: name for name, one in self._names.items()}
        requirements = tuple(
            SecurityRequirement(
                schemes={
                    names[one]: tuple(dict.fromkeys((*one.scopes, *self._scopes_of_all)))
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


def _authenticate(one: Authenticator, request: AuthRequest) -> Principal | None:
    # Also what a subclass returns must not be the owner of tasks without an owner, or of those that `owner=` names.
    principal = as_principal(one.authenticate(request))
    if principal is not None and one.scopes:
        _check_scopes(one.scopes, principal)
    return principal


def _merge(first: Principal, second: Principal) -> Principal:
    """One caller that two authenticators know: the id of the first, the scopes of both."""
    scopes = tuple(dict.fromkeys((*first.scopes, *second.scopes)))
    return Principal(id=first.id, scopes=scopes, claims={**second.claims, **first.claims})


def _sets_webhook(request: SendMessageRequest) -> bool:
    configuration = request.configuration
    return configuration is not None and configuration.task_push_notification_config is not None


def _check_scopes(needed: Sequence[str], principal: Principal) -> None:
    missing = [scope for scope in needed if scope not in principal.scopes]
    if missing:
        listed = " ".join(missing)
        raise PermissionDeniedError(
            f"this needs the scope {listed}",
            metadata={"missingScopes": listed},
            challenges=(f'Bearer realm="agent", error="insufficient_scope", scope="{" ".join(needed)}"',),
        )


def _parse_scopes(given: Scopes) -> tuple[tuple[str, ...], dict[AnyOperation, tuple[str, ...]]]:
    """The scopes of all operations, and those of each."""
    if not isinstance(given, Mapping):
        raise TypeError(f"required_scopes takes a mapping of operations to scopes, not a {type(given).__name__}")
    if unknown := given.keys() - OPERATIONS.keys() - {ALL}:
        raise ValueError(f"{min(unknown)!r} is no operation; scopes are for {', '.join(OPERATIONS)} or {ALL!r}")
    listed = {name: tuple(scopes.split() if isinstance(scopes, str) else scopes) for name, scopes in given.items()}
    everywhere = listed.get(ALL, ())
    for one, other in _SENDS, _SENDS[::-1]:
        if one in listed:
            listed.setdefault(other, listed[one])
    each = {
        operation: tuple(dict.fromkeys((*everywhere, *listed.get(name, ())))) for name, operation in OPERATIONS.items()
    }
    return everywhere, {operation: scopes for operation, scopes in each.items() if scopes}


def _unique_names(authenticators: Iterator[Authenticator]) -> dict[str, Authenticator]:
    """Each authenticator once, by a unique name."""
    names: dict[str, Authenticator] = {}
    for one in dict.fromkeys(authenticators):
        name, number = one.name, 2
        while name in names:
            name, number = f"{one.name}{number}", number + 1
        names[name] = one
    return names


def _challenge(one: Authenticator) -> str:
    """The ``WWW-Authenticate`` value of an authenticator (RFC 9110, 11.6.1); ``""`` where clients cannot use it."""
    scheme = one.scheme
    if scheme is None:
        return ""
    if isinstance(scheme, HTTPAuthSecurityScheme):
        return f'{scheme.scheme} realm="agent"' + (', charset="UTF-8"' if scheme.scheme == "Basic" else "")
    if isinstance(scheme, APIKeySecurityScheme):
        # No scheme is registered for keys; this one is for people who read it.
        name = scheme.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'ApiKey realm="agent", in="{scheme.location}", name="{name}"'
    if isinstance(scheme, MutualTlsSecurityScheme):
        return 'MutualTLS realm="agent"'
    return 'Bearer realm="agent"'


def make_admission(auth: Auth | None, scopes: Scopes | None, card: AgentCard) -> Admission | None:
    """The `Admission` of ``A2AApp(auth=…, required_scopes=…)``; None where callers need no credentials.

    Raises:
        TypeError, ValueError: `auth` or `scopes` are not valid.
    """
    if auth is not None:
        return Admission(auth, scopes)
    if scopes:
        raise ValueError("required_scopes= needs auth=: without it the scopes of callers are not known")
    if card.security_requirements:
        logger.warning(
            "the card of %r requires credentials, and this app checks none: give it auth=, unless a proxy checks them",
            card.name,
        )
    return None
