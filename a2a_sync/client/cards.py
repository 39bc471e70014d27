"""Cards of agents: finding, caching and verifying them, and choosing the interface to call (spec 8.2 to 8.6)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from a2a_sync import jsontext, urls
from a2a_sync.bindings.headers import UNNAMED, VERSION, major_minor
from a2a_sync.bindings.registry import BINDINGS, supported
from a2a_sync.card import AgentCard, AgentInterface
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.errortext import error_text
from a2a_sync.client.request import ErrorContext, OutgoingRequest
from a2a_sync.codec import DecodeError, by_version
from a2a_sync.errors import (
    AgentError,
    CardNotFoundError,
    JSONParseError,
    TransportError,
    UnsafeURLError,
    VersionNotSupportedError,
)
from a2a_sync.operations import GET_EXTENDED_CARD, AnyCall
from a2a_sync.telemetry.logs import get_logger

if TYPE_CHECKING:
    from a2a_sync.client.http import HttpTransport, Page

logger: Final = get_logger(__name__)

#: Returns the card in a JSON document, as far as it can be trusted. Raises `CardSignatureError`.
VerifyCard: TypeAlias = Callable[[dict[str, Any]], AgentCard]

#: Paths of cards below the agent's URL; the second is used by old agents.
WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
#: The size of a card, in bytes. A registry reads the cards of many agents and keeps them; a larger one would delay all threads.
MAX_CARD_BYTES = 1024 * 1024
#: The interfaces of a card, and its skills or security schemes. Each needs thirty microseconds at most.
_MAX_INTERFACES, _MAX_MEMBERS = 1_000, 10_000
#: Further interfaces that a call is sent to, where the first one cannot be connected to.
_MAX_FALLBACKS = 4
#: Seconds for which a card is used at least, whatever its server says.
MIN_CARD_AGE = 1.0
#: Seconds for which refreshing a card may delay a call.
REFRESH_TIMEOUT = 2.0


# -- finding and caching ------------------------------------------------------------------------------------------------


def card_urls(url: str) -> list[str]:
    """The URLs at which the card of the agent at `url` is looked for, in order; `url` may be that of the card itself."""
    read = urls.parse(url)
    base = str(read._replace(path=read.path.rstrip("/"), query=""))
    well_known = [base + path for path in WELL_KNOWN]
    return [url, *well_known] if read.path.endswith(".json") else [*well_known, url]


class CacheEntry(NamedTuple):
    """How long a card may be used: where it was found, its ETag (``""``: none), and when it expires.

    ``expires_at`` is in seconds of the monotonic clock. Cards without a ``max-age``, and cards given to a client, never expire.
    """

    url: str = ""
    etag: str = ""
    expires_at: float = math.inf

    @classmethod
    def from_headers(cls, url: str, headers: Mapping[str, str]) -> CacheEntry:
        """The entry for the card at `url` that came with these headers (spec 8.6, RFC 9111)."""
        lower = {name.lower(): value for name, value in headers.items()}
        max_age = _max_age(lower.get("cache-control", ""))
        if max_age is None:
            return cls(url, lower.get("etag", ""))
        age = _seconds(lower.get("age", "")) or 0
        return cls(url, lower.get("etag", ""), time.monotonic() + max(max_age - age, MIN_CARD_AGE))


NEVER_EXPIRES = CacheEntry()


def _max_age(control: str) -> int | None:
    directives = dict(part.strip().lower().partition("=")[::2] for part in control.split(","))
    if {"no-cache", "no-store"} & directives.keys():
        return 0
    return _seconds(directives.get("max-age", ""))


def _seconds(text: str) -> int | None:
    text = text.strip().strip('"')
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def fetch_card(get: Callable[[str], Page], url: str, verify: VerifyCard | None = None) -> tuple[AgentCard, CacheEntry]:
    """The card of the agent at `url`, with absolute URLs, and how long it may be used; `get` reads a URL.

    Raises:
        CardNotFoundError: no URL has a card; the message lists what was tried.
        TransportError: from `get`; the other URLs are not tried without a connection.
        CardSignatureError: from `verify`.
    """
    tried: dict[str, str] = {}
    for one in card_urls(url):
        page = get(one)
        found = _card_in(page, one, verify)
        if isinstance(found, AgentCard):
            return found, CacheEntry.from_headers(one, page.headers)
        tried[urls.parse(one).without_query] = found
    raise _not_found(tried, url)


def _not_found(tried: dict[str, str], url: str) -> CardNotFoundError:
    # The same reason for each URL is given once.
    reasons = list(dict.fromkeys(tried.values()))
    if len(reasons) == 1:
        tried = {", ".join(tried): reasons[0]}
    listed = "; ".join(f"{one}: {reason}" for one, reason in tried.items())
    return CardNotFoundError(f"no agent card found; tried {listed}", phase="card", agent=urls.parse(url).without_query)


def _card_in(page: Page, url: str, verify: VerifyCard | None) -> AgentCard | str:
    if page.status == 200:
        return read_card(page.body, url, verify)
    text = error_text(page.body, page.headers.get("Content-Type", ""))
    return f"HTTP {page.status}" + (text and f": {text}")


def read_card(body: bytes, url: str, verify: VerifyCard | None) -> AgentCard | str:
    """The card in `body`, or why there is none."""
    try:
        value: Any = jsontext.loads(body)
        if missing := _missing_members(value):
            return f"JSON, but no agent card: {missing}"
        _check_counts(value)
        return with_absolute_urls((verify or load_card)(value), url)
    except JSONParseError:
        return "not JSON"
    except (DecodeError, UnsafeURLError) as error:
        return f"not a valid card ({error})"


def _check_counts(document: Mapping[str, Any]) -> None:
    """Check how many skills and interfaces a card has, before they are read.

    Raises:
        DecodeError: too many.
    """
    for name, member in document.items():
        most = _MAX_INTERFACES if name in ("supportedInterfaces", "additionalInterfaces") else _MAX_MEMBERS
        if isinstance(member, list | dict) and len(member) > most:
            raise DecodeError(f"{name} has more than {most} members")


def _missing_members(value: object) -> str:
    """Which members of a card some JSON lacks; ``""``: none."""
    if not isinstance(value, dict):
        return "expected an object"
    missing = [] if "name" in value else ["'name'"]
    if not {"supportedInterfaces", "url"} & value.keys():
        missing.append("'supportedInterfaces' (in 0.3: 'url')")
    return " and ".join(missing) + (" are missing" if len(missing) > 1 else " is missing") if missing else ""


def load_card(document: Mapping[str, Any]) -> AgentCard:
    """The card in a JSON document of either version.

    Raises:
        DecodeError: a member cannot be read.
    """
    # Cards for both versions have the members of both; those of 1.0 contain more.
    codec = by_version("1.0" if "supportedInterfaces" in document else "0.3")
    card: AgentCard = codec.load(AgentCard, document, strict=False)
    if card.capabilities.extended_agent_card is None and document.get("supportsAuthenticatedExtendedCard") is True:
        # Some cards for both versions announce an extended card only by the member of 0.3.
        card = replace(card, capabilities=replace(card.capabilities, extended_agent_card=True))
    return card


def with_absolute_urls(card: AgentCard, base: str = "") -> AgentCard:
    """`card` with the URLs of its interfaces resolved against `base`, for the bindings that this client supports.

    Raises:
        UnsafeURLError: one of them cannot be called; the message names it.
    """
    interfaces = []
    for index, interface in enumerate(card.supported_interfaces):
        binding = BINDINGS.get(interface.protocol_binding.upper())
        if binding is not None:
            try:
                interface = replace(interface, url=binding.read_url(base, interface.url))
            except UnsafeURLError as error:
                raise UnsafeURLError(f"supportedInterfaces[{index}].url {error}") from None
        interfaces.append(interface)
    return replace(card, supported_interfaces=tuple(interfaces))


def refresh_card(
    http: HttpTransport,
    known: AgentCard,
    cache_entry: CacheEntry,
    version: str,
    card_trust: CardTrust | None,
    deadline: Deadline,
) -> tuple[AgentCard, CacheEntry] | None:
    """Request the card again, with its ETag; the card, which is `known` if it is unchanged, and how long it may be used.

    None if no usable card was returned. Blocks for `REFRESH_TIMEOUT` at most.

    Parameters:
        http: the transport to the agent.
        known: the card as it was read last.
        cache_entry: where it was found, and its ETag.
        version: the protocol version that is asked for.
        card_trust: verifies the card.
        deadline: the limit of the call that waits for it.
    """
    deadline = min(deadline, Deadline.after(REFRESH_TIMEOUT))
    verify = None if card_trust is None else partial(card_trust.verify, deadline=deadline)
    headers = {"Accept": "application/json", VERSION: version}
    if cache_entry.etag:
        headers["If-None-Match"] = cache_entry.etag
    url, context = cache_entry.url, ErrorContext("card", http.agent)
    try:
        page = http.get(url, headers=headers, error_context=context, deadline=deadline, max_bytes=MAX_CARD_BYTES)
        if page.status == 304 and cache_entry.etag:
            return known, CacheEntry.from_headers(url, {"ETag": cache_entry.etag, **page.headers})
        found = _card_in(page, url, verify)
    except (AgentError, TransportError, ValueError) as error:
        found = str(error)
    if isinstance(found, AgentCard):
        return found, CacheEntry.from_headers(url, page.headers)
    logger.info("the card of %s could not be refreshed (%s); the previous one stays in use", http.agent, found)
    return None


# -- signatures ---------------------------------------------------------------------------------------------------------


class CardTrust:
    """Verifies the cards of one agent. `verifier` is a `CardVerifier` or the keys of one; key sets are read over `http`."""

    def __init__(self, verifier: object, http: HttpTransport) -> None:
        # The libraries for signatures are loaded only by clients that verify cards.
        from a2a_sync.signing import CardVerifier

        verifier = verifier if isinstance(verifier, CardVerifier) else CardVerifier(verifier)
        self._verifier = verifier.copy() if http.has_own_trust else verifier
        self._http = http

    def verify(self, card: AgentCard | Mapping[str, Any], deadline: Deadline) -> AgentCard:
        """The card that the signature of `card` covers. A document may contain signed members that an `AgentCard` cannot.

        Raises:
            CardSignatureError: no trusted signature is valid.
        """
        verified = self._verifier.verify(card, fetch=lambda url: self._read(url, deadline), agent=self._http.agent)
        return load_card(verified.document)

    def verify_result(self, call: AnyCall, value: object) -> AgentCard | None:
        """The card in `value`, the JSON of a result, if the call reads the extended card; None for other calls."""
        if call.operation is not GET_EXTENDED_CARD:
            return None
        if not isinstance(value, dict):
            raise DecodeError("AgentCard: expected an object")
        return self.verify(value, Deadline.after(call.context.timeout))

    def _read(self, url: str, deadline: Deadline) -> bytes:
        error_context = ErrorContext("card", urls.parse(url).without_query)
        headers = {"Accept": "application/json"}
        response = self._http.open(OutgoingRequest("GET", url, headers, error_context, deadline, guarded=False))
        body = response.read()
        if not response.ok:
            raise response.status_error(body)
        return body


# -- the interface to call ----------------------------------------------------------------------------------------------


class InterfaceFilter(NamedTuple):
    """Which interfaces of a card may be called (of a version and a binding, if given), and which are preferred."""

    version: str | None = None
    binding: str | None = None
    prefer: tuple[str, ...] = ()

    @classmethod
    def of(cls, version: str | None, binding: str | None, prefer: Sequence[str]) -> InterfaceFilter:
        """The filter for these arguments of `Client`.

        Raises:
            ValueError, TypeError: `prefer` is not a list, or a word in it is not a binding, version or URL.
        """
        if isinstance(prefer, str):
            raise TypeError("prefer takes a list, not one string")
        known = {word for pair in supported() for word in pair}
        for word in " ".join(prefer).split():
            if "://" not in word and _normalize(word) not in known:
                raise ValueError(f"prefer: {word!r} is no URL and none of {', '.join(sorted(known))}")
        return cls(version and major_minor(version), binding and binding.upper(), tuple(prefer))

    def rank(self, interface: AgentInterface) -> int:
        """The index of the first preference that an interface meets; their number if it meets none."""
        words = {interface.url, interface.protocol_binding.upper(), protocol_version_of(interface)}
        preferences = ({word if "://" in word else _normalize(word) for word in one.split()} for one in self.prefer)
        return next((index for index, wanted in enumerate(preferences) if wanted <= words), len(self.prefer))


def _normalize(word: str) -> str:
    return major_minor(word) if word[:1].isdigit() else word.upper()


def usable_interfaces(card: AgentCard, interface_filter: InterfaceFilter) -> list[AgentInterface]:
    """The interfaces that this client supports and that match, by preference and then in the order of the card.

    Raises:
        VersionNotSupportedError: there is none; the message lists what the card offers.
    """
    version, binding, _ = interface_filter
    usable, unusable, pairs = [], "", supported()
    for interface in card.supported_interfaces:
        offered = interface.protocol_binding.upper(), protocol_version_of(interface)
        if offered in pairs and binding in (None, offered[0]) and version in (None, offered[1]):
            if reason := BINDINGS[offered[0]].unavailable_reason:
                unusable = f"; {reason}"
            else:
                usable.append(interface)
    if usable:
        return sorted(usable, key=interface_filter.rank)
    offers = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
    matching = [one for one in pairs if binding in (None, one[0]) and version in (None, one[1])]
    asked = ", ".join(map(" ".join, matching)) or " ".join(filter(None, (binding, version and f"version {version}")))
    raise VersionNotSupportedError(
        f"The card of {card.name!r} offers {offers or 'no interface'}; this client was asked for {asked}{unusable}"
    )


def fallback_interfaces(first: AgentInterface, others: Iterable[AgentInterface]) -> list[AgentInterface]:
    """Those of `others` that may be called when `first` cannot be connected to.

    They are on another origin, have the same protocol version and tenant, and are not less secure. Four at most: each may take the
    limit for connecting, and a card may list thousands.
    """
    home = urls.parse(first.url).origin
    same = protocol_version_of(first), first.tenant
    found = []
    for other in others:
        origin = urls.parse(other.url).origin
        secure = origin[0] == "https" or home[0] != "https"
        if secure and origin != home and (protocol_version_of(other), other.tenant) == same:
            found.append(other)
    return found[:_MAX_FALLBACKS]


def protocol_version_of(interface: AgentInterface) -> str:
    """The version to speak with an interface. The last releases of 0.2 are spoken to as 0.3."""
    version = major_minor(interface.protocol_version) or UNNAMED
    return UNNAMED if version == "0.2" else version
