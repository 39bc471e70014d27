"""False, damaged and malicious cards: a client raises its documented errors, and a registry continues."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter
from urllib3 import HTTPResponse

from a2a_sync import AgentError, Client, Task, TransportError
from a2a_sync.card import AgentCard
from a2a_sync.client import ApiKey
from a2a_sync.errors import CardNotFoundError
from a2a_sync.multiagent import AgentRegistry
from tests.client.peer import Asked, Line, peer
from tests.hostile.test_signed_cards import BARE, BOTH, NEW, OLD, places

CARD = "/.well-known/agent-card.json"
INTERFACE = {"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
BASE = {"name": "x", "supportedInterfaces": [INTERFACE]}
KEYED = {
    **BASE,
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}},
    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
}
CARDS = [NEW, BARE, BOTH, OLD, BASE, KEYED]

#: URLs that no interface may have.
URLS = (
    "http://127.0.0.1:abc/",
    "http://[::1",
    "http://[::1]x/",
    "http://a]b/",
    "http://:80/",
    "http://a:99999/",
    "http://a:-1/",
    "http://\x00/",
    "http://a b/",
    "ftp://a.test/",
    "javascript:alert(1)",
    "http://u:p@a.test/",
    "http://evil\\@a.test/",
    "http://\u2100.test/",
    "http://xn--/",
    "http://" + "a" * 300 + ".test/",
    "http://" + "a." * 200 + "test/",
    "http://%zz/",
    "http://1.2.3.4.5/",
    "x" * 20_000,
    "//[",
    "\\\\evil\\rpc",
)


class CardAdapter(BaseAdapter):
    """A network that answers every card request with `document` and has nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.body = b""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
        if request.method != "GET" or not request.url.startswith("http://agent.test"):
            raise requests.ConnectionError("no other URL may be called")
        response = requests.Response()
        response.status_code, response.request, response.url = 200, request, request.url
        response.raw = HTTPResponse(BytesIO(self.body), status=200, preload_content=False)
        return response

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def network() -> Iterator[tuple[CardAdapter, requests.Session]]:
    adapter, session = CardAdapter(), requests.Session()
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    yield adapter, session
    session.close()


@pytest.mark.parametrize("url", URLS, ids=ascii)
@pytest.mark.parametrize("place", ["only", "second", "0.3", "additional"])
def test_a_card_with_an_invalid_url_is_refused(
    network: tuple[CardAdapter, requests.Session], url: str, place: str
) -> None:
    adapter, session = network
    bad = {**INTERFACE, "url": url}
    documents: dict[str, Any] = {
        "only": {**BASE, "supportedInterfaces": [bad]},
        "second": {**BASE, "supportedInterfaces": [INTERFACE, bad]},
        "0.3": {"name": "x", "protocolVersion": "0.3.0", "url": url},
        "additional": {"name": "x", "url": "/rpc", "additionalInterfaces": [{"url": url, "transport": "HTTP+JSON"}]},
    }
    adapter.body = json.dumps(documents[place]).encode()
    with Client("http://agent.test", session=session, auth="t0ken") as client:
        with pytest.raises(CardNotFoundError, match=r"supportedInterfaces\[[01]\].url") as caught:
            client.card()
        assert len(str(caught.value)) < 2000, "the address is not repeated"


def test_a_registry_continues_with_an_invalid_card() -> None:
    def answers(document: Any) -> Any:
        return {CARD: lambda asked, line: line.answer(document)}

    skill = {"id": "fly", "name": "Fly", "description": "Flies", "tags": ["t"]}
    bad = {**BASE, "supportedInterfaces": [{**INTERFACE, "url": "http://[::1"}], "skills": [skill]}
    with peer(answers(bad)) as one, peer(answers({**BASE, "skills": [skill]})) as other, AgentRegistry() as registry:
        registry.register("bad", one.url, retry=None)
        registry.register("good", other.url, retry=None)

        assert registry.find_agents_with_skill("fly") == ["good"]
        assert registry.refresh() == ["good"]


