"""A card that has become too old is asked for again, by its validator where it has one (spec 8.6.2).

Loaded with the first card that becomes so. How long a card may be used is said by `cards.Kept`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from a2a_sync.bindings.headers import VERSION
from a2a_sync.client.cards import Kept, read_card
from a2a_sync.client.deadlines import Deadline
from a2a_sync.errors import AgentError, TransportError
from a2a_sync.telemetry.logs import get_logger

if TYPE_CHECKING:
    from a2a_sync.card import AgentCard
    from a2a_sync.client.http import HttpTransport
    from a2a_sync.client.trust import CardTrust

logger = get_logger(__name__)

#: How long a call may be held up by the look at the card, in seconds.
PATIENCE = 2.0


class Renewed(NamedTuple):
    """What a look at the card brought: another card, or None where it is the same, and until when that holds."""

    card: AgentCard | None
    kept: Kept


def look_again(
    http: HttpTransport, kept: Kept, version: str, trust: CardTrust | None, deadline: Deadline
) -> Renewed | None:
    """Ask for the card where it was found; None where nothing usable came. Blocks for `PATIENCE` at most.

    Lets no error out: whoever calls has a card.
    """
    from a2a_sync.client.http import Where

    headers = {"Accept": "application/json", VERSION: version}
    if kept.etag:
        headers["If-None-Match"] = kept.etag
    deadline = min(deadline, Deadline.after(PATIENCE))
    check: Callable[..., AgentCard] | None = None if trust is None else lambda document: trust.check(document, deadline)
    try:
        answer = http.get(kept.place, headers=headers, where=Where("card", http.agent), deadline=deadline)
        if answer.status == 304 and kept.etag:
            return Renewed(None, Kept.of(kept.place, {"ETag": kept.etag, **answer.headers}))
        found = read_card(answer.body, kept.place, check) if answer.status == 200 else f"HTTP {answer.status}"
    except (AgentError, TransportError, ValueError) as error:
        found = str(error)
    if isinstance(found, str):
        logger.info("the card of %s could not be read again (%s); the one from before is used", http.agent, found)
        return None
    return Renewed(found, Kept.of(kept.place, answer.headers))
