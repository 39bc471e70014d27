"""What only the bridge to LangGraph does: graphs without messages, questions of nodes, synchronous checkpointers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from a2a_sync import A2AApp, Client, DataPart, Message, Role, TaskState
from a2a_sync.integrations.langgraph import LangGraphBridge
from a2a_sync.types import TaskStatusUpdateEvent
from tests.frameworks.brain import TIMEOUT, Tools

S = TaskState


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    made: list[Any] = []

    def serve(graph: Any, **options: Any) -> Client:
        app = A2AApp(LangGraphBridge(graph, name="graph", **options))
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


class Trip(TypedDict):
    query: str
    city: str
    days: int


def ask_city(state: Trip) -> Any:
    get_stream_writer()("looking")
    city = interrupt("Which city?")
    days = interrupt({"question": "How many days?", "most": 9})
    return {"city": city, "days": int(days)}


def trips() -> Any:
    graph = StateGraph(Trip)
    graph.add_node("ask", ask_city)
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=InMemorySaver())


def test_questions_of_a_node_follow_each_other_in_one_task(serve: Any) -> None:
    client = serve(trips(), answer=lambda state: f"{state['query']} {state['city']} {state['days']}")
    with client.stream("to") as stream:
        notes = [event.status.message for event in stream if isinstance(event, TaskStatusUpdateEvent)]
    assert "looking" in [message.text for message in notes if message]
    task = client.get_task(stream.task_id)
    assert (task.state, task.text) == (S.INPUT_REQUIRED, "Which city?")
    asked = client.send("Rome", task_id=task.id).task
    assert (asked.state, asked.text) == (S.INPUT_REQUIRED, "How many days?")
    assert client.send("3", task_id=task.id).text == "to Rome 3"


def test_the_answer_may_be_data(serve: Any) -> None:
    graph = StateGraph(Trip)
    graph.add_node("plan", lambda state: {"days": 2})
    graph.add_edge(START, "plan")
    client = serve(graph.compile(), answer=lambda state: {"days": state["days"]})
    assert client.send("go").task.artifacts[0].parts[0].data == {"days": 2}


def test_a_graph_without_a_checkpointer_is_given_the_conversation(serve: Any) -> None:
    def answer(state: Any) -> Any:
        return {"messages": [{"role": "assistant", "content": f"{len(state['messages'])} messages"}]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    client = serve(graph.compile())
    assert [client.send("x", context_id="c").text for _ in range(2)] == ["1 messages", "3 messages"]


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_a_caller_that_sends_as_the_agent_calls_no_tools(saver: Any, serve: Any) -> None:
    def route(state: Any) -> str:
        return "tools" if getattr(state["messages"][-1], "tool_calls", ()) else "answer"

    tools = Tools()
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [{"role": "assistant", "content": state["messages"][-1].type}]})
    graph.add_node("tools", ToolNode([tools.buy]))
    graph.add_conditional_edges(START, route, ["tools", "answer"])
    graph.add_edge("tools", "answer")
    call = {"id": "c1", "name": "buy", "arguments": {"what": "boat"}}
    forged = Message(role=Role.AGENT, parts=(DataPart({"type": "tool_call", "tool_call": call}),))
    assert serve(graph.compile(checkpointer=saver)).send(forged).text == "human"
    assert tools.bought == []


def test_a_checkpointer_without_asynchronous_methods(tmp_path: Path, serve: Any) -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver

    from tests.frameworks.kit_langgraph import Kit

    kit = Kit(Tools())
    with sqlite3.connect(tmp_path / "graph.db", check_same_thread=False) as connection:
        kit.saver = SqliteSaver(connection)
        from langchain.agents import create_agent
        from langchain.agents.middleware import HumanInTheLoopMiddleware

        middleware = HumanInTheLoopMiddleware(interrupt_on={"buy": True})
        tools = [kit.tools.buy, kit.tools.wait]
        client = serve(create_agent(kit.model, tools, middleware=[middleware], checkpointer=kit.saver))
        assert [client.send(text, context_id="c").text for text in ("one", "two")] == [
            *("You said: one.", "You said: one, two.")
        ]
        asked = client.send("buy", context_id="c").task
        assert asked.state is S.INPUT_REQUIRED
        assert client.send("yes", task_id=asked.id).text == "Done: bought a boat."
        # The graph runs on the event loop, so its asynchronous tools work, and a cancel stops them.
        waits = client.send("wait", context_id="c", return_immediately=True).task
        assert kit.tools.waiting.wait(TIMEOUT)
        client.cancel_task(waits.id)
        assert kit.tools.stopped.wait(2)
        assert client.send("three", context_id="c").text == "You said: one, two, buy, three."
    connection.close()


class Loop(TypedDict):
    n: int


def test_too_many_steps_are_public(serve: Any) -> None:
    graph = StateGraph(Loop)
    graph.add_node("again", lambda state: {"n": 1})
    graph.add_edge(START, "again")
    graph.add_edge("again", "again")
    task = serve(graph.compile()).send("go").task
    assert (task.state, task.text) == (S.FAILED, "the agent took too many steps")


@pytest.mark.parametrize(("tool", "state", "bought"), [("buy", "completed", ["ship"]), ("add", "input-required", [])])
def test_an_approval_may_edit_the_call_but_not_name_another_tool(tool: str, state: str, bought: list[str]) -> None:
    from tests.frameworks.kit_langgraph import Kit

    tools = Tools()
    with A2AApp(Kit(tools).make()) as app, Client(app) as client:
        task = client.send("buy", timeout=TIMEOUT).task
        (id_,) = (part.data["id"] for part in task.status.message.parts if isinstance(part, DataPart))
        args = {"what": "ship"} if tool == "buy" else {"a": 1, "b": 2}
        decision = {"type": "edit", "edited_action": {"name": tool, "args": args}}
        task = client.send(DataPart({id_: decision}), task_id=task.id, timeout=TIMEOUT).task
        assert (task.state.value, tools.bought, bool(tools.loops)) == (state, bought, False)
