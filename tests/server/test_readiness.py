"""The readiness of a server whose store hangs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, MemoryStore
from tests.engine import TIMEOUT, eventually


@pytest.fixture
def app() -> Any:
    agent = Agent("echo")
    agent.message(lambda message, context: "yes")
    with A2AApp(agent, store=MemoryStore()) as app:
        yield app


def test_a_probe_of_a_store_that_hangs_does_not_hold_its_callers(app: A2AApp, monkeypatch: pytest.MonkeyPatch) -> None:
    over, begun = threading.Event(), []
    original = app.store.list

    def hang(*arguments: Any) -> Any:
        begun.append(1)
        assert over.wait(TIMEOUT * 3)
        return original(*arguments)

    monkeypatch.setattr(app.store, "list", hang)
    reasons = [app.service.not_ready_reason() for _ in range(3)]
    assert reasons == ["the store does not answer"] * 3
    assert len(begun) == 1
    over.set()
    eventually(lambda: app.service.not_ready_reason() == "", "readiness", seconds=30)
