"""The card of an app: what was given, and what follows from the app itself: addresses, versions, capabilities.

A card cannot claim what its app does not do. How cards are asked for, written and cached is known to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from a2a_sync.card import AgentCapabilities, AgentCard, AgentExtension, AgentInterface
from a2a_sync.cardrules import LEFT_TO_THE_APP, validate_card

BINDINGS = ("JSONRPC", "HTTP+JSON")


class OwnCard:
    """Makes complete cards of an app, and checks them. `given` is the public one, as its author wrote it.

    `url` is the address, if it is fixed. `interfaces` are what is served, binding and version. `extensions` are those of the app, over what cards say of them.
    `extended`: there is an extended card. `push`: push notifications are sent. `secured` adds to a card what is asked of callers.

    Raises:
        InvalidCardError: here and from `completed`, naming each member that is wrong.
    """

    def __init__(
        self,
        given: AgentCard,
        *,
        url: str | None,
        interfaces: Sequence[tuple[str, str]],
        extensions: Sequence[AgentExtension] = (),
        extended: bool = False,
        push: bool = False,
        secured: Callable[[AgentCard], AgentCard] | None = None,
    ) -> None:
        self._url = url
        self._interfaces = tuple(interfaces)
        self._extensions = tuple(extensions)
        self._extended = extended
        self._push = push
        self._secured = secured
        # An app can always stream; its author may not want it to.
        self._streams = given.capabilities.streaming is not False
        self._public = self._with_capabilities(given)

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._public.name

    @property
    def capabilities(self) -> AgentCapabilities:
        """What the app can do."""
        return self._public.capabilities

    @property
    def asks_who_calls(self) -> bool:
        """Callers need credentials."""
        return bool(self._public.security_requirements)

    def public(self, address: str | None = None) -> AgentCard:
        """The card for everybody, at `address`, or at the app's own; without addresses where there is neither."""
        return self._at(self._public, address or self._url)

    def completed(self, card: AgentCard, address: str | None = None) -> AgentCard:
        """Another card of the same app, such as an extended one: at its own address, or at `address` where it has none."""
        if not isinstance(card, AgentCard):
            raise TypeError(f"a card is an AgentCard, not of type {type(card).__name__}")
        return self._at(self._with_capabilities(card), self._url or address)

    def _at(self, card: AgentCard, url: str | None) -> AgentCard:
        if not url:
            return card
        # Paths of HTTP+JSON begin with a slash, and many clients put them behind the address as it is.
        addresses = {"JSONRPC": url, "HTTP+JSON": url.rstrip("/")}
        interfaces = tuple(
            AgentInterface(url=addresses[binding], protocol_binding=binding, protocol_version=version)
            for binding, version in self._interfaces
        )
        return replace(card, supported_interfaces=interfaces)

    def _with_capabilities(self, card: AgentCard) -> AgentCard:
        known = {one.uri for one in self._extensions}
        others = (one for one in card.capabilities.extensions if one.uri not in known)
        able = AgentCapabilities(
            streaming=self._streams,
            push_notifications=self._push,
            extensions=(*self._extensions, *others),
            extended_agent_card=True if self._extended else None,
        )
        complete = replace(card, capabilities=able)
        if self._secured is not None:
            complete = self._secured(complete)
        validate_card(complete, may_lack=LEFT_TO_THE_APP)
        return complete


def offering(versions: Iterable[str], bindings: Sequence[str]) -> list[tuple[str, str]]:
    """What a card lists, binding and version: the preferred version first, and in each version the preferred binding.

    Raises:
        ValueError: a binding that does not exist, or none at all.
    """
    if unknown := set(bindings) - set(BINDINGS):
        raise ValueError(f"{unknown.pop()!r} is none of the bindings {BINDINGS}")
    offered = [(binding, version) for version in versions for binding in bindings]
    if not offered:
        raise ValueError("nothing is left to serve: bindings is empty")
    return offered


def described(agent: Any) -> AgentCard:
    """What an agent says of itself.

    Raises:
        TypeError: it does not describe itself.
    """
    describe: Callable[[], AgentCard] | None = getattr(agent, "describe", None)
    if describe is None:
        raise TypeError(f"A2AApp({type(agent).__name__}()) needs card=AgentCard(…): only an Agent describes itself")
    return describe()
