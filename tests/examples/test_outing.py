"""Three processes: the planner asks, is killed, comes back, and joins what two agents say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Barrier

import pytest

from a2a_sync import Agent, Client, TaskArtifactUpdateEvent, TaskState
from a2a_sync.multiagent import AgentRegistry
from examples.outing.planner import Planner
from examples.outing.specialists import places, weather
from tests.engine import TIMEOUT
from tests.live import gunicorn

S = TaskState


@pytest.fixture
def planner() -> Iterator[Client]:
    with AgentRegistry() as registry:
        registry.register("w", weather)
        registry.register("p", places)
        with Planner(registry) as agent, Client(agent) as client:
            yield client
    weather.close()
    places.close()


def test_the_planner_asks_twice_and_joins_what_two_agents_say(planner: Client) -> None:
    chat = planner.chat()
    assert chat.send("An outing, please").text == "Which day? (Friday, Saturday, Sunday)"
    assert chat.send("on Saturday").text == "For how many people?"
    task = chat.send("6")
    assert task.state is S.COMPLETED
    *said, end = task.text.split("\n")
    assert sorted(said) == ["A place for 6: the botanical garden", "Saturday: sun"]
    assert end == "Have a nice day!"


def test_both_agents_are_asked_at_once() -> None:
    both = Barrier(2)

    def meet(message: object, context: object) -> str:
        both.wait(TIMEOUT)
        return "here"

    one = Agent("one", description="d", skills={"forecast": "f"})
    two = Agent("two", description="d", skills={"find_place": "p"})
    for agent in (one, two):
        agent.message(meet)
    with AgentRegistry() as registry, one, two:
        registry.register("one", one)
        registry.register("two", two)
        with Planner(registry) as agent:
            chat = Client(agent).chat()
            for text in ("go", "Friday"):
                chat.send(text)
            assert chat.send("2").text == "here\nhere\nHave a nice day!"


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_planner_that_was_killed_in_the_middle_of_its_questions_goes_on(tmp_path: Path) -> None:
    with (
        gunicorn("examples.outing.specialists:weather_app") as first,
        gunicorn("examples.outing.specialists:places_app") as second,
    ):
        environment = {
            "OUTING_AGENTS": f"{first.url} {second.url}",
            "OUTING_STORE": f"sqlite:///{tmp_path}/outing.db",
        }
        with gunicorn("examples.outing.planner:app", environment=environment) as server, Client(server.url) as client:
            chat = client.chat()
            chat.send("An outing, please")
            assert chat.send("Sunday").text == "For how many people?"
            context_id = chat.context_id
            server.kill()
        with gunicorn("examples.outing.planner:app", environment=environment) as server, Client(server.url) as client:
            chat = client.chat(context_id=context_id)
            with chat.stream("3") as stream:
                pieces = [event.artifact.text for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
            assert stream.state is S.COMPLETED
    assert sorted(pieces[:2]) == ["A place for 3: the small tower\n", "Sunday: wind\n"]
    assert pieces[2] == "Have a nice day!"
