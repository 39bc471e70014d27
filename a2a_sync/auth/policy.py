"""Ways to know a caller, and their combinations: ``a & b`` asks for both, ``a | b`` for one of the two.

A way is an `Authenticator`. What is asked for is always a choice of sets of them, which is the form that the card has for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from wsgiref.types import WSGIEnvironment

from a2a_sync.card import SecurityScheme
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.operations import NAMED_MARK, OWNER_MARK, Principal

#: What a function that knows callers gives: a principal, or only its id; None or ``""``: nobody it knows.
Said: TypeAlias = Principal | str | None


class TokenRefusedError(UnauthenticatedError):
    """A token failed a check. ``check`` says which one, for the log: the caller gets the message alone."""

    def __init__(self, message: str, check: str) -> None:
        super().__init__(message)
        self.check = check


class Requirement:
    """What is asked of callers: one of `alternatives`, of which each is a set that is needed together."""

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
    """One way to know a caller. Subclass it for one of your own.

    Attributes:
        name: the name of the scheme in the card.
        scheme: what the card says of it; None: nothing, for what clients cannot do by themselves.
        scopes: what everybody needs who comes this way.
    """

    name = "custom"
    scheme: SecurityScheme | None = None
    scopes: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__(((self,),))

    def authenticate(self, environ: WSGIEnvironment) -> Principal | None:
        """Who sent this request; None where it has no credentials of this kind. Called on the server's thread.

        Raises:
            UnauthenticatedError: the credentials are wrong. Its message is public.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        # Never what it compares with.
        return f"<{type(self).__name__} {self.name!r}>"


class FrameworkAuth(Authenticator):
    """Whoever the host of the app says is calling: by ``environ["a2a_sync.principal"]``, which `hosts` and middleware set."""

    name = "host"

    def __init__(self, *, scheme: SecurityScheme | None = None) -> None:
        super().__init__()
        self.scheme = scheme

    def authenticate(self, environ: WSGIEnvironment) -> Principal | None:
        return principal_in(environ)


class _Function(Authenticator):
    """A function over ``environ``."""

    def __init__(self, identify: Callable[[WSGIEnvironment], Said]) -> None:
        super().__init__()
        self._identify = identify

    def authenticate(self, environ: WSGIEnvironment) -> Principal | None:
        return as_principal(self._identify(environ))


#: The scopes that operations need, by the names of these.
Scopes: TypeAlias = Mapping[str, str | Iterable[str]]
Auth: TypeAlias = Requirement | Callable[[dict[str, Any]], Said]


def as_requirement(auth: Auth) -> Requirement:
    """What a user gave for ``auth``.

    Raises:
        TypeError: it is nothing that knows callers.
    """
    if isinstance(auth, Requirement):
        return auth
    if callable(auth) and not isinstance(auth, type):
        return _Function(auth)
    # It may be a secret, so it is not shown.
    raise TypeError(f"auth takes BearerAuth(…) and its like, or a function of environ; not a {type(auth).__name__}")


def as_principal(said: Said) -> Principal | None:
    """What such a function gave.

    Nobody has an empty id: it is that of the tasks without an owner. Nor one with the marks that stand in owners of other kinds,
    wherever it may come from.
    """
    principal = Principal(id=said) if isinstance(said, str) else said
    if principal is None:
        return None
    if not isinstance(principal, Principal):
        raise TypeError(f"a caller is a Principal, an id or None, not {type(said).__name__}")
    return principal if principal.id and not {OWNER_MARK, NAMED_MARK} & set(principal.id) else None


def principal_in(environ: Mapping[str, Any]) -> Principal | None:
    """Who the host of this app says is calling (see `hosts`)."""
    said = environ.get("a2a_sync.principal")
    return None if said is None else as_principal(said)
