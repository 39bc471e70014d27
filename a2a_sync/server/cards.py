"""The card of an app: what its author wrote, completed with addresses, versions and capabilities.

A card cannot claim what its app does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace

from a2a_sync.agent.spec import AgentSpec
from a2a_sync.bindings.registry import BINDINGS
from a2a_sync.card import FILLED_IN_BY_APP, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, validate_card


@dataclass(eq=False, repr=False)
class AppCard:
    """Makes complete cards of an app, and checks them.

    Parameters:
        given: the public card as its author wrote it.
        url: the address, if it is fixed.
        interfaces: the bindings and versions that are served.
        extensions: those of the app, which override those of the cards.
        extended: there is an extended card.
        push: push notifications are sent.
        secured: adds the security schemes and requirements to a card.

    Raises:
        InvalidCardError: here and from `complete`; it names each member that is wrong.
    """

    given: InitVar[AgentCard]
    _: KW_ONLY
    url: str | None
    interfaces: Sequence[tuple[str, str]]
    extensions: Sequence[AgentExtension] = ()
    extended: bool = False
    push: bool = False
    secured: Callable[[AgentCard], AgentCard] | None = None

    def __post_init__(self, given: AgentCard) -> None:
        # An app can always stream; its author may switch it off.
        self._streams = given.capabilities.streaming is not False
        #: The public card without addresses.
        self.card: AgentCard = self._with_capabilities(given)
        self._others: tuple[AgentInterface, ...] = ()

    def public(self, address: str | None = None) -> AgentCard:
        """The public card, at `address` or at the app's own; without interfaces where neither is known."""
        return self._at(self.card, address or self.url)

    def complete(self, card: AgentCard, address: str | None = None) -> AgentCard:
        """Another card of the same app, such as an extended one: at the app's own address, or at `address` where it has none.

        Raises:
            TypeError: `card` is not a card.
        """
        if not isinstance(card, AgentCard):
            raise TypeError(f"a card is an AgentCard, not of type {type(card).__name__}")
        return self._at(self._with_capabilities(card), self.url or address)

    def _at(self, card: AgentCard, url: str | None) -> AgentCard:
        if not url:
            return card
        interfaces = tuple(
            AgentInterface(url=BINDINGS[binding].interface_url(url), protocol_binding=binding, protocol_version=version)
            for binding, version in self.interfaces
        )
        return replace(card, supported_interfaces=(*interfaces, *self._others))

    def add_interfaces(self, interfaces: Iterable[AgentInterface]) -> None:
        """List interfaces of other transports, which have addresses of their own, after those of HTTP."""
        self._others = tuple(dict.fromkeys((*self._others, *interfaces)))

    def _with_capabilities(self, card: AgentCard) -> AgentCard:
        known = {one.uri for one in self.extensions}
        others = (one for one in card.capabilities.extensions if one.uri not in known)
        able = AgentCapabilities(
            streaming=self._streams,
            push_notifications=self.push,
            extensions=(*self.extensions, *others),
            extended_agent_card=True if self.extended else None,
        )
        result = replace(card, capabilities=able)
        if self.secured is not None:
            result = self.secured(result)
        validate_card(result, may_lack=FILLED_IN_BY_APP)
        return result


def list_interfaces(versions: Iterable[str], bindings: Sequence[str]) -> list[tuple[str, str]]:
    """The interfaces of a card as (binding, version): the preferred version first, and in it the preferred binding.

    Raises:
        ValueError: a binding does not exist, or there is none.
    """
    served = [name for name, binding in BINDINGS.items() if binding.service]
    if unknown := set(bindings).difference(served):
        hint = "; a2a_sync.grpc.GRPCServer serves GRPC" if "GRPC" in unknown else ""
        raise ValueError(f"protocol_bindings: {min(unknown)!r} is none of {', '.join(served)}{hint}")
    offered = [(binding, version) for version in versions for binding in bindings]
    if not offered:
        raise ValueError("nothing is left to serve: protocol_bindings is empty")
    return offered


def describe_agent(agent: AgentSpec) -> AgentCard:
    """The card by which an agent describes itself.

    Raises:
        TypeError: the agent does not describe itself.
    """
    if agent.describe is None:
        raise TypeError(f"A2AApp({agent.kind}()) needs card=AgentCard(…): only an Agent describes itself")
    return agent.describe()
