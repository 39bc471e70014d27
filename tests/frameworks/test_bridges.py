"""Agents of each framework behind their bridge: one suite for all. No model is called over a network.

These tests need packages that `make test` does not install: ``make frameworks``.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Client, DataPart, FilePart, Task, TaskArtifactUpdateEvent, TaskState
from a2a_sync.auth import BearerAuth
from a2a_sync.concurrency.eventloop import shared_loop
from a2a_sync.integrations.bridge import USAGE, Bridge
from a2a_sync.testing import wsgi_session
from a2a_sync.types import TaskStatusUpdateEvent
from tests.engine import eventually, texts
from tests.frameworks import SHARED
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, TIMEOUT, Tools
from tests.frameworks.secrets import bytes_in, spoken, texts_in

S = TaskState
# LlamaIndex reads all attributes of its agents, also those that Pydantic has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated"),
    pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated"),
]


@pytest.fixture(params=SHARED)
def kit(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(f"tests.frameworks.kit_{request.param}").Kit(Tools())


@pytest.fixture
def serve(kit: Any, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Clients of new apps, over one store."""
    made: list[Any] = []

    def serve(**options: Any) -> Client:
        app = A2AApp(kit.make(**options), store=f"sqlite:///{tmp_path}/tasks.db")
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


def send(client: Client, message: Any = "hi", **options: Any) -> Task:
    task = client.send(message, timeout=TIMEOUT, **options).task
    return client.get_task(task.id)


def statuses(client: Client, text: str) -> list[Any]:
    with client.stream(text) as stream:
        return [event.status for event in stream if isinstance(event, TaskStatusUpdateEvent)]


