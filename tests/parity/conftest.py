"""Factories of agents and servers, which are closed after the test."""

from __future__ import annotations

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, SQLiteStore
from a2a_sync.card import create_agent_card
from a2a_sync.multiagent import AgentServer
from tests.parity.wire import Wire


@pytest.fixture
def sqlite(tmp_path):
    """A factory of stores on one file."""
    stores = []

    def make():
        stores.append(SQLiteStore(tmp_path / "tasks.db"))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def make(sqlite):
    """A factory of an `Agent` with the given handler."""
    made = []

    def make(handler, name="tested", **attributes):
        agent = Agent(name, **attributes)
        agent.message(handler)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.close()


@pytest.fixture
def server(sqlite):
    """A factory of an `AgentServer` with the given function."""
    made = []

    def make(function, **options):
        card = create_agent_card("tested", "An agent under test", skills={"test": "Is tested"})
        made.append(AgentServer(card, function, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def wire(sqlite):
    """A factory of apps with the given handler or executor, called with protocol 0.3."""
    made = []

    def make(handler, **options):
        agent = handler
        if hasattr(handler, "execute"):
            options = {"card": AgentCard(name="tested", description="d", version="1"), **options}
        else:
            agent = Agent("tested", description="An agent under test")
            agent.message(handler)
        made.append(A2AApp(agent, **options))
        return Wire(made[-1])

    yield make
    for app in made:
        app.close()
