"""Finding an agent's card and choosing the interface to call (spec 8.2, 8.3.2).

Fetching is a function that is handed in: this room knows neither HTTP nor sockets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from a2a_sync import jsontext, urls
from a2a_sync.bindings.headers import UNNAMED, major_minor
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.errortext import error_text
from a2a_sync.codec import DecodeError, by_version
from a2a_sync.errors import CardNotFoundError, JSONParseError, UnsafeURLError, VersionNotSupportedError

#: Where cards are, relative to the agent's URL; the second is that of old agents.
WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
#: A card is not asked for more often than that, in seconds, whatever its server says.
LEAST_AGE = 1.0
#: Bindings and versions that this client speaks.
SUPPORTED = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"))
_BINDINGS = frozenset(binding for binding, _ in SUPPORTED)


def candidates(url: str) -> list[str]:
    """Where the card of the agent at `url` may be, best first. `url` may be that of the card itself."""
    read = urls.parse(url)
    base = str(read._replace(path=read.path.rstrip("/"), query=""))
    well_known = [base + path for path in WELL_KNOWN]
    return [url, *well_known] if read.path.endswith(".json") else [*well_known, url]


class Page(NamedTuple):
    """What is at a URL: the status of the answer, its body and its headers."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Kept(NamedTuple):
    """Where a card was found, by which validator it is asked for again (empty: none), and until when it holds.

    ``until`` is in seconds of the monotonic clock. Cards that nobody has dated hold for ever, those that were handed in too.
    """

    place: str = ""
    etag: str = ""
    until: float = math.inf

    @classmethod
    def of(cls, place: str, headers: Mapping[str, str]) -> Kept:
        """What the headers of a card say of it (spec 8.6, RFC 9111)."""
        said = {name.lower(): value for name, value in headers.items()}
        age = _max_age(said.get("cache-control", ""))
        if age is None:
            return cls(place, said.get("etag", ""))
        spent = _seconds(said.get("age", "")) or 0
        return cls(place, said.get("etag", ""), time.monotonic() + max(age - spent, LEAST_AGE))


#: How long a card holds that nobody has dated, or that was handed in.
FOR_EVER = Kept()


def _max_age(control: str) -> int | None:
    directives = dict(part.strip().lower().partition("=")[::2] for part in control.split(","))
    if {"no-cache", "no-store"} & directives.keys():
        return 0
    return _seconds(directives.get("max-age", ""))


def _seconds(text: str) -> int | None:
    text = text.strip().strip('"')
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def fetch_card(
    get: Callable[[str], Page], url: str, check: Callable[[dict[str, Any]], AgentCard] | None = None
) -> tuple[AgentCard, Kept]:
    """The card of the agent at `url`, with the URLs of its interfaces made absolute, and how long it holds.

    `get` gives what is at a URL; `check` gives the card in a JSON document as far as it may be trusted.

    Raises:
        CardNotFoundError: nowhere; it says what was tried.
        TransportError: what `get` raises: where there is no connection, other paths are no better.
    """
    tried = []
    for place in candidates(url):
        page = get(place)
        if page.status == 200:
            found = read_card(page.body, place, check)
        else:
            said = error_text(page.body, page.headers.get("Content-Type", ""))
            found = f"HTTP {page.status}" + (said and f": {said}")
        if isinstance(found, AgentCard):
            return found, Kept.of(place, page.headers)
        tried.append(f"{urls.parse(place).shown}: {found}")
    raise CardNotFoundError("no agent card found; tried " + "; ".join(tried), phase="card", agent=urls.parse(url).shown)


def read_card(body: bytes, place: str, check: Callable[[dict[str, Any]], AgentCard] | None) -> AgentCard | str:
    """The card, or why it is none."""
    try:
        value: Any = jsontext.loads(body)
        if missing := _missing(value):
            return f"JSON, but no agent card: {missing}"
        return made_absolute((check or load_card)(value), place)
    except JSONParseError:
        return "not JSON"
    except (DecodeError, UnsafeURLError) as error:
        return f"not a valid card ({error})"


def _missing(value: Any) -> str:
    """Which members of a card some JSON lacks; ``""``: none."""
    if not isinstance(value, dict):
        return "expected an object"
    lacks = [] if "name" in value else ["'name'"]
    if not {"supportedInterfaces", "url"} & value.keys():
        lacks.append("'supportedInterfaces' (in 0.3: 'url')")
    return " and ".join(lacks) + (" are missing" if len(lacks) > 1 else " is missing") if lacks else ""


