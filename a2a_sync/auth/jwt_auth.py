"""JSON Web Tokens: signature, issuer, audience and times, checked by PyJWT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from a2a_sync.auth.policy import Authenticator, Identity, TokenRefusedError, as_principal
from a2a_sync.auth.request import AuthRequest
from a2a_sync.auth.schemes import bearer_token
from a2a_sync.card import HTTPAuthSecurityScheme, SecurityScheme
from a2a_sync.errors import UnauthenticatedError
from a2a_sync.operations import Principal
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.signing.jwk import ALGORITHMS
from a2a_sync.signing.jwks import KeySet, guarded_key_set

SYMMETRIC = ("HS256", "HS384", "HS512")
#: A longer token is refused unread, in characters.
_MAX_TOKEN_LENGTH = 16 * 1024
_MIN_SECRET_BYTES = 32


class JWTAuth(Authenticator):
    """``Authorization: Bearer`` with a JSON Web Token. Needs the extra ``jwt``.

    The subject (``sub``) is the caller's id, ``scope`` or ``scp`` are the scopes, all claims are ``context.user.claims``.
    Two issuers may use the same subject: with several, in one or in a combination, an `identify` is needed that distinguishes them.

    Parameters:
        issuer: the required issuer (``iss``), or several.
        audience: the required audience (``aud``), or several of which one is enough.
        jwks_url: the URL of the issuer's key set. It is cached for five minutes, and read again, once a minute at most,
            when a token names a key that is not in it.
        key: a single key in place of `jwks_url`: a PEM text, or the bytes of a shared secret.
        algorithms: the accepted algorithms; by default all that fit the kind of key, never ``none``.
        identify: called with the claims, returns the caller, in place of the subject: an id, or a `Principal` with the scopes
            and claims that it has, whatever the token says.
        scopes: the scopes that every caller needs.
        leeway: seconds by which clocks may differ.
        url_guard: the addresses that the keys may be read from; by default the host of `jwks_url` over https.
        scheme: the security scheme in the card, to describe more than "a bearer token that is a JWT".
        name: the name of the scheme in the card.

    Raises:
        ImportError: PyJWT is not installed.
        ValueError: neither or both of `jwks_url` and `key`; a secret that is too short; algorithms that do not fit.
        UnsafeURLError: a `jwks_url` that the guard refuses.
    """

    def __init__(
        self,
        *,
        issuer: str | Sequence[str],
        audience: str | Sequence[str],
        jwks_url: str | None = None,
        key: str | bytes | None = None,
        algorithms: Iterable[str] | None = None,
        identify: Callable[[Mapping[str, Any]], Identity] | None = None,
        scopes: Iterable[str] = (),
        leeway: float = 30.0,
        url_guard: URLGuard | None = None,
        scheme: SecurityScheme | None = None,
        name: str = "jwt",
    ) -> None:
        super().__init__()
        self._jwt = _library()
        if (jwks_url is None) == (key is None):
            raise ValueError("JWTAuth takes one of jwks_url= and key=")
        self.name = name
        self.scheme: SecurityScheme = scheme or HTTPAuthSecurityScheme(scheme="Bearer", bearer_format="JWT")
        self.scopes: tuple[str, ...] = tuple(scopes)
        self._issuer = issuer
        self._audience = audience
        self._leeway = leeway
        self._identify = identify or (lambda claims: claims["sub"])
        self._algorithms = _check_algorithms(algorithms, SYMMETRIC if isinstance(key, bytes) else ALGORITHMS)
        self.subject_issuers: tuple[str, ...] = (
            () if identify else (issuer,) if isinstance(issuer, str) else tuple(issuer)
        )
        self._required = ["exp", "iss", "aud", *([] if identify else ["sub"])]
        if jwks_url is not None:
            self._key_set: KeySet | None = guarded_key_set(jwks_url, url_guard)
        else:
            self._key_set, self._key = None, _check_key(key)

    def authenticate(self, request: AuthRequest) -> Principal | None:
        token = bearer_token(request)
        if token is None:
            return None
        claims = self._claims(token)
        identity = self._identify(claims)
        principal = as_principal(identity)
        if principal is None:
            raise UnauthenticatedError("the owner of the token is not known")
        # A principal without scopes is one that may do nothing: those of the token are not for it.
        return principal if principal is identity else Principal(id=principal.id, scopes=_scopes(claims), claims=claims)

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a valid token.

        Raises:
            UnauthenticatedError: the token is not valid.
        """
        if len(token) > _MAX_TOKEN_LENGTH:
            raise TokenRefusedError("the token is too long", f"more than {_MAX_TOKEN_LENGTH} characters")
        try:
            # The header only selects the key.
            header = self._jwt.get_unverified_header(token)
        except self._jwt.PyJWTError as error:
            raise TokenRefusedError("the token cannot be read", self._check(error)) from None
        kid, algorithm = header.get("kid", ""), header.get("alg", "")
        wrong, check = (
            "the token is signed with a key that is not known here",
            f"no key fits kid {str(kid)[:60]!r} and alg {str(algorithm)[:60]!r}",
        )
        for key in self._candidates(kid, algorithm):
            try:
                claims: dict[str, Any] = self._jwt.decode(
                    token,
                    key,
                    algorithms=self._algorithms,
                    audience=self._audience,
                    issuer=self._issuer,
                    leeway=self._leeway,
                    options={"require": self._required},
                )
            except self._jwt.InvalidSignatureError:
                wrong, check = "the token is not signed as it should be", "the signature does not fit the key"
            except self._jwt.ExpiredSignatureError:
                raise TokenRefusedError("the token has expired", "exp is in the past") from None
            except self._jwt.PyJWTError as error:
                wrong = "the token is not for this agent, not from its issuer, or not valid"
                check = self._check(error)
            else:
                return claims
        raise TokenRefusedError(wrong, check)

    def _check(self, error: Exception) -> str:
        """The check that a token failed, in words that show none of its claims."""
        library = self._jwt
        match error:
            case library.MissingRequiredClaimError():
                return f"it has no {error.claim}"
            case library.InvalidAudienceError():
                return f"aud does not name {self._audience}"
            case library.InvalidIssuerError():
                return f"iss is not {self._issuer}"
            case library.ImmatureSignatureError():
                return "nbf or iat is in the future"
            case library.InvalidAlgorithmError():
                return f"alg is none of {', '.join(self._algorithms)}"
            case library.InvalidKeyError():
                return "the key is of another kind than alg"
            case library.exceptions.InvalidSubjectError():
                return "sub is no text"
        return "it is malformed"

    def _candidates(self, kid: str, algorithm: str) -> Iterable[Any]:
        """The keys that fit the header of a token."""
        if self._key_set is None:
            return (self._key,)
        return [key.key for key in self._key_set.keys(kid) if not key.objection(algorithm)]


