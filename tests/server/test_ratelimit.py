"""How often each caller may call."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, RateLimit
from a2a_sync.auth import BearerAuth
from a2a_sync.errors import OverloadedError
from a2a_sync.operations import Call
from a2a_sync.server import ratelimit
from a2a_sync.wsgi.options import HTTPOptions
from tests.stopwatch import set_clock
from tests.wsgi import CARD, Answer, Peer, message


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    set_clock(monkeypatch, ratelimit, monotonic=lambda: moment[0])
    return moment


def agent() -> Agent:
    made = Agent("echo")
    made.message(lambda message, context: "yes")
    return made


def listed(peer: Peer, token: str = "", address: str = "10.0.0.1", **options: Any) -> Answer:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return peer.call("ListTasks", {}, headers=headers, environ={"REMOTE_ADDR": address}, **options)


def test_a_child_does_not_wait_for_its_parents_lock(now: list[float]) -> None:
    limit = RateLimit(1, 60)
    with A2AApp(agent(), interceptors=[limit]) as app, limit._lock:
        limit.renew()
        assert [listed(Peer(app)).status for _ in range(2)] == [200, 429]


def test_a_caller_above_its_rate_gets_the_time_to_retry(now: list[float]) -> None:
    with A2AApp(agent(), interceptors=[RateLimit(3, 60)]) as app:
        peer = Peer(app)
        assert [listed(peer).status for _ in range(3)] == [200] * 3
        refused = listed(peer)
        now[0] += 20
        again = [listed(peer).status for _ in range(2)]
        now[0] += 60
        rested = [listed(peer).status for _ in range(4)]

    assert (refused.status, refused.headers["Retry-After"]) == (429, "20")
    assert refused.error["data"][0]["reason"] == "RESOURCE_EXHAUSTED"
    assert again == [200, 429]
    assert rested == [200, 200, 200, 429]


def test_a_refused_message_leaves_nothing(now: list[float]) -> None:
    with A2AApp(agent(), interceptors=[RateLimit(1)]) as app:
        peer = Peer(app)
        answers = [peer.call("SendMessage", message(), environ={"REMOTE_ADDR": "10.0.0.1"}).status for _ in range(3)]
        tasks = listed(peer, address="10.0.0.2").result["totalSize"]

    assert answers == [200, 429, 429]
    assert tasks == 1


def test_callers_are_counted_by_identity_and_not_by_address(now: list[float]) -> None:
    auth = BearerAuth({"a": "ada", "b": "bob"})
    with A2AApp(agent(), auth=auth, interceptors=[RateLimit(1)]) as app:
        peer = Peer(app)
        assert [listed(peer, "a", "10.0.0.1").status, listed(peer, "a", "10.0.0.2").status] == [200, 429]
        assert listed(peer, "b", "10.0.0.1").status == 200


def test_a_caller_has_all_addresses_of_its_ipv6_network(now: list[float]) -> None:
    with A2AApp(agent(), interceptors=[RateLimit(2, 60)]) as app:
        peer = Peer(app)
        one = [listed(peer, address=f"2001:db8:1:2:{host:x}::1").status for host in range(4)]
        others = [listed(peer, address=f"::ffff:9.9.9.{host}").status for host in range(4)]
        others += [listed(peer, address=address).status for address in ("2001:db8:1:3::1", "fe80::1%eth0")]
    assert one == [200, 200, 429, 429]
    assert others == [200] * 6


def test_unknown_callers_are_counted_by_address_behind_trusted_proxies_too(now: list[float]) -> None:
    with A2AApp(agent(), http=HTTPOptions(trusted_proxies=1), interceptors=[RateLimit(1)]) as app:
        peer = Peer(app)
        statuses = [
            peer.call("ListTasks", {}, headers={"X-Forwarded-For": address}).status
            for address in ("8.8.8.8", "8.8.4.4", "8.8.8.8")
        ]

    assert statuses == [200, 200, 429]


def test_http_json_is_counted_and_the_card_is_not(now: list[float]) -> None:
    with A2AApp(agent(), interceptors=[RateLimit(1)]) as app:
        peer = Peer(app)
        options = {"headers": {"A2A-Version": "1.0"}, "environ": {"REMOTE_ADDR": "10.0.0.1"}}
        statuses = [peer.request("GET", path, **options).status for path in (CARD, "/tasks", "/tasks", CARD)]  # type: ignore[arg-type]

    assert statuses == [200, 200, 429, 200]


def test_calls_inside_the_process_are_not_counted(now: list[float]) -> None:
    with A2AApp(agent(), interceptors=[RateLimit(1)]) as app, Client(app) as client:
        for _ in range(3):
            client.list_tasks()


def test_another_key_can_be_counted_by(now: list[float]) -> None:
    def by_operation(call: Call) -> str | None:
        return call.operation.name if call.operation.name == "ListTasks" else None

    with A2AApp(agent(), interceptors=[RateLimit(1, key=by_operation)]) as app, Client(app) as client:
        client.list_tasks()
        client.send("hi")
        client.send("hi")
        with pytest.raises(OverloadedError, match="1 in 60 seconds"):
            client.list_tasks()


def test_callers_that_have_used_least_of_their_calls_are_evicted(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ratelimit, "_MAX_CALLERS", 10)
    limit = RateLimit(3, 60)
    with A2AApp(agent(), interceptors=[limit]) as app:
        peer = Peer(app)
        spent = [listed(peer).status for _ in range(4)]
        strangers = [listed(peer, address=f"10.0.1.{host}").status for host in range(40)]
        after = listed(peer).status

    assert spent == [200, 200, 200, 429]
    assert strangers == [200] * 40
    assert after == 429
    assert len(limit._free_at) <= 10


@pytest.mark.parametrize("numbers", [(0, 60), (-1, 60), (1, 0), (1, -1), ("10/minute",)])
def test_numbers_that_mean_nothing_are_refused(numbers: Any) -> None:
    with pytest.raises(ValueError, match="both positive"):
        RateLimit(*numbers)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (RateLimit(1), r"interceptors takes a list, such as \[RateLimit\(120\)\]; not a RateLimit"),
        ([RateLimit], r"interceptors\[0\] is a class: give an instance, RateLimit\(…\)"),
        ([RateLimit(1), 3], r"interceptors\[1\] takes a function of an endpoint, not int"),
    ],
)
def test_interceptors_that_are_none_are_refused_by_apps_and_clients(given: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        A2AApp(agent(), interceptors=given)
    with pytest.raises(TypeError, match=text):
        Client(agent(), interceptors=given)
