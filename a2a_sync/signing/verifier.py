"""`CardVerifier`: sees that a card was signed by somebody who is trusted (spec 8.4.3)."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from a2a_sync import jsontext, urls
from a2a_sync.card import AgentCard
from a2a_sync.codec import by_version
from a2a_sync.errors import CardSignatureError, JSONParseError, TransportError, UnsafeURLError
from a2a_sync.signing.canonical import canonical_forms, document_of, version_of
from a2a_sync.signing.jwk import ALGORITHMS, TrustedKey, named, read_key_set, trusted_keys
from a2a_sync.signing.keys import need_libraries

#: Reads what is at a URL: its body, if the answer is a success. Raises `TransportError`.
Fetch: TypeAlias = Callable[[str], bytes]
#: What may be trusted; see `CardVerifier`.
Trusted: TypeAlias = Any

_MOST_SIGNATURES = 16
#: How long after a reading of a key set the next one may be at the earliest, where a key is missing in it. Seconds.
_PAUSE = 10.0


class VerifiedCard(NamedTuple):
    """What a signature vouches for: its protected header, and the JSON of the card that it was made over.

    ``document`` can lack members of the card that was given: those that the signature does not cover.
    """

    header: Mapping[str, Any]
    document: dict[str, Any]


class CardVerifier:
    """Trusts these keys: ``Client(url, card_verifier="https://keys.example.com/jwks.json")``.

    Safe from many threads; may be shared by clients, which then read a key set once.

    Parameters:
        keys: the URL of a key set (https), a key set, a JWK, PEM text, keys by their names (``{"2026-1": pem}``), a list of
            these; or a function that is given the protected header of a signature (``kid``, ``alg``, ``jku``) and gives one
            of these, or None if it knows no key.
        algorithms: those that are accepted. ``none`` and shared secrets never are.
        jku: URLs of key sets that are used where a signature names them. No other is ever called.
        refresh: seconds after which a key set at a URL is read again; a key that is no longer in it is not used any more.
            A signature by an unknown key makes it be read earlier.

    Raises:
        ValueError: a key that cannot be used, an algorithm that is not accepted here, a URL that is not https.
        ImportError: the extra ``a2a-sync[signing]`` is not installed.
    """

    def __init__(
        self,
        keys: Trusted = (),
        *,
        algorithms: Collection[str] = ALGORITHMS,
        jku: Collection[str] = (),
        refresh: float = 300.0,
    ) -> None:
        self._jwt = need_libraries("CardVerifier")
        if unknown := set(algorithms) - set(ALGORITHMS):
            raise ValueError(f"{min(unknown)!r} is none of the algorithms {', '.join(ALGORITHMS)}")
        self._algorithms = frozenset(algorithms)
        self._jku = {url: _KeySet(url, refresh) for url in ([jku] if isinstance(jku, str) else jku)}
        self._ask: Callable[[Mapping[str, Any]], Any] | None = None
        self._set: _KeySet | None = None
        self._keys: tuple[TrustedKey, ...] = ()
        if isinstance(keys, str) and "://" in keys:
            self._set = _KeySet(keys, refresh)
        elif callable(keys):
            self._ask = keys
        else:
            self._keys = trusted_keys(keys)
        if not (self._keys or self._set or self._ask or self._jku):
            raise ValueError("a CardVerifier needs at least one key to trust")

    def verify(
        self, card: AgentCard | Mapping[str, Any], *, fetch: Fetch | None = None, agent: str = ""
    ) -> VerifiedCard:
        """What the first signature that holds covers. The card is an object of 1.0, or its JSON of any version.

        Signatures of the official SDKs leave out what is empty, such as a security requirement without scopes. Anybody can
        add that to a card, or take it away, so use the document that is returned and not the one that was given.

        `fetch` reads key sets at URLs; `agent` stands in the error.

        Raises:
            CardSignatureError: none holds; it says of each one why.
        """
        document = by_version("1.0").dump(card) if isinstance(card, AgentCard) else card
        signatures = document.get("signatures")
        if not isinstance(signatures, list) or not signatures:
            raise CardSignatureError("the card is not signed", phase="card", agent=agent)
        version = version_of(document)
        try:
            forms = canonical_forms(document, version)
        except ValueError as error:
            raise CardSignatureError(f"the card cannot be verified: {error}", phase="card", agent=agent) from None
        reasons = []
        for index, signature in enumerate(signatures[:_MOST_SIGNATURES]):
            try:
                header, form = self._verified(signature, forms, fetch)
                return VerifiedCard(header, {**document_of(form, version), "signatures": signatures})
            except _Refused as refused:
                reasons.append(f"signatures[{index}]: {refused}")
        raise CardSignatureError("no signature of the card holds: " + "; ".join(reasons), phase="card", agent=agent)

    def _verified(
        self, signature: Any, forms: tuple[bytes, ...], fetch: Fetch | None
    ) -> tuple[Mapping[str, Any], bytes]:
        protected, value = _texts(signature)
        header = _header(protected)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise _Refused(f"the algorithm {algorithm!r} is not accepted")
        if not isinstance(kid, str) or not kid:
            raise _Refused("names no key (kid)")
        objections = []
        for key in self._trusted(header, kid, fetch):
            if objection := key.objection(algorithm):
                objections.append(f"the key {kid!r} {objection}")
            else:
                for form in forms:
                    if self._holds(protected, form, value, key, algorithm):
                        return header, form
                objections.append(f"made by another key than {kid!r}, or over another card")
        raise _Refused(objections[0] if objections else self._unknown(header, kid))

    def _holds(self, protected: str, form: bytes, signature: str, key: TrustedKey, algorithm: str) -> bool:
        payload = base64.urlsafe_b64encode(form).rstrip(b"=").decode()
        try:
            self._jwt.api_jws.decode(f"{protected}.{payload}.{signature}", key.key, algorithms=[algorithm])
        except self._jwt.PyJWTError:
            return False
        return True

    def _trusted(self, header: Mapping[str, Any], kid: str, fetch: Fetch | None) -> Iterator[TrustedKey]:
        """The keys that the signature may have been made with."""
        yield from named(self._keys, kid)
        if self._ask is not None:
            given = self._ask(header)
            yield from () if given is None else named(trusted_keys(given), kid)
        jku = header.get("jku")
        for known in filter(None, (self._set, self._jku.get(jku) if isinstance(jku, str) else None)):
            yield from known.keys(kid, fetch)

    def _unknown(self, header: Mapping[str, Any], kid: str) -> str:
        jku = header.get("jku")
        elsewhere = f"; the key set that it names ({jku!r}) is not among those allowed" if jku else ""
        return f"the key {kid!r} is not trusted" + (elsewhere if jku not in self._jku else "")


class _Refused(Exception):
    """Why a signature does not count."""


def _texts(signature: Any) -> tuple[str, str]:
    match signature:
        case {"protected": str(protected), "signature": str(value)} if protected.isascii() and value.isascii():
            return protected, value
    raise _Refused("is none")


def _header(protected: str) -> dict[str, Any]:
    try:
        # Without padding, as RFC 7515 has it.
        text = base64.b64decode(protected + "=" * (-len(protected) % 4), altchars=b"-_", validate=True)
        header = jsontext.loads(text)
    except (binascii.Error, ValueError, JSONParseError):
        header = None
    if not isinstance(header, dict):
        raise _Refused("its protected header cannot be read")
    if "crit" in header or "b64" in header:
        raise _Refused("needs extensions of JWS that are not known here (crit)")
    return header


class _KeySet:
    """A key set at a URL, as it was read last. Unlike `auth.keyset` it trusts nothing that is older than its time: a client can
    do without an agent, a server cannot do without its callers."""

    def __init__(self, url: str, refresh: float) -> None:
        try:
            scheme, host, _ = urls.parse(url).origin
        except UnsafeURLError as error:
            raise UnsafeURLError(f"the URL of a key set {error}") from None
        if scheme != "https" and host not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError("the URL of a key set must begin with https://")
        self.url = url
        self._refresh = refresh
        self._read: tuple[float, tuple[TrustedKey, ...]] = (float("-inf"), ())

    def keys(self, kid: str, fetch: Fetch | None) -> tuple[TrustedKey, ...]:
        """Those of this name. Blocks while the set is read; threads that meet here each read it.

        Raises:
            _Refused: it cannot be read.
        """
        at, keys = self._read
        age = time.monotonic() - at
        found = named(keys, kid)
        if age >= self._refresh or (not found and age >= min(_PAUSE, self._refresh)):
            if fetch is None:
                raise _Refused(f"nothing here can read {self.url}")
            keys = self._fetched(fetch)
            self._read = (time.monotonic(), keys)
            found = named(keys, kid)
        return found

    def _fetched(self, fetch: Fetch) -> tuple[TrustedKey, ...]:
        try:
            return read_key_set(fetch(self.url))
        except TransportError as error:
            raise _Refused(f"the key set cannot be read: {error}") from error
        except ValueError:
            raise _Refused(f"what is at {self.url} is no key set") from None
