"""Name resolution within a time limit."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import Client, Timeout
from a2a_sync.errors import TransportError, TransportTimeoutError
from a2a_sync.outbound import resolver
from a2a_sync.outbound.resolver import Address, look_up

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]


class Slow:
    """A resolver that answers when it is released."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.begun = threading.Event()
        self.release = threading.Event()

    def __call__(self, host: str, *_: Any) -> Any:
        self.asked.append(host)
        self.begun.set()
        assert self.release.wait(30)
        return FOUND


@pytest.fixture
def slow() -> Iterator[Slow]:
    found = Slow()
    yield found
    found.release.set()


def test_a_name_that_is_not_resolved_in_time_is_a_timeout(slow: Slow) -> None:
    with pytest.raises(TimeoutError, match="not resolved in time"):
        look_up("agent.example.com", 80, 0.05, slow)


def test_calls_that_need_the_same_name_share_its_lookup(slow: Slow) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            look_up("agent.example.com", 80, 0.05, slow)
    assert slow.asked == ["agent.example.com"]
    slow.release.set()
    assert look_up("agent.example.com", 80, 30, slow) == [Address(*FOUND[0][:3], FOUND[0][4])]
    assert look_up("agent.example.com", 80, 30, slow)
    assert len(slow.asked) <= 3


def test_an_address_is_not_looked_up_on_another_thread() -> None:
    def resolve(*_: Any) -> Any:
        threads.append(threading.current_thread())
        return FOUND

    threads: list[threading.Thread] = []
    for host in ("127.0.0.1", "::1"):
        look_up(host, 80, 30, resolve)
    look_up("agent.example.com", 80, None, resolve)
    assert threads == [threading.current_thread()] * 3


def test_beyond_the_limit_a_call_waits_for_the_resolver_itself(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_MAX_LOOKUPS", 0)
    threads: list[threading.Thread] = []

    def resolve(*_: Any) -> Any:
        threads.append(threading.current_thread())
        return FOUND

    assert look_up("agent.example.com", 80, 30, resolve)
    assert threads == [threading.current_thread()]


def test_an_error_of_the_resolver_is_raised_and_not_kept() -> None:
    answers: list[Any] = [socket.gaierror(-2, "Name or service not known"), [], FOUND]

    def resolve(*_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(socket.gaierror, match="not known"):
        look_up("agent.example.com", 80, 30, resolve)
    with pytest.raises(OSError, match="no address"):
        look_up("agent.example.com", 80, 30, resolve)
    assert look_up("agent.example.com", 80, 30, resolve)


def test_the_system_resolves_names_and_addresses() -> None:
    for host in ("localhost", "127.0.0.1"):
        assert "127.0.0.1" in {address.sockaddr[0] for address in look_up(host, 80, 30)}


def test_the_limits_of_a_client_include_the_resolver(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_system", slow)
    began = time.monotonic()
    with Client("http://agent.example.com", timeout=0.2, retry=None) as client, pytest.raises(TransportTimeoutError):
        client.card()
    late = pytest.raises(TransportError, match="not established in time")
    with Client("http://agent.example.com", timeout=Timeout(connect=0.2), retry=None) as client, late:
        client.card()
    assert time.monotonic() - began < 15
    assert slow.asked == ["agent.example.com"]


def test_the_addresses_of_a_host_share_the_limit_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    # One connection fills the queue of the socket: the system answers no further one.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first, socket.socket() as second:
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex(full.getsockname())
        address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", full.getsockname())
        monkeypatch.setattr(resolver, "_system", lambda *_: [address] * 100)
        began = time.monotonic()
        with Client("http://agent.example.com", timeout=1, retry=None) as client, pytest.raises(TransportTimeoutError):
            client.card()
        assert time.monotonic() - began < 20
