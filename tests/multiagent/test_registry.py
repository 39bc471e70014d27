"""A registry beside what its parity tests show: agents that are silent, that change, and many threads."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import Barrier

import pytest

from a2a_sync import A2AApp, Agent, Client, TransportError, URLGuard
from a2a_sync.card import create_agent_card
from a2a_sync.multiagent import AgentNotFoundError, AgentRegistry
from a2a_sync.testing import wsgi_session
from tests.client.peer import peer
from tests.engine import Background, serving

SILENT = "http://127.0.0.1:9/"
#: What is called here is on this machine.
LOOPBACK = URLGuard(["127.0.0.1"])


def card(name, url=SILENT, **skills):
    return create_agent_card(name, "An agent elsewhere", skills=skills or {"fly": "Flies"}, url=url)


@pytest.fixture
def serve():
    yield from serving()


def test_a_silent_agent_can_do_nothing_and_is_asked_again_a_while_later(caplog):
    now = [0.0]
    with (
        AgentRegistry(url_guard=LOOPBACK, clock=lambda: now[0]) as registry,
        peer(lambda asked, line: line.answer(b"", 404)) as far,
    ):
        registry.register("far", far.url, retry=None)
        assert registry.find_agents_with_skill("x") == []
        asked = len(far.asked)
        assert registry.get_agent_card("far") is None
        assert len(far.asked) == asked
        assert "the card of agent far cannot be read" in caplog.text
        now[0] += 60
        assert registry.get_agent_card("far") is None
        assert len(far.asked) > asked
        assert registry.list_agents() == ["far"]


def test_an_agent_whose_card_ends_in_an_unexpected_error_ends_no_lookup_of_others(monkeypatch, caplog):
    # A signature whose header named a list as its key set was a TypeError of each lookup.
    def fail(*args, **options):
        raise TypeError("unhashable")

    with AgentRegistry(url_guard=LOOPBACK) as registry:
        registry.register("far", SILENT)
        monkeypatch.setattr(registry.client("far"), "card", fail)
        registry.register("near", card("near"), card=card("near"))
        assert registry.find_agents_with_skill("fly") == ["near"]
    assert "unhashable" in caplog.text


def test_cards_are_read_at_once_and_those_that_do_not_arrive_ever_less_often():
    now, agents = [0.0], 8
    together = Barrier(agents)
    able = Agent("able", skills={"cook": "Cooks"})
    able.message(lambda message, context: "cooked")

    def refuse(asked, line):
        # All are asked for before one is refused, which never happens one after the other.
        together.wait(20)
        line.answer(b"", 403)

    with (
        peer(refuse) as server,
        AgentRegistry(url_guard=LOOPBACK, card_timeout=30.0, clock=lambda: now[0]) as registry,
    ):
        for number in range(agents):
            registry.register(f"far-{number}", f"{server.url}/{number}")
        registry.register("able", able)
        assert registry.find_best_agent("cook") == "able"
        once = len(server.asked)
        now[0] += 6
        assert registry.find_best_agent("cook") == "able"
        assert len(server.asked) == 2 * once >= 2 * agents
        now[0] += 6  # the pause is ten seconds now
        assert registry.find_best_agent("cook") == "able"
        assert len(server.asked) == 2 * once
        assert registry.refresh() == []
        assert len(server.asked) == 3 * once
    assert not together.broken


def test_lookups_side_by_side_share_one_request_for_a_card(caplog):
    now, variable, seen = [0.0], ContextVar("variable", default=""), []
    with (
        socket.create_server(("127.0.0.1", 0), backlog=64) as silent,
        AgentRegistry(url_guard=LOOPBACK, card_timeout=0.5, clock=lambda: now[0]) as registry,
    ):
        registry.register("hangs", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        asked = registry.client("hangs").card
        registry.client("hangs").card = lambda **options: (seen.append(variable.get()), asked(**options))[1]
        together = Barrier(8)

        def cook():
            variable.set("caller")
            together.wait(10)
            return registry.find_best_agent("cook")

        for _ in range(2):
            with ThreadPoolExecutor(8) as threads:
                assert [found.result() for found in [threads.submit(cook) for _ in range(8)]] == [None] * 8
            now[0] += 6  # a failure of eight lookups is one, after which the pause is five seconds
    assert seen == ["caller"] * 2


def test_refresh_reads_cards_again_and_brings_the_expired_back(serve):
    now, served = [0.0], serve(lambda message, context: "ok")
    with AgentRegistry(url_guard=LOOPBACK, expiry=10, clock=lambda: now[0]) as registry:
        registry.register("far", "http://agent.test", session=wsgi_session(served.app))
        registry.register("silent", card("silent"), retry=None)
        now[0] = 20
        assert registry.list_agents() == []
        assert registry.refresh() == ["far"]  # of the other there is nothing but a card
        assert registry.list_agents() == ["far"]
        assert registry.get_agent_card("far").name == "tested"


def test_an_answer_is_a_sign_of_life(serve):
    now, served = [0.0], serve(lambda message, context: "ok")
    with AgentRegistry(url_guard=LOOPBACK, expiry=10, clock=lambda: now[0]) as registry:
        registry.register("far", "http://agent.test", session=wsgi_session(served.app))
        now[0] = 9
        assert registry.submit_task("far", "hi").text == "ok"
        now[0] = 18
        assert registry.list_agents() == ["far"]


def test_an_agent_that_takes_the_place_of_another_ends_its_client():
    with AgentRegistry(url_guard=LOOPBACK) as registry:
        registry.register("one", card("one"))
        before = registry.client("one")
        registry.register("one", card("two"))
        with pytest.raises(RuntimeError, match="closed"):
            before.card()
        assert registry.get_agent_card("one").name == "two"


def test_what_no_client_can_call_is_refused_and_nothing_is_kept():
    with AgentRegistry(url_guard=LOOPBACK) as registry:
        with pytest.raises(TypeError, match="Client takes"):
            registry.register("x", object())
        with pytest.raises(TypeError, match="no_such_option"):
            registry.register("x", card("x"), no_such_option=1)
        assert registry.list_agents() == []


def test_streams_and_cancels_go_to_the_agent_and_their_errors_come_through(serve):
    agent = Agent("asks", description="Asks", skills={"ask": "Asks"})

    @agent.message
    def handle(message, context):
        yield "thinking"
        context.sleep(0)

    with AgentRegistry(url_guard=LOOPBACK) as registry:
        registry.register("near", agent)
        registry.register("far", card("far"), retry=None)
        with registry.stream("near", "go") as stream:
            list(stream)
        assert stream.text == "thinking"
        with pytest.raises(TransportError):
            registry.stream("far", "go")
        for call in (registry.stream, registry.get_task, registry.cancel_task, registry.submit_task):
            with pytest.raises(AgentNotFoundError, match="missing"):
                call("missing", "x")
    agent.close()


def test_an_agent_registered_while_others_expire_stays():
    now = [0.0]
    newcomers = []

    def clock():
        while newcomers:
            registry.register(newcomers.pop(), card("x"))
        return now[0]

    with AgentRegistry(url_guard=LOOPBACK, expiry=10, clock=clock) as registry:
        registry.register("old", card("x"))
        registry.register("again", card("x"))
        now[0] = 100.0
        newcomers += ["new", "again"]
        assert registry.expire() == ["old"]
        assert sorted(registry.list_agents()) == ["again", "new"]


def test_many_threads_register_find_and_forget():
    with AgentRegistry(url_guard=LOOPBACK) as registry:

        def work(number):
            for turn in range(20):
                registry.register(f"{number}-{turn}", card("x"))
                assert f"{number}-{turn}" in registry.find_agents_with_skill("fly")
                assert registry.unregister(f"{number}-{turn}")

        for worker in [Background(lambda n=n: work(n)) for n in range(4)]:
            worker.result()
        assert registry.list_agents() == []


def test_an_app_is_registered_as_it_is(serve):
    app = serve(lambda message, context: "ok").app
    assert isinstance(app, A2AApp)
    with AgentRegistry(url_guard=LOOPBACK) as registry, Client(app) as client:
        registry.register("app", app)
        task = registry.submit_task("app", "hi")
        assert client.get_task(task.id).text == "ok"
