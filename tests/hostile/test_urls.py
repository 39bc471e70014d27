"""URLs that parsers read differently must not send credentials to another origin, nor a request to another host.

The differential fuzz test compares every function that parses a URL with the connection that is made for it; `test_many_urls`
runs it with many more URLs.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter

from a2a_sync import AgentError, Client, TransportError, urls
from a2a_sync.client.connections import Adapter
from a2a_sync.concurrency.alarms import AlarmClock
from a2a_sync.errors import UnsafeURLError
from a2a_sync.outbound.http import NoResponseError, Outbound
from a2a_sync.outbound.urlguard import URLGuard
from tests.client.peer import Asked, Line, Peer, Script, peer, results, task

CARD = "/.well-known/agent-card.json"
SECRETS = {"authorization", "x-api-key"}


def card_at(url: str) -> Script:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return lambda asked, line: line.answer({"name": "x", "supportedInterfaces": [interface]})


def confusing(evil: Peer, home: Peer) -> list[str]:
    """URLs whose host is `evil` to some parsers and `home` to others."""
    bad, good = f"127.0.0.1:{evil.port}", f"127.0.0.1:{home.port}"
    return [
        f"http://{bad}\\@{good}/rpc",
        f"http:\\\\{bad}\\@{good}/rpc",
        f"http://{bad}\\/@{good}/rpc",
        f"http://{bad}\\.{good}/rpc",
        f"http://{good}@{bad}/rpc",
        f"http://{good}\t@{bad}/rpc",
        f"http://{bad}#@{good}/rpc",
        f"http://{bad}?@{good}/rpc",
        f"//{bad}\\@{good}/rpc",
        f"\\\\{bad}\\@{good}/rpc",
        f"/\\{bad}\\@{good}/rpc",
        f"\x01http://{bad}\\@{good}/rpc",
        f"ht\ntp://{bad}\\@{good}/rpc",
        f"http://{bad}%5c@{good}/rpc",
        f"http://{bad}\N{FULLWIDTH COMMERCIAL AT}{good}/rpc",
    ]


def secrets_sent(one: Peer) -> set[str]:
    return {name for asked in one.asked for name in asked.headers} & SECRETS


def call(home: Peer) -> None:
    client = Client(home.url, auth="t0ken", headers={"X-Api-Key": "k3y"}, retry=None, timeout=60)
    with client, contextlib.suppress(AgentError, TransportError):
        client.get_task("t-1")


@pytest.mark.parametrize("number", range(15))
def test_interfaces_of_a_card_do_not_redirect_credentials_to_another_origin(number: int) -> None:
    with peer({"GetTask": results(task())}) as evil, peer({}) as home:
        url = confusing(evil, home)[number]
        home._script = by_path({CARD: card_at(url), "/rpc": results(task())})
        call(home)

        assert home.asked, "the card was read"
        assert not secrets_sent(evil)


@pytest.mark.parametrize("number", range(15))
def test_redirects_of_a_card_do_not_send_credentials_to_another_origin(number: int) -> None:
    with peer(lambda asked, line: line.answer(b"", 404)) as evil, peer({}) as home:
        url = confusing(evil, home)[number]
        line_safe = url.replace("\n", "").encode("utf-8").decode("latin-1")
        home._script = by_path({CARD: lambda asked, line: line.answer(b"", 302, Location=line_safe)})
        call(home)

        assert home.asked, "the card was asked for"
        assert not secrets_sent(evil)


def by_path(table: dict[str, Script]) -> Script:
    def script(asked: Asked, line: Line) -> None:
        table.get(asked.path, lambda asked, line: line.answer(b"", 404))(asked, line)

    return script


# -- all parsers against the connection ---------------------------------------------------------------------------------

HOME = "http://home.test:8000/agent"
_BLANKS = ("", "", "", "", " ", "\t", "\n", "\r\n", "\x00", "\x01", "\x7f", "\xa0", "\u2028", "\ufeff")
_SCHEMES = ("http", "https", "HTTP", "hTtPs", "http", "https", "ftp", "file", "javascript", "", "http:http", "ht\ttp")
_SLASHES = ("://", "://", "://", "://", "://", ":/", ":", ":///", ":\\\\", ":/\\", "//", "\\\\", ":////")
_HOSTS = (
    "home.test",
    "HOME.test",
    "evil.test",
    "home.test.evil.test",
    "127.0.0.1",
    "8.8.8.8",
    "[::1]",
    "xn--bcher-kva.example",
    "home.test.",
    "127.1",
    "0x7f.0.0.1",
    "2130706433",
    "0177.0.0.1",
    "[2606:4700::1111]",
    "[::ffff:127.0.0.1]",
    "[fe80::1%25eth0]",
    "::1",
    "[evil.test]",
    "h%6fme.test",
    "home%2etest",
    "home\u3002test",
    "\uff48ome.test",
    "b\xfccher.example",
    "stra\xdfe.test",
    "a_b.test",
    "-a.test",
    "a..test",
    "",
    "*.test",
    "localhost",
)
_PORTS = (
    "",
    "",
    ":8000",
    ":80",
    ":443",
    ":0",
    ":65536",
    ":",
    ":08000",
    ":8000:80",
    ":80a",
    ": 80",
    ":-1",
    ":+80",
    ":\u0668",
)
_JOINTS = (
    "@",
    "\\@",
    "\\",
    "/",
    "/@",
    "#@",
    "?@",
    "%40",
    "%5c@",
    ";@",
    ":@",
    "&@",
    "|",
    "^",
    "`",
    "{",
    "<",
    '"',
    "\uff20",
    "\u2100",
    ".",
    ",",
)
_TAILS = (
    "",
    "/",
    "/rpc",
    "/rpc?a=1",
    "?a=1",
    "#x",
    "/a@b",
    "//evil.test/",
    "/\\evil.test",
    "/..//evil.test",
    "\\rpc",
    "/a b",
    "/\xe4",
    "/%zz",
)
_ANY = "".join(map(chr, range(128))) + "\xa0\u2028\uff0f\uff20\u3002"


def hostile_urls(count: int, seed: int) -> Iterator[str]:
    """URLs and similar texts, composed of parts that parsers disagree on; one in three has a damaged character."""
    choose = random.Random(seed)

    def pick(parts: Sequence[str], ordinary: int) -> str:
        """An item, with a preference for the first `ordinary` ones."""
        return choose.choice(parts[:ordinary] if choose.random() < 0.7 else parts)

    for _ in range(count):
        authority = pick(_HOSTS, 8) + pick(_PORTS, 5)
        if choose.random() < 0.3:
            authority += pick(_JOINTS, 6) + pick(_HOSTS, 8) + pick(_PORTS, 5)
        text = pick(_SCHEMES, 4) + pick(_SLASHES, 1) + authority + pick(_TAILS, 7)
        if choose.random() < 0.1:
            text = choose.choice(_BLANKS) + text + choose.choice(_BLANKS)
        if choose.random() < 0.3:
            at = choose.randrange(len(text) + 1)
            text = text[:at] + choose.choice(_ANY) + text[at + choose.randrange(2) :]
        yield text


class URLParsers:
    """All functions that parse a URL, and all that connect to one; `met` is the target of the last connection."""

    def __init__(self) -> None:
        self.met: list[tuple[str, int]] = []
        guard = URLGuard(allow=["*.test", "127.0.0.1", "localhost", "::/0"], resolve=self._resolve)
        self._outbound = Outbound(guard)
        self._guard = guard
        self._ours, self._theirs = Adapter(AlarmClock()), HTTPAdapter()
        self.counts: Counter[str] = Counter()

    def _resolve(self, host: str, port: int, *_: object) -> Any:
        self.met.append((host.strip("[]").lower(), port))
        raise socket.gaierror("no connection is made here")

    def judge(self, text: str) -> None:
        try:
            read = urls.parse(text)
        except UnsafeURLError:
            self.counts["refused"] += 1
            self._refused(text)
        else:
            self.counts["accepted"] += 1
            self._accepted(text, read)
        with contextlib.suppress(UnsafeURLError):
            joined = urls.join(HOME, text)
            self.counts["joined"] += 1
            self._accepted(joined, urls.parse(joined))

    def _refused(self, text: str) -> None:
        for judge in (urls.parse, self._guard.check, lambda url: urls.may_send_credentials(HOME, url)):
            with pytest.raises(UnsafeURLError):
                judge(text)
        with pytest.raises(UnsafeURLError):
            self._outbound.request("GET", text)
        assert not self.met

    def _accepted(self, text: str, read: urls.URL) -> None:
        scheme, host, port = read.origin
        for parse in (urlsplit, urllib3.util.parse_url):
            other: Any = parse(text)
            assert (other.scheme, (other.hostname or "").strip("[]").lower()) == (scheme, host), (parse, text)
            assert (other.port or (443 if scheme == "https" else 80)) == port, (parse, text)
        prepared = requests.Request("GET", text).prepare()
        for adapter in (self._ours, self._theirs):
            pool: Any = adapter.get_connection_with_tls_context(prepared, True)
            assert (pool.scheme, pool.host, pool.port) == (scheme, host, port), (adapter, text)
        assert urls.may_send_credentials(HOME, text) is (read.origin == urls.parse(HOME).origin), text
        assert urls.parse(urls.parse(text).without_query).origin == urls.parse(str(read)).origin == read.origin, text
        try:
            self._outbound.request("GET", text, timeout=1)
        except UnsafeURLError:
            assert not self.met, text
        except NoResponseError:
            assert self.met == [(host.removesuffix("."), port)], text
            self.counts["connected"] += 1
        self.met.clear()


def differ(count: int, seed: int) -> Counter[str]:
    """Check `count` URLs; return how often they were refused, accepted, and connected to."""
    judges = URLParsers()
    for text in hostile_urls(count, seed):
        judges.judge(text)
    return judges.counts


def test_parsers_and_connections_agree_on_every_url() -> None:
    counts = differ(10_000, seed=1)

    assert counts["accepted"] > 500
    assert counts["joined"] > 1000
    assert counts["connected"] > 500


def test_no_url_with_a_query_stays_in_memory() -> None:
    urls.parse("https://agent.test/a")
    before = urls._parse_cached.cache_info().currsize
    urls.parse("https://agent.test/a?key=secret")
    urls.parse("https://agent.test/" + "a" * 2000)
    assert urls._parse_cached.cache_info().currsize == before
