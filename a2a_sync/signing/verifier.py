"""`CardVerifier`: verifies that a card was signed with a trusted key (spec 8.4.3)."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from a2a_sync import jsontext, urls
from a2a_sync.card import AgentCard
from a2a_sync.codec import by_version
from a2a_sync.codec.fields import shown
from a2a_sync.concurrency.gevent import let_greenlets_run, on_native_thread
from a2a_sync.errors import CardSignatureError, JSONParseError, TransportError, UnavailableError, UnsafeURLError
from a2a_sync.signing.canonical import canonical_forms, document_of, version_of
from a2a_sync.signing.jwk import ALGORITHMS, TrustedKey, keys_with_id, trusted_keys
from a2a_sync.signing.jwks import Fetch, KeySet
from a2a_sync.signing.keys import need_libraries

#: Trusted keys in any form that `CardVerifier` accepts.
Trusted: TypeAlias = Any

_MAX_SIGNATURES = 16
#: The largest card that is verified, in bytes of JSON with its signatures: each signature covers all of it.
_MAX_CARD_BYTES = 256 * 1024
#: How many bytes signatures of one card are checked over: each key and form of each signature needs the whole card again.
_MAX_CHECKED_BYTES = 32 * 1024 * 1024
#: The least number of seconds between two reads of a key set in which a key is missing.
_PAUSE = 10.0


class VerifiedCard(NamedTuple):
    """The result of a verification: the protected header of a signature, and the JSON of the card that it covers.

    ``document`` lacks members of the given card that the signature does not cover.
    """

    header: Mapping[str, Any]
    document: dict[str, Any]


class CardVerifier:
    """Verifies cards with trusted keys: ``Client(url, card_verifier="https://keys.example.com/jwks.json")``.

    Thread-safe. Clients may share a verifier and thereby its cached key sets. A client with ``verify=`` or ``session=`` reads its own
    copies, because others would trust keys from a server that only this client accepts.

    Parameters:
        keys: the URL of a key set (https), a key set, a JWK, PEM text, keys by their names (``{"2026-1": pem}``), a
            list of these; or a function that receives the protected header of a signature (``kid``, ``alg``, ``jku``)
            and returns one of these, or None if it has no such key.
        algorithms: the accepted signature algorithms. ``none`` and shared secrets are never accepted.
        jku: URLs of key sets that are read if a signature names them. URLs that are not listed are never requested.
        refresh: seconds after which a key set at a URL is read again; keys that were removed from it are no longer
            trusted then. An unknown key id causes an earlier read.

    Raises:
        ValueError: a key is unusable, an algorithm is not supported, a URL is not https, or no key is given.
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
        self._jku = {url: _key_set(url, refresh) for url in ([jku] if isinstance(jku, str) else jku)}
        self._key_function: Callable[[Mapping[str, Any]], Any] | None = None
        self._set: KeySet | None = None
        self._keys: tuple[TrustedKey, ...] = ()
        if isinstance(keys, str) and "://" in keys:
            self._set = _key_set(keys, refresh)
        elif callable(keys):
            self._key_function = keys
        else:
            self._keys = trusted_keys(keys)
        if not (self._keys or self._set or self._key_function or self._jku):
            raise ValueError("a CardVerifier needs at least one key to trust")

    def copy(self) -> CardVerifier:
        """A verifier that trusts the same keys, and reads key sets at URLs for itself."""
        other = copy.copy(self)
        other._set = self._set and replace(self._set)
        other._jku = {url: replace(known) for url, known in self._jku.items()}
        return other

    def verify(
        self, card: AgentCard | Mapping[str, Any], *, fetch: Fetch | None = None, agent: str = ""
    ) -> VerifiedCard:
        """Verify a card and return what its first valid signature covers.

        Blocks the calling thread if a key set is read.

        Signatures of the official SDKs do not cover empty members, such as a security requirement without scopes. Such
        members can be added to a card or removed from it, so use the returned document and not the one that was passed.

        Parameters:
            card: an `AgentCard`, or the JSON of a card of any version.
            fetch: reads key sets at URLs; without it none are read.
            agent: the name of the agent in errors.

        Raises:
            CardSignatureError: the card is not signed, cannot be read, has more than 256 KiB of JSON, or none of its first 16
                signatures is valid; the text has the reasons.
        """
        document = by_version("1.0").dump(card) if isinstance(card, AgentCard) else card
        signatures = document.get("signatures")
        if not isinstance(signatures, list) or not signatures:
            raise CardSignatureError("the card is not signed", phase="card", agent=agent)
        version = version_of(document)
        try:
            if len(jsontext.dumps(document)) > _MAX_CARD_BYTES:
                raise ValueError(f"it has more than {_MAX_CARD_BYTES} bytes")
            # This takes half a second for some cards; other greenlets run meanwhile.
            forms = _Forms(on_native_thread(lambda: canonical_forms(document, version)))
        except ValueError as error:
            raise CardSignatureError(f"the card cannot be verified: {error}", phase="card", agent=agent) from None
        reasons = []
        for index, signature in enumerate(signatures[:_MAX_SIGNATURES]):
            try:
                header, form = self._verified(signature, forms, fetch)
                return VerifiedCard(header, {**document_of(form, version), "signatures": signatures})
            except _Refused as refused:
                reasons.append(f"signatures[{index}]: {refused}")
        raise CardSignatureError("no signature of the card is valid: " + "; ".join(reasons), phase="card", agent=agent)

    def _algorithm_and_key(self, header: Mapping[str, Any]) -> tuple[str, str]:
        """The members ``alg`` and ``kid`` of a header."""
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str):
            raise _Refused("names no algorithm (alg)")
        if algorithm not in self._algorithms:
            raise _Refused(f"the algorithm {shown(algorithm)} is not accepted")
        if not isinstance(kid, str) or not kid:
            raise _Refused("names no key (kid)")
        return algorithm, kid

    def _verified(self, signature: Any, forms: _Forms, fetch: Fetch | None) -> tuple[Mapping[str, Any], bytes]:
        protected, value = _texts(signature)
        header = _header(protected)
        algorithm, kid = self._algorithm_and_key(header)
        # PyJWT's `decode` would encode, decode and search the card for each check, and its search is a loop in Python.
        is_valid, made = self._jwt.get_algorithm_by_name(algorithm).verify, _decoded(value) or b""
        objections = []
        for key in self._trusted(header, kid, fetch):
            if objection := key.objection(algorithm):
                objections.append(f"the key {shown(kid)} {objection}")
            else:
                for form, text in forms.signed_texts(protected):
                    if is_valid(text, key.key, made):
                        return header, form
                objections.append(f"made by another key than {shown(kid)}, or over another card")
        raise _Refused(objections[0] if objections else self._unknown_key_text(header, kid))

    def _trusted(self, header: Mapping[str, Any], kid: str, fetch: Fetch | None) -> Iterator[TrustedKey]:
        """The trusted keys with the key id `kid`, or without a key id."""
        yield from keys_with_id(self._keys, kid)
        if self._key_function is not None:
            given = self._key_function(header)
            yield from () if given is None else keys_with_id(trusted_keys(given), kid)
        jku = header.get("jku")
        for known in filter(None, (self._set, self._jku.get(jku) if isinstance(jku, str) else None)):
            yield from _read_keys(known, kid, fetch)

    def _unknown_key_text(self, header: Mapping[str, Any], kid: str) -> str:
        jku = header.get("jku")
        text = f"the key {shown(kid)} is not trusted"
        if isinstance(jku, str) and jku and jku not in self._jku:
            text += f"; the key set that it names ({shown(jku)}) is not among those allowed"
        return text