def _library() -> Any:
    try:
        import jwt
    except ImportError:
        raise ImportError("JWTAuth needs PyJWT: pip install 'a2a-sync[jwt]'") from None
    return jwt


def _check_algorithms(algorithms: Iterable[str] | None, possible: tuple[str, ...]) -> list[str]:
    chosen = (
        list(algorithms) if algorithms is not None else [one for one in possible if one != "HS384" and one != "HS512"]
    )
    if not chosen or set(chosen) - set(possible):
        # A public key accepted as a shared secret is the classic way to forge a token.
        raise ValueError(f"with this kind of key, algorithms are of {', '.join(possible)}")
    return chosen


def _check_key(key: str | bytes | None) -> str | bytes:
    if isinstance(key, bytes):
        if len(key) < _MIN_SECRET_BYTES:
            raise ValueError(f"key= needs at least {_MIN_SECRET_BYTES} bytes if it is a secret")
        return key
    if not isinstance(key, str) or "-----BEGIN" not in key:
        raise ValueError("key= takes a PEM text, or the bytes of a secret")
    return key


def _scopes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The claim of OAuth is text with blanks (RFC 8693); some issuers write a list, or name it ``scp``."""
    scopes = claims.get("scope", claims.get("scp", ()))
    if isinstance(scopes, str):
        return tuple(scopes.split())
    return tuple(one for one in scopes if isinstance(one, str)) if isinstance(scopes, (list, tuple)) else ()