# -- fuzz ---------------------------------------------------------------------------------------------------------------


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**400,
    1.5,
    "",
    "x",
    "\x00",
    "\ud800",
    "Host",
    "Content-Length",
    "header",
    "query",
    "cookie",
    "a\r\nb: c",
    "x" * 100_000,
    "JSONRPC",
    "GRPC",
    "1.0",
    "0.3",
    "9.9",
    "\u0661.\u0660",
    [],
    {},
    [[]],
    [{}],
    {"": {}},
    {"x": None},
    _nested(200),
    [0] * 1000,
    *URLS,
)


def hostile_cards(count: int, seed: int) -> Iterator[bytes]:
    """Cards with members replaced, removed or moved, some with damaged text."""
    choose = random.Random(seed)
    for _ in range(count):
        document = copy.deepcopy(choose.choice(CARDS))
        for _ in range(choose.randint(1, 4)):
            path = choose.choice(list(places(document)) or [("name",)])
            holder: Any = document
            for name in path[:-1]:
                holder = holder[name]
            if choose.random() < 0.15 and isinstance(holder, dict):
                del holder[path[-1]]
            else:
                holder[path[-1]] = copy.deepcopy(choose.choice(_VALUES))
        body = json.dumps(document).encode()
        if choose.random() < 0.1:
            at = choose.randrange(len(body))
            body = body[:at] + bytes([choose.randrange(256)]) + body[at + choose.randrange(3) :]
        yield body


AUTHS: tuple[Any, ...] = (
    None,
    "t0ken",
    ("ada", "s3cret"),
    ApiKey("k3y"),
    {"key": "k3y"},
    {"bearer": "t0ken"},
    lambda: "t0ken",
)


def test_any_card_raises_only_documented_errors(
    network: tuple[CardAdapter, requests.Session],
) -> None:
    adapter, session = network
    outcomes: Counter[str] = Counter()
    longest = 0
    choose = random.Random(5)
    for body in hostile_cards(600, seed=4):
        adapter.body = body
        with Client("http://agent.test", session=session, auth=choose.choice(AUTHS), retry=None) as client:
            for call in (client.card, lambda one=client: one.get_task("t-1"), lambda one=client: one.send("hi")):
                try:
                    outcomes[type(call()).__name__] += 1
                except (AgentError, TransportError) as error:
                    outcomes[type(error).__name__] += 1
                    longest = max(longest, len(str(error)))
        with AgentRegistry() as registry:
            registry.register("x", "http://agent.test", session=session, auth=choose.choice(AUTHS), retry=None)
            registry.find_agents_with_skill("x")
            registry.find_by_tag("x")
            card = registry.get_agent_card("x")
            assert card is None or isinstance(card, AgentCard)
            registry.refresh()
    assert longest < 10_000
    assert outcomes["AgentCard"] > 40
    assert outcomes["CardNotFoundError"] > 40
    assert outcomes["ConnectError"] + outcomes["TransportError"] > 40


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nContent-Length: 2\r\n",
        b"Content-Length: 5, 2\r\n",
        b"Content-Length: x\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Content-Encoding: gzip, gzip, gzip, gzip, gzip, gzip, gzip, gzip\r\n",
        b'Content-Type: \xff; charset="\xe9\r\nETag: \xff\r\nCache-Control: max-age=\xb2\r\nAge: \xb2\r\n',
        b'Set-Cookie: a="\\777"; expires=Foo, 99 Bar 99999999999; max-age=99999999999999999999; domain=[::1\r\n',
        b"X\x00Y: \x00\r\n",
        b"nothing\r\n",
        b" folded: a\r\n",
    ],
)
def test_any_head_of_an_answer_raises_only_documented_errors(head: bytes) -> None:
    def answer(asked: Asked, line: Line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n{}")
        line.hang_up()

    with peer(answer) as server, AgentRegistry(card_timeout=5) as registry:
        registry.register("x", server.url, retry=None)
        assert registry.find_agents_with_skill("x") == []
        assert registry.refresh() == []
        assert isinstance(registry.submit_task("x", "hi"), Task)
        with Client(server.card(), retry=None, timeout=60) as client, pytest.raises((AgentError, TransportError)):
            client.get_task("t-1")
