"""Cards that count only if they are signed by somebody whom the user trusts. Loaded by clients that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from a2a_sync.client.cards import load_card
from a2a_sync.client.deadlines import Deadline
from a2a_sync.codec import DecodeError
from a2a_sync.operations import GET_EXTENDED_CARD, Call
from a2a_sync.signing import CardVerifier

if TYPE_CHECKING:
    from a2a_sync.card import AgentCard
    from a2a_sync.client.http import HttpTransport


class CardTrust:
    """Checks the cards of one agent with `card_verifier`, a `CardVerifier` or what one is made of. Reads key sets over `http`."""

    def __init__(self, verify_card: Any, http: HttpTransport) -> None:
        self._verifier = verify_card if isinstance(verify_card, CardVerifier) else CardVerifier(verify_card)
        self._http = http

    def check(self, card: AgentCard | Mapping[str, Any], deadline: Deadline) -> AgentCard:
        """The card that the signature of `card` covers. It is given as it came, for what an object cannot hold is signed too.

        Raises:
            CardSignatureError: it may not.
        """
        verified = self._verifier.verify(card, fetch=lambda url: self._read(url, deadline), agent=self._http.agent)
        return load_card(verified.document)

    def vet(self, call: Call, value: Any) -> AgentCard | None:
        """The extended card that an agent has answered with, as its signature covers it; None for other answers."""
        if call.operation is not GET_EXTENDED_CARD:
            return None
        if not isinstance(value, dict):
            raise DecodeError("AgentCard: expected an object")
        return self.check(value, Deadline.after(call.context.timeout))

    def _read(self, url: str, deadline: Deadline) -> bytes:
        from a2a_sync.client.credentials import display
        from a2a_sync.client.http import Where

        headers = {"Accept": "application/json"}
        answer = self._http.open(
            "GET", url, headers=headers, where=Where("card", display(url)), deadline=deadline, guarded=False
        )
        body = answer.read()
        if not answer.ok:
            raise answer.status_error(body)
        return body