def test_an_answer_is_streamed_and_kept_as_one_part(serve: Any, kit: Any) -> None:
    client = serve(interval=0)
    with client.stream("hello") as stream:
        pieces = [event for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    assert "".join(event.artifact.text for event in pieces[:-1]) == pieces[-1].artifact.text == "You said: hello."
    assert len(pieces) > 3
    task = client.get_task(stream.task_id)
    assert [(artifact.name, len(artifact.parts)) for artifact in task.artifacts] == [("result", 1)]
    assert texts(task.history) == ["user: hello", "agent: You said: hello."]
    usage = task.metadata[USAGE]
    assert usage["requests"] == 1
    if kit.counts_tokens:
        assert (usage["input_tokens"], usage["output_tokens"]) == (INPUT_TOKENS, OUTPUT_TOKENS)


def test_a_conversation_is_remembered_also_by_another_app_and_apart_from_others(serve: Any) -> None:
    first = serve()
    assert send(first, "one", context_id="c").text == "You said: one."
    assert send(first, "two", context_id="c").text == "You said: one, two."
    assert send(serve(), "three", context_id="c").text == "You said: one, two, three."
    assert send(first, "four", context_id="d").text == "You said: four."


def test_tasks_at_once_are_all_remembered(serve: Any) -> None:
    client = serve()
    send(client, "first", context_id="c")
    tasks = [client.send(f"t{n}", context_id="c", return_immediately=True).task for n in range(4)]
    for task in tasks:
        eventually(lambda task=task: client.get_task(task.id).state is S.COMPLETED)
    assert sorted(send(client, "last", context_id="c").text[10:-1].split(", ")) == [
        *("first", "last", "t0", "t1", "t2", "t3")
    ]


@pytest.mark.parametrize("shown", [False, True])
def test_calls_of_tools_are_hidden_unless_they_are_to_be_shown(serve: Any, kit: Any, shown: bool) -> None:
    client = serve(expose_tools=shown)
    found = statuses(client, "add")
    data = [
        part.data for status in found if status.message for part in status.message.parts if isinstance(part, DataPart)
    ]
    assert [one["type"] for one in data] == (["tool_call", "tool_result"] if shown else [])
    task = send(client, "add")
    assert [artifact.text for artifact in task.artifacts] == ["Done: 3."]
    assert texts(task.history) == ["user: add", *["agent: Let me see."] * kit.preamble, "agent: Done: 3."]


def test_all_runs_use_one_event_loop(serve: Any, kit: Any) -> None:
    client = serve()
    for _ in range(20):
        assert send(client, "add").state is S.COMPLETED
    assert len(kit.tools.loops) == 1


@pytest.mark.parametrize(("answer", "bought"), [("yes", ["boat"]), ("no", [])])
def test_a_tool_is_approved_in_another_app(serve: Any, kit: Any, answer: str, bought: list[str]) -> None:
    task = send(serve(), "buy", context_id="c")
    (question,) = [part.data for part in task.status.message.parts if isinstance(part, DataPart)]
    assert (task.state, question["kind"], question["tool"], question["arguments"]) == (
        *(S.INPUT_REQUIRED, "approval", "buy", {"what": "boat"}),
    )
    assert kit.tools.bought == []
    client = serve()
    done = send(client, answer, task_id=task.id)
    assert (done.state, kit.tools.bought) == (S.COMPLETED, bought)
    assert done.metadata[USAGE]["requests"] == 2
    if kit.counts_tokens:
        assert done.metadata[USAGE]["input_tokens"] == 2 * INPUT_TOKENS
    assert send(client, "then", context_id="c").text == "You said: buy, then."
    assert kit.tools.bought == bought


def test_another_task_may_run_while_one_waits(serve: Any, kit: Any) -> None:
    client = serve()
    send(client, "one", context_id="c")
    waits = send(client, "buy", context_id="c")
    assert send(client, "two", context_id="c").text == "You said: one, two."
    assert send(client, "yes", task_id=waits.id).text == "Done: bought a boat."
    assert send(client, "three", context_id="c").text in (
        "You said: one, two, buy, three.",
        "You said: one, buy, two, three.",
    )


def test_several_calls_are_answered_one_by_one(serve: Any, kit: Any) -> None:
    client = serve()
    task = send(client, "buy two")
    questions = [part.data for part in task.status.message.parts if isinstance(part, DataPart)]
    assert [question["arguments"]["what"] for question in questions] == ["boat", "car"]
    asked = send(client, DataPart({questions[1]["id"]: True}), task_id=task.id)
    assert (asked.state, kit.tools.bought) == (S.INPUT_REQUIRED, [])
    assert send(client, "no", task_id=task.id).state is S.COMPLETED
    assert kit.tools.bought == ["car"]


def test_a_canceled_run_stops_its_tool_and_is_not_remembered(serve: Any, kit: Any) -> None:
    client = serve()
    send(client, "one", context_id="c")
    with client.stream("wait", context_id="c") as stream:
        next(iter(stream))
        assert kit.tools.waiting.wait(TIMEOUT)
        client.cancel_task(stream.task_id)
    assert kit.tools.stopped.wait(2)
    assert send(client, "two", context_id="c").text == "You said: one, two."


def tasks_of_the_loop() -> set[Any]:
    return asyncio.all_tasks(shared_loop.get().loop)


@pytest.mark.parametrize("tool", ["wait", "doze"])
def test_nothing_of_a_canceled_run_goes_on(serve: Any, kit: Any, tool: str) -> None:
    client = serve()
    send(client, "add")
    before = tasks_of_the_loop()
    task = client.send(tool, return_immediately=True).task
    assert (kit.tools.waiting if tool == "wait" else kit.tools.dozing).wait(TIMEOUT)
    assert tasks_of_the_loop() - before
    client.cancel_task(task.id)
    # A thread cannot be stopped: its tool returns to a run that has ended.
    kit.tools.awake.set()
    eventually(lambda: not tasks_of_the_loop() - before)
    assert client.get_task(task.id).state is S.CANCELED


@pytest.mark.parametrize("kept", ["memory:", "sqlite"])
def test_no_secret_is_sent_or_stored(kit: Any, tmp_path: Path, kept: str) -> None:
    store = kept if kept == "memory:" else f"sqlite:///{tmp_path}/tasks.db"
    with A2AApp(kit.make(expose_tools=True), store=store) as app, Client(app) as client:
        sent = spoken(client, "hello", "add", "buy", "break", "then")
        assert "internal error (" in sent
        assert "You said: hello, add, then." in sent
        assert CANARY not in sent
        held = texts_in(app.store) if kept == "memory:" else bytes_in(tmp_path)
        # What is searched has the conversation.
        assert "You said: hello, add, then." in held
        assert CANARY not in held


@pytest.mark.parametrize("kit", sorted({*SHARED} - {"adk", "langgraph"}), indirect=True)
def test_many_texts_of_one_message_are_one_text_of_the_model(serve: Any) -> None:
    assert send(serve(), ["a", "b", DataPart({"n": 1})]).text == 'You said: a\nb\n{"n":1}.'


def test_an_image_reaches_the_model(serve: Any, kit: Any) -> None:
    image = FilePart(raw=b"\x89PNG", media_type="image/png")
    assert send(serve(), ["look", image]).state is S.COMPLETED
    assert len(kit.images_seen()) == 1


def test_a_run_that_waits_does_not_delay_others(serve: Any, kit: Any) -> None:
    client = serve()
    task = client.send("wait", return_immediately=True).task
    assert kit.tools.waiting.wait(TIMEOUT)
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(send(client, "x").text)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert results == ["You said: x."] * 4
    client.cancel_task(task.id)


def test_a_tool_that_blocks_does_not_delay_other_runs(serve: Any, kit: Any) -> None:
    client = serve()
    task = client.send("doze", return_immediately=True).task
    try:
        assert kit.tools.dozing.wait(TIMEOUT)
        assert send(client, "x").text == "You said: x."
    finally:
        kit.tools.awake.set()
    eventually(lambda: client.get_task(task.id).text == "Done: awake.")


def test_tools_that_block_leave_threads_to_another_caller(kit: Any) -> None:
    with A2AApp(kit.make(), auth=BearerAuth({"g": "greedy", "h": "honest"})) as app:
        card, session = app.agent_card("http://agent.test/"), wsgi_session(app)
        greedy, honest = (Client(card, session=session, auth=token) for token in "gh")
        begun = [greedy.send("doze twice", return_immediately=True).task.id for _ in range(32)]
        try:
            assert kit.tools.dozing.wait(TIMEOUT)
            # So that its tool needs a thread.
            task = honest.send("doze", return_immediately=True).task
            eventually(lambda: kit.tools.dozers == 65, "the call of the honest caller", TIMEOUT)
        finally:
            kit.tools.awake.set()
        eventually(lambda: honest.get_task(task.id).text == "Done: awake.", "its answer", TIMEOUT)
        for id_ in begun:
            greedy.wait(id_, timeout=TIMEOUT)


def test_callers_with_the_same_context_id_are_apart(kit: Any) -> None:
    with A2AApp(kit.make(), auth=BearerAuth({"a": "ann", "b": "bob"})) as app:
        card, session = app.agent_card("http://agent.test/"), wsgi_session(app)
        ann, bob = (Client(card, session=session, auth=token) for token in "ab")
        assert send(ann, "one", context_id="c").text == "You said: one."
        assert send(bob, "two", context_id="c").text == "You said: two."
        assert send(ann, "three", context_id="c").text == "You said: one, three."


def test_a_declared_output_is_data(kit: Any) -> None:
    with A2AApp(kit.structured()) as app, Client(app) as client:
        (artifact,) = send(client).artifacts
    assert artifact.parts[-1] == DataPart({"amount": 5})
    assert [part for part in artifact.parts if isinstance(part, DataPart)] == [artifact.parts[-1]]


@pytest.mark.parametrize("name", SHARED)
def test_a_module_lists_its_names(name: str) -> None:
    module = importlib.import_module(f"a2a_sync.integrations.{name}")
    listed = [getattr(module, one) for one in module.__all__]
    assert len([one for one in listed if isinstance(one, type) and issubclass(one, Bridge)]) == 1
