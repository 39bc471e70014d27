"""Agents that start and end together, also when one of them cannot start."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from a2a_sync import Agent, Limits, Message, RequestContext, SQLiteStore, TaskState
from a2a_sync.multiagent import AgentEvents, AgentRegistry, AgentSupervisor
from a2a_sync.stores.base import Owner
from tests.engine import TIMEOUT


class One(Agent):
    """An agent."""

    def handle_message(self, message, context):
        return "one"


def test_two_of_one_name_are_refused_and_nothing_is_left_running():
    with AgentRegistry() as registry:
        first = One()
        with pytest.raises(ValueError, match="two agents have the name 'One'"):
            AgentSupervisor([first, One], registry=registry)
        assert registry.list_agents() == []
        assert first._private_app is None


def test_two_of_one_class_have_names_of_their_own():
    with AgentSupervisor([(One, {"name": "a"}), (One, {"name": "b"})]) as agents:
        assert (len(agents), list(agents)) == (2, ["a", "b"])
        assert agents.registry.submit_task("b", "hi").text == "one"
        with pytest.raises(KeyError):
            agents["c"]
    agents.close()


def test_a_store_that_an_agent_opened_is_closed_with_it_and_one_that_was_passed_is_not(tmp_path):
    events, received = AgentEvents(), []
    events.on("agent.message", received.append)
    with closing(SQLiteStore(tmp_path / "passed.db")) as passed:
        agents = [(One, {"store": f"sqlite:///{tmp_path}/opened.db"}), (One, {"name": "Two", "store": passed})]
        supervisor = AgentSupervisor(agents, events=events)
        tasks = [supervisor[name].call("hi") for name in ("One", "Two")]
        supervisor.close()
        assert passed.head(Owner(), tasks[1].id).status.state is TaskState.COMPLETED
        assert events.flush(TIMEOUT)
        assert [event.agent for event in received] == ["One", "Two"]
        assert "opened.db" not in " ".join(map(os.path.realpath, Path("/proc/self/fd").iterdir()))


def test_interceptors_of_their_own_stay():
    seen = []

    def noting(endpoint):
        return lambda call: seen.append(call.operation.name) or endpoint(call)

    with AgentSupervisor([One], events=AgentEvents(), interceptors=[noting]) as agents:
        agents["One"].call("hi")
    assert seen == ["SendMessage"]


def test_a_store_for_all_is_refused():
    with pytest.raises(ValueError, match="a store of its own"):
        AgentSupervisor([One, (One, {"name": "b"})], store="sqlite:///t.db")
    with AgentSupervisor([One], store="memory:") as agents:
        assert agents["One"].call("hi").text == "one"


class Pricing(Agent):
    currency = "USD"

    def handle_message(self, message: Message, context: RequestContext) -> str:
        return f"{message.text} {self.currency}"


def test_options_of_an_agents_own_reach_its_code(tmp_path: Path) -> None:
    given = [Pricing, (Pricing, {"name": "euros", "currency": "EUR", "store": f"sqlite:///{tmp_path}/tasks.db"})]
    with AgentSupervisor(given) as agents:
        assert [agents[name].call("5").text for name in ("Pricing", "euros")] == ["5 USD", "5 EUR"]
    with AgentSupervisor([(Pricing, {"name": "one"}), (Pricing, {"name": "two"})], currency="CHF") as agents:
        assert [agents[name].call("5").text for name in ("one", "two")] == ["5 CHF", "5 CHF"]
    with Pricing(currency="GBP").start(limits=Limits(max_concurrent_runs=1)) as agent:
        assert agent.call("5").text == "5 GBP"


@pytest.mark.parametrize("option", ["colour", "handle_message", "_private_app"])
def test_an_option_that_nothing_has_is_refused(option: str) -> None:
    with pytest.raises(TypeError, match=f"Pricing has no attribute '{option}'"):
        AgentSupervisor([(Pricing, {option: 1})])
