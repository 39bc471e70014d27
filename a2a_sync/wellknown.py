"""The public card as a document: bytes made once per address, with validators for caches (spec 8.2, 8.6)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from werkzeug.wrappers import Request, Response

from a2a_sync import jsontext
from a2a_sync.card import AgentCard
from a2a_sync.codec import Codec

CARD_PATH = "/.well-known/agent-card.json"
_MAX_AGE = 300
_MOST_ADDRESSES = 64


@dataclass(frozen=True, slots=True)
class _Document:
    body: bytes
    etag: str


class CardDocument:
    """Answers requests for the card. `card` makes the card for an address (the URL of the app, with a slash at its end).

    `fixed` says that the address does not come from the request; only then may shared caches keep the answer.
    """

    def __init__(self, card: Callable[[str], AgentCard], codec: Codec, *, fixed: bool) -> None:
        self._card = card
        self._codec = codec
        self._fixed = fixed
        self._lock = threading.Lock()
        self._documents: dict[str, _Document] = {}

    def respond(self, request: Request, address: str) -> Response:
        """The card, or 304 when the client has it already; the body is left out for HEAD by the server."""
        document = self._document(address)
        response = Response(document.body, content_type="application/json")
        response.headers["Cache-Control"] = f"{'public' if self._fixed else 'private'}, max-age={_MAX_AGE}"
        response.headers["Vary"] = "A2A-Version" if self._fixed else "A2A-Version, Host"
        response.set_etag(document.etag)
        return response.make_conditional(request)

    def _document(self, address: str) -> _Document:
        known = self._documents.get(address)
        if known is not None:
            return known
        body = jsontext.dumps(self._codec.dump(self._card(address)))
        document = _Document(body, hashlib.sha256(body).hexdigest()[:32])
        with self._lock:
            # Addresses come from Host headers: whoever sends many of them may not fill the memory.
            if len(self._documents) >= _MOST_ADDRESSES:
                self._documents.clear()
            self._documents[address] = document
        return document