def load_card(document: Mapping[str, Any]) -> AgentCard:
    """The card in a JSON document of either version.

    Raises:
        DecodeError: a member of it cannot be read.
    """
    # Cards for both versions have the members of both; those of 1.0 say more.
    codec = by_version("1.0" if "supportedInterfaces" in document else "0.3")
    card: AgentCard = codec.load(AgentCard, document, strict=False)
    if card.capabilities.extended_agent_card is None and document.get("supportsAuthenticatedExtendedCard") is True:
        # Some cards for both versions say this in the words of 0.3 alone.
        card = replace(card, capabilities=replace(card.capabilities, extended_agent_card=True))
    return card


def made_absolute(card: AgentCard, place: str = "") -> AgentCard:
    """`card`, with addresses that are seen from `place`. Those of bindings that this client does not speak stay as they are.

    Raises:
        UnsafeURLError: one of them cannot be called; the message names it.
    """
    interfaces = []
    for index, interface in enumerate(card.supported_interfaces):
        if interface.protocol_binding.upper() in _BINDINGS:
            try:
                interface = replace(interface, url=urls.join(place, interface.url))
            except UnsafeURLError as error:
                raise UnsafeURLError(f"supportedInterfaces[{index}].url {error}") from None
        interfaces.append(interface)
    return replace(card, supported_interfaces=tuple(interfaces))


class Wanted(NamedTuple):
    """Which interfaces a client takes: of a version and a binding, where given; best first those that `prefer` names."""

    version: str | None = None
    binding: str | None = None
    prefer: tuple[str, ...] = ()

    @classmethod
    def of(cls, version: str | None, binding: str | None, prefer: Sequence[str]) -> Wanted:
        """What a user gave for these.

        Raises:
            ValueError, TypeError: `prefer` is no list, or a word in it is no binding, version or URL.
        """
        if isinstance(prefer, str):
            raise TypeError("prefer takes a list, not one string")
        known = {word for pair in SUPPORTED for word in pair}
        for word in " ".join(prefer).split():
            if "://" not in word and _as_listed(word) not in known:
                raise ValueError(f"prefer: {word!r} is no URL and none of {', '.join(sorted(known))}")
        return cls(version and major_minor(version), binding and binding.upper(), tuple(prefer))

    def rank(self, interface: AgentInterface) -> int:
        """The place of an interface among the preferences; those that none of them names come after all."""
        said = {interface.url, interface.protocol_binding.upper(), dialect(interface.protocol_version)}
        wishes = ({word if "://" in word else _as_listed(word) for word in wish.split()} for wish in self.prefer)
        return next((place for place, wish in enumerate(wishes) if wish <= said), len(self.prefer))


def _as_listed(word: str) -> str:
    return major_minor(word) if word[:1].isdigit() else word.upper()


def choose_interface(
    card: AgentCard, version: str | None = None, binding: str | None = None, prefer: tuple[str, ...] = ()
) -> AgentInterface:
    """The first of `usable_interfaces`."""
    return usable_interfaces(card, Wanted(version, binding, prefer))[0]


def usable_interfaces(card: AgentCard, wanted: Wanted) -> list[AgentInterface]:
    """The interfaces that this client speaks and wants, best first; among equals in the order of the card.

    Raises:
        VersionNotSupportedError: there is none; it says what the card offers.
    """
    version, binding, _ = wanted
    usable = []
    for interface in card.supported_interfaces:
        offered = interface.protocol_binding.upper(), dialect(interface.protocol_version)
        if offered in SUPPORTED and binding in (None, offered[0]) and version in (None, offered[1]):
            usable.append(interface)
    if usable:
        return sorted(usable, key=wanted.rank)
    offers = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
    speaks = [one for one in SUPPORTED if binding in (None, one[0]) and version in (None, one[1])]
    asked = ", ".join(map(" ".join, speaks)) or " ".join(filter(None, (binding, version and f"version {version}")))
    raise VersionNotSupportedError(
        f"The card of {card.name!r} offers {offers or 'no interface'}; this client was asked for {asked}"
    )


def stand_ins(first: AgentInterface, others: Iterable[AgentInterface]) -> list[AgentInterface]:
    """Those of `others` that may be called where `first` takes no connection.

    They are somewhere else, speak the same version for the same tenant, and are no less safe on the way.
    """
    home = urls.parse(first.url).origin
    same = dialect(first.protocol_version), first.tenant
    found = []
    for other in others:
        origin = urls.parse(other.url).origin
        safe = origin[0] == "https" or home[0] != "https"
        if safe and origin != home and (dialect(other.protocol_version), other.tenant) == same:
            found.append(other)
    return found


def dialect(version: str) -> str:
    """The version to speak with an interface that names this one. The last releases of 0.2 spoke as 0.3 does."""
    spoken = major_minor(version) or UNNAMED
    return UNNAMED if spoken == "0.2" else spoken
