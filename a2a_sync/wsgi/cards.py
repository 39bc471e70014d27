"""The public card as a document: bytes made once per address and form, with validators for caches (spec 8.2, 8.6).

An app that serves one version sends that version's card. One that serves several sends a document that is valid in all: the
card of the newest with the members of the older ones beside them. A request that names a version gets the pure form of it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.wrappers import Request, Response

from a2a_sync import jsontext
from a2a_sync.bindings.headers import VERSION, named_versions
from a2a_sync.card import AgentCard
from a2a_sync.codec import Codec, by_version

if TYPE_CHECKING:
    from a2a_sync.signing.signer import Sign

CARD_PATH = "/.well-known/agent-card.json"
#: The path of agents and clients of protocol 0.2 and early 0.3.
OLD_CARD_PATH = "/.well-known/agent.json"
#: The public keys of what an app signs (RFC 7517).
KEYS_PATH = "/.well-known/jwks.json"
_MAX_AGE = 300
_MAX_DOCUMENTS = 64
_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")


@dataclass(frozen=True, slots=True)
class _Document:
    """The bytes of a card with their headers, as a WSGI application."""

    body: bytes
    headers: tuple[tuple[str, str], ...]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(self.headers))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [self.body]


def key_set(jwks: Iterable[Mapping[str, Any]]) -> WSGIApplication:
    """The document of a key set with these keys; of two with the same name, the first."""
    keys = list({jwk["kid"]: dict(jwk) for jwk in reversed(list(jwks))}.values())[::-1]
    body = jsontext.dumps({"keys": keys})
    headers = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
    return _Document(body, (*headers, ("Cache-Control", f"public, max-age={_MAX_AGE}")))


class CardDocument:
    """Responds to requests for the card.

    Parameters:
        card: makes the card for an address (the URL of the app, with a slash at its end).
        versions: the protocol versions that are served.
        fixed: the address does not come from the Host header of the request; only then may shared caches store the card.
        vary: the headers that the document depends on nevertheless.
        sign: makes signatures for the JSON of a card, once for each version in a document.
    """

    def __init__(
        self,
        card: Callable[[str], AgentCard],
        versions: Iterable[str],
        *,
        fixed: bool,
        vary: tuple[str, ...] = (),
        sign: Sign | None = None,
    ) -> None:
        self._card = card
        self._sign = sign
        codecs = {version: by_version(version) for version in versions}
        # The newest first: its members win where two forms differ.
        self._forms: dict[str, tuple[Codec, ...]] = {version: (codec,) for version, codec in codecs.items()}
        self._all = tuple(codecs[version] for version in sorted(codecs, reverse=True))
        self._caching = f"{'public' if fixed else 'private'}, max-age={_MAX_AGE}"
        self._vary = ", ".join([VERSION, *vary])
        self._lock = threading.Lock()
        self._documents: dict[tuple[str, tuple[Codec, ...]], _Document] = {}

    def respond(self, request: Request, address: str) -> WSGIApplication:
        """The card, or 304 when the client has it already; the body is left out for HEAD."""
        document = self._document(address, self._form(request))
        if not any(condition in request.environ for condition in _CONDITIONS):
            return document
        return Response(document.body, headers=document.headers).make_conditional(request)

    def text(self, request: Request, address: str) -> bytes:
        """The card in the form that the request asks for."""
        return self._document(address, self._form(request)).body

    def _form(self, request: Request) -> tuple[Codec, ...]:
        """The codecs to write in: one where the request names a version that is served."""
        in_query = request.args.get(VERSION, "") if request.query_string else ""
        named = named_versions(request.headers.get(VERSION) or in_query)
        return self._forms.get(named.pop(), self._all) if len(named) == 1 else self._all

    def _document(self, address: str, form: tuple[Codec, ...]) -> _Document:
        known = self._documents.get((address, form))
        if known is not None:
            return known
        document = self._make_document(self._card(address), form)
        with self._lock:
            # Addresses come from Host headers: many of them must not fill the memory.
            if len(self._documents) >= _MAX_DOCUMENTS:
                self._documents.clear()
            self._documents[address, form] = document
        return document

    def _make_document(self, card: AgentCard, form: tuple[Codec, ...]) -> _Document:
        body, validator = self._write(card, form)
        headers = (
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", self._caching),
            ("Vary", self._vary),
            ("ETag", validator),
        )
        return _Document(body, headers)

    def _write(self, card: AgentCard, form: tuple[Codec, ...]) -> tuple[bytes, str]:
        """The bytes of the document, and its validator."""
        forms = [codec.dump(_drop_other_signatures(codec, card)) for codec in form]
        document = reduce(_merge, forms)
        if len(forms) > 1:
            _repeat_in_schemes(document)
        if self._sign is None:
            body = jsontext.dumps(document)
            return body, f'"{_digest(body)}"'
        made = [signature for one in forms for signature in self._sign(one)]
        document["signatures"] = [by_version("1.0").dump(signature) for signature in made]
        # Each process signs by itself and may get other bytes; what is signed, and with which keys, is the same for all.
        same = {**document, "signatures": [signature.protected for signature in made]}
        return jsontext.dumps(document), f'W/"{_digest(jsontext.dumps(same))}"'


def _drop_other_signatures(codec: Codec, card: AgentCard) -> AgentCard:
    """`card`, without the signatures of its author where they do not cover the form of `codec`."""
    return card if codec.version == "1.0" else replace(card, signatures=())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _merge(first: Any, second: Any) -> Any:
    """The members of both; where they differ, those of `first`."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = {name: _merge(first[name], second[name]) for name in first.keys() & second.keys()}
        return {**second, **first, **both}
    if isinstance(first, list) and isinstance(second, list):
        pairs = [_merge(*pair) for pair in zip(first, second, strict=False)]
        return [*pairs, *first[len(pairs) :], *second[len(pairs) :]]
    return first


def _repeat_in_schemes(document: dict[str, Any]) -> None:
    """Repeat the members of each scheme of 1.0 in the form of 0.3, which the official SDK reads where it is present."""
    for scheme in document.get("securitySchemes", {}).values():
        for name in [name for name in scheme if name.endswith("SecurityScheme")]:
            scheme.update(_merge({key: value for key, value in scheme.items() if key != name}, scheme[name]))