class _Refused(Exception):
    """A signature is not accepted; the text is the reason."""


class _Forms:
    """The canonical forms of one card, and how many bytes its signatures may still be checked over."""

    def __init__(self, forms: tuple[bytes, ...]) -> None:
        self._payloads = {form: base64.urlsafe_b64encode(form).rstrip(b"=") for form in forms}
        self._left = _MAX_CHECKED_BYTES

    def signed_texts(self, protected: str) -> Iterator[tuple[bytes, bytes]]:
        """Each form, with the text that a signature with this header over it covers. For one check of each.

        Raises:
            _Refused: the checks before have used the bytes.
        """
        for form, payload in self._payloads.items():
            self._left -= len(protected) + len(payload)
            if self._left < 0:
                raise _Refused("not checked, because the card is too large for so many signatures and keys")
            let_greenlets_run()
            yield form, b"%b.%b" % (protected.encode(), payload)


def _texts(signature: Any) -> tuple[str, str]:
    match signature:
        case {"protected": str(protected), "signature": str(value)} if protected.isascii() and value.isascii():
            return protected, value
    raise _Refused("is none")


def _decoded(text: str) -> bytes | None:
    """The bytes in base64url text; None: it is none. RFC 7515 omits the padding."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None


def _header(protected: str) -> dict[str, Any]:
    try:
        header = jsontext.loads(_decoded(protected) or b"")
    except (ValueError, JSONParseError):
        header = None
    if not isinstance(header, dict):
        raise _Refused("its protected header cannot be read")
    if "crit" in header or "b64" in header:
        raise _Refused("needs extensions of JWS that are not known here (crit)")
    return header


def _key_set(url: str, refresh: float) -> KeySet:
    """The key set at `url`. Keys read more than `refresh` seconds ago are not used.

    A server uses older keys while the URL cannot be read, or it would refuse all callers; a client can refuse one
    agent.
    """
    try:
        scheme, host, _ = urls.parse(url).origin
    except UnsafeURLError as error:
        raise UnsafeURLError(f"the URL of a key set {error}") from None
    if scheme != "https" and host not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError("the URL of a key set must begin with https://")
    return KeySet(url, refresh=refresh, max_stale=0.0, pause=min(_PAUSE, refresh), failure_pause=0.0, exclusive=False)


def _read_keys(known: KeySet, kid: str, fetch: Fetch | None) -> tuple[TrustedKey, ...]:
    """The keys with the key id `kid`.

    Raises:
        _Refused: the key set cannot be read.
    """
    try:
        return known.keys(kid, fetch)
    except UnavailableError as error:
        if fetch is None:
            raise _Refused(f"reading {known.url} needs the argument fetch") from None
        cause = error.__cause__
        if isinstance(cause, TransportError):
            raise _Refused(f"the key set cannot be read: {cause}") from cause
        raise _Refused(f"the document at {known.url} is no key set") from None
