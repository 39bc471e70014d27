"""Authenticators and their combinations: ``a & b`` requires both, ``a | b`` one of the two.

Every combination is held as alternatives of sets, the form in which a card declares it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from a2a_sync.auth.request import AuthRequest
from a2a_sync.card import SecurityScheme
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.operations import NAMED_MARK, OWNER_MARK, Principal

#: Characters that no id of a caller has.
_UNFIT = re.compile(f"[\0{OWNER_MARK}{NAMED_MARK}\ud800-\udfff]")

#: What a function that identifies callers returns: a principal or its id; None or ``""`` for an unknown caller.
Identity: TypeAlias = Principal | str | None


class TokenRefusedError(UnauthenticatedError):
    """A token failed a check. ``check`` names it for the log; the caller gets the message only."""

    def __init__(self, message: str, check: str) -> None:
        super().__init__(message)
        self.check = check


class Requirement:
    """What a request must fulfil: one of `alternatives`, each a set of authenticators that are required together."""

    def __init__(self, alternatives: tuple[tuple[Authenticator, ...], ...]) -> None:
        self.alternatives = alternatives

    def __or__(self, other: Auth) -> Requirement:
        return Requirement((*self.alternatives, *as_requirement(other).alternatives))

    def __and__(self, other: Auth) -> Requirement:
        others = as_requirement(other).alternatives
        return Requirement(tuple((*mine, *theirs) for mine in self.alternatives for theirs in others))

    def __ror__(self, other: Auth) -> Requirement:
        return as_requirement(other) | self

    def __rand__(self, other: Auth) -> Requirement:
        return as_requirement(other) & self


class Authenticator(Requirement):
    """One way to authenticate callers. Subclass it for a scheme of your own.

    Attributes:
        name: the name of the scheme in the card.
        scheme: the card's description of it; None for a way that clients cannot use by themselves.
        scopes: the scopes that every caller authenticated in this way needs.
        subject_issuers: the issuers of tokens whose subjects are ids of callers as they are.
    """

    name = "custom"
    scheme: SecurityScheme | None = None
    scopes: tuple[str, ...] = ()
    subject_issuers: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(((self,),))

    def authenticate(self, request: AuthRequest) -> Identity:
        """The caller, as a `Principal` or an id; None where the request has no credentials of this kind.

        An empty id, or one with lone surrogates or the control characters U+0000, U+001E and U+001F, does not count
        as a caller. Runs on the thread of the request.

        Raises:
            UnauthenticatedError: the credentials are wrong. Its message is sent to the caller.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        # Never the secrets that it compares with.
        return f"<{type(self).__name__} {self.name!r}>"


class FrameworkAuth(Authenticator):
    """The caller that the web framework around the app has authenticated (``environ["a2a_sync.principal"]``)."""

    name = "host"

    def __init__(self, *, scheme: SecurityScheme | None = None) -> None:
        super().__init__()
        self.scheme = scheme

    def authenticate(self, request: AuthRequest) -> Principal | None:
        return as_principal(request.principal)


class _Function(Authenticator):
    """A function of an `AuthRequest`."""

    def __init__(self, identify: Callable[[AuthRequest], Identity]) -> None:
        super().__init__()
        self._identify = identify

    def authenticate(self, request: AuthRequest) -> Principal | None:
        return as_principal(self._identify(request))


#: The scopes that operations need, by the operation's name.
Scopes: TypeAlias = Mapping[str, str | Iterable[str]]
Auth: TypeAlias = Requirement | Callable[[AuthRequest], Identity]


def as_requirement(auth: Auth) -> Requirement:
    """The requirement that a user passed as ``auth``.

    Raises:
        TypeError: it is neither a requirement nor a function.
    """
    if isinstance(auth, Requirement):
        return auth
    if callable(auth) and not isinstance(auth, type):
        return _Function(auth)
    # It may be a secret, so its value is not shown.
    raise TypeError(
        f"auth takes an authenticator such as BearerAuth(…), or a function of an AuthRequest; not a {type(auth).__name__}"
    )


def as_principal(identity: Identity) -> Principal | None:
    """The principal of an `Identity`; None for an unknown caller.

    No caller has an empty id, which owns the tasks without an owner, no id has the marks of other kinds of owners, and
    none has NUL or lone surrogates, which not every store can hold.

    Raises:
        TypeError: `identity` is of another type.
    """
    principal = Principal(id=identity) if isinstance(identity, str) else identity
    if principal is None:
        return None
    if not isinstance(principal, Principal):
        raise TypeError(f"a caller is a Principal, an id or None, not {type(identity).__name__}")
    return principal if principal.id and not _UNFIT.search(principal.id) else None
