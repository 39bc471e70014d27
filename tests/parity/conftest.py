"""Agents and servers made by a test, ended after it."""

from __future__ import annotations

import pytest

from a2a_sync import A2AApp, Agent, AgentCard, AgentServer, SQLiteStore, create_agent_card
from tests.parity.wire import Wire


@pytest.fixture
def sqlite(tmp_path):
    """Stores over one file, closed after everything that uses them."""
    stores = []

    def make():
        stores.append(SQLiteStore(tmp_path / "tasks.db"))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def make(sqlite):
    """An `Agent` around a handler."""
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
    """An `AgentServer` around a function."""
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
    """An app around a handler or executor, called over its wire in 0.3."""
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
