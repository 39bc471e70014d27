"""GetExtendedAgentCard: the card for callers that may see more than the public one (spec 3.1.11, 13.3).

The author of the app decides which caller gets which card; the card is completed and signed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_sync.bindings.registry import BINDINGS
from a2a_sync.card import AgentCard
from a2a_sync.codec import by_version
from a2a_sync.errors import (
    ExtendedAgentCardNotConfiguredError,
    InvalidAgentResponseError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from a2a_sync.operations import CallContext, Principal
from a2a_sync.server.cards import AppCard
from a2a_sync.telemetry.logs import get_logger
from a2a_sync.types import GetExtendedAgentCardRequest

__all__ = ["CardContext"]

if TYPE_CHECKING:
    from a2a_sync.signing.signer import Sign

logger: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardContext:
    """The caller that requests an extended card, named as in a handler's context.

    ``user`` is None where the caller is not authenticated. ``headers`` are all headers of the request, with names in lower
    case; they are not stored. ``version`` is the protocol version of the caller.
    """

    user: Principal | None = None
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    version: str = "1.0"


#: A card for every caller, or a function that returns one: None where this caller gets none.
ExtendedCardSource: TypeAlias = AgentCard | Callable[[CardContext], AgentCard | None]


class ExtendedCard:
    """The operation GetExtendedAgentCard. `source` is called on the thread of the request, by several threads at once."""

    def __init__(
        self, source: ExtendedCardSource | None = None, cards: AppCard | None = None, sign: Sign | None = None
    ) -> None:
        if not (source is None or isinstance(source, AgentCard) or callable(source)):
            raise TypeError(
                f"extended_card takes an AgentCard or a function that returns one, not {type(source).__name__}"
            )
        if isinstance(source, AgentCard) and cards is not None:
            cards.complete(source)
        self._source = source
        self._cards = cards
        self._sign = sign

    def __call__(self, request: GetExtendedAgentCardRequest, context: CallContext) -> AgentCard:
        """The card for this caller.

        Raises:
            UnauthenticatedError: the agent's card requires credentials, and the caller is not authenticated.
            UnsupportedOperationError: this agent has no extended card. In 0.3 that is the next one.
            ExtendedAgentCardNotConfiguredError: there is none for this caller.
            InvalidAgentResponseError: the author's function returned no valid card.
        """
        if self._source is None or self._cards is None:
            if context.version == "0.3":
                raise ExtendedAgentCardNotConfiguredError()
            raise UnsupportedOperationError("This agent has no extended card")
        # spec 13.3. Calls inside the process, which have no address, need no credentials.
        if self._cards.card.security_requirements and context.principal is None and context.address:
            raise UnauthenticatedError("The extended card is for authenticated callers")
        card = self._source if isinstance(self._source, AgentCard) else self._source(_card_context(request, context))
        if card is None:
            raise ExtendedAgentCardNotConfiguredError("There is no extended card for this caller")
        try:
            return self._signed(self._cards.complete(card, context.address), context.version)
        except (TypeError, ValueError) as error:
            logger.error("extended_card returned no valid card: %s", error)
            raise InvalidAgentResponseError() from None

    def _signed(self, card: AgentCard, version: str) -> AgentCard:
        """`card` with signatures over its form of `version`. Those of its author cover the form of 1.0."""
        if self._sign is not None and card.supported_interfaces:
            card = replace(card, signatures=())
            return replace(card, signatures=tuple(made for form in _forms(card, version) for made in self._sign(form)))
        return card if version == "1.0" else replace(card, signatures=())


def _forms(card: AgentCard, version: str) -> list[Any]:
    """The JSON of `card` in every binding, each form once: the binding of the call is not known here."""
    forms: list[Any] = []
    for binding in BINDINGS:
        form = by_version(version, binding).dump(card)
        if form not in forms:
            forms.append(form)
    return forms


def _card_context(request: GetExtendedAgentCardRequest, context: CallContext) -> CardContext:
    return CardContext(
        user=context.principal,
        tenant=request.tenant,
        headers=context.headers,
        extensions=context.extensions,
        version=context.version,
    )
