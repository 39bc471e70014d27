"""Calls of an agent where it is, beside what the parity tests show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from a2a_sync import Agent, Client
from a2a_sync.agent.inprocess import InProcessCalls
from tests.engine import Background, Gate


def test_the_first_of_many_threads_makes_the_client_and_the_app():
    agent, gate = Agent("x"), Gate()
    agent.message(lambda message, context: gate.block() or "ok")
    calls = [Background(lambda: agent.call("hi")) for _ in range(4)]
    gate.wait()
    gate.open.set()
    assert {call.result().text for call in calls} == {"ok"}
    assert len(Client(agent).list_tasks().tasks) == 4
    agent.close()


def test_what_is_closed_can_be_called_again_and_starts_without_tasks():
    agent = Agent("x")
    agent.message(lambda message, context: "ok")
    for _ in range(2):
        with agent:
            agent.call("hi")
            assert len(Client(agent).list_tasks().tasks) == 1


def test_an_agent_calls_another_one_from_its_handler():
    inner, outer = Agent("inner"), Agent("outer")
    inner.message(lambda message, context: message.text.upper())
    outer.message(lambda message, context: inner.call(message.text).text + "!")
    with inner, outer:
        assert outer.call("hi").text == "HI!"


def test_an_agent_may_ask_another_one_what_it_says_of_itself():
    inner = Agent("inner", skills={"fly": "Flies"})

    class Outer(Agent):
        def describe(self):
            return replace(super().describe(), skills=inner.agent_card().skills)

        def handle_message(self, message, context):
            return "ok"

    with inner, Outer() as outer:
        assert Background(lambda: outer.call("hi")).result().text == "ok"
        assert outer.agent_card().skills[0].id == "fly"


def test_a_face_without_anything_behind_it_says_so():
    with pytest.raises(NotImplementedError):
        InProcessCalls().endpoint()
    with pytest.raises(NotImplementedError):
        InProcessCalls().agent_card()


def test_what_still_streams_ends_with_the_agent():
    agent, gate = Agent("x"), Gate()
    agent.message(lambda message, context: gate.block() or "ok")
    stream = agent.stream("go")
    gate.wait()
    client = agent._client()
    agent.close(timeout=0.0)
    assert stream.closed
    with pytest.raises(RuntimeError, match="closed"):
        client.card()
    gate.open.set()
