"""The agents of a host or a registry, as their list says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from a2a_sync import AgentCard, jsontext
from a2a_sync.cli.text import clean_line
from a2a_sync.client.cards import load_card
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.request import ErrorContext
from a2a_sync.codec import DecodeError
from a2a_sync.errors import AgentError, JSONParseError, TransportError, UnsafeURLError

if TYPE_CHECKING:
    from a2a_sync.client.http import HttpTransport, Page

#: Where lists of agents are: hosts of this library, and registries of python-a2a; the URL itself comes last.
PATHS = ("/.well-known/agents", "/registry/agents", "")
_TIMEOUT = 30.0
_HEADERS = {"Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """One entry of a list; `card` is None if the entry has none that can be read."""

    name: str
    url: str
    card: AgentCard | None


def list_agents(http: HttpTransport, *, timeout: float | None = None) -> list[ListedAgent]:
    """The agents that the host or registry at the address of `http` lists. `timeout`: seconds for all requests; None is 30.

    Raises:
        TransportError: no URL has a list; the message names what was tried.
    """
    base = http.home.partition("?")[0].rstrip("/")
    context, deadline = ErrorContext("card", base), Deadline.after(timeout or _TIMEOUT)
    tried = {}
    for url in [base + path for path in PATHS]:
        found = _listed(http.get(url, headers=_HEADERS, error_context=context, deadline=deadline))
        if not isinstance(found, str):
            return found
        tried[url] = found
    listed = "; ".join(f"{url}: {reason}" for url, reason in tried.items())
    raise TransportError(
        f"no list of agents found; a single agent has a card: a2a-sync card {base}; tried {listed}",
        phase="card",
        agent=base,
    )


def listing_lines(agents: list[ListedAgent]) -> Iterator[str]:
    """One line of text for each agent."""
    names = [clean_line(agent.name, 60) for agent in agents]
    addresses = [clean_line(agent.url, 200) for agent in agents]
    widths = max(map(len, names), default=0), max(map(len, addresses), default=0)
    for name, url, agent in zip(names, addresses, agents, strict=True):
        what = clean_line(agent.card.description, 100) if agent.card is not None else ""
        yield f"{name:<{widths[0]}}  {url:<{widths[1]}}  {what}".rstrip()


def _listed(page: Page) -> list[ListedAgent] | str:
    if page.status != 200:
        return f"HTTP {page.status}"
    try:
        return _entries(jsontext.loads(page.body))
    except JSONParseError:
        return "not JSON"


def _entries(value: Any) -> list[ListedAgent] | str:
    if isinstance(value, dict):
        value = value.get("agents")
    if not isinstance(value, list):
        return "JSON, but no list of agents"
    return [_entry(entry) for entry in value if isinstance(entry, dict)]


def _entry(entry: dict[str, Any]) -> ListedAgent:
    document = entry["card"] if isinstance(entry.get("card"), dict) else entry
    try:
        card: AgentCard | None = load_card(document)
    except (DecodeError, AgentError, UnsafeURLError):
        card = None
    url = entry.get("url")
    if not isinstance(url, str):
        url = card.supported_interfaces[0].url if card is not None and card.supported_interfaces else ""
    name = entry.get("name") or (card.name if card is not None else "")
    return ListedAgent(str(name), url, card)
