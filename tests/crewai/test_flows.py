"""Flows behind their bridge: state, questions and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crewai")

from crewai import Flow
from crewai.flow import listen, start

from a2a_sync import A2AApp, Client, DataPart, Task, TaskState
from a2a_sync.integrations.bridge import USAGE
from a2a_sync.integrations.crewai import FlowBridge
from tests.crewai.kit import Kit
from tests.engine import eventually, texts
from tests.frameworks.brain import CANARY, TIMEOUT, Tools
from tests.frameworks.secrets import bytes_in, spoken, texts_in

S = TaskState
# CrewAI reads attributes of its own agents that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def kit() -> Kit:
    return Kit(Tools())


@pytest.fixture
def serve(kit: Kit, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Clients of new apps, over one store."""
    made: list[Any] = []

    def serve(bridge: Any = None, **options: Any) -> Client:
        app = A2AApp(bridge or kit.flow_bridge(**options), store=f"sqlite:///{tmp_path}/tasks.db")
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


def send(client: Client, message: Any = "hi", **options: Any) -> Task:
    task = client.send(message, timeout=TIMEOUT * 9, **options).task
    return client.get_task(task.id)


def test_the_state_is_kept_also_for_another_app_and_apart_from_others(serve: Any) -> None:
    first = serve()
    assert send(first, "one", context_id="c").text == "You said: one."
    assert send(serve(), "two", context_id="c").text == "You said: one, two."
    assert send(first, "three", context_id="d").text == "You said: three."


def test_tasks_at_once_run_one_after_the_other(serve: Any) -> None:
    client = serve()
    tasks = [client.send(f"t{n}", context_id="c", return_immediately=True).task for n in range(3)]
    for task in tasks:
        eventually(lambda task=task: client.get_task(task.id).state is S.COMPLETED)
    assert sorted(send(client, "last", context_id="c").text[10:-1].split(", ")) == ["last", "t0", "t1", "t2"]


def test_questions_are_answered_in_other_apps(serve: Any, kit: Kit) -> None:
    task = send(serve(), "buy", context_id="c")
    assert (task.state, task.status.message.text) == (S.INPUT_REQUIRED, "A boat for 5.\n\nBuy it?")
    task = send(serve(), "gladly", task_id=task.id)
    assert (task.state, task.status.message.text) == (S.INPUT_REQUIRED, "Agreed: gladly.\n\nHow many?")
    assert kit.tools.bought == []
    task = send(serve(), "two", task_id=task.id)
    assert (task.state, task.artifacts[0].text) == (S.COMPLETED, "Agreed: gladly. two boats.")
    assert kit.tools.bought == ["boat"]
    assert [text for text in texts(task.history) if text.startswith("user")] == [
        "user: buy",
        "user: gladly",
        "user: two",
    ]
    assert send(serve(), "then", context_id="c").text == "You said: buy, then."


def test_another_task_may_run_while_one_waits(serve: Any) -> None:
    client = serve()
    waits = send(client, "buy", context_id="c")
    assert send(client, "two", context_id="c").text == "You said: two."
    send(client, "gladly", task_id=waits.id)
    assert send(client, "3", task_id=waits.id).state is S.COMPLETED
    assert send(client, "three", context_id="c").text == "You said: two, buy, three."


@pytest.mark.parametrize("kept", ["memory:", "sqlite"])
def test_no_secret_is_sent_or_stored(kit: Kit, tmp_path: Path, kept: str) -> None:
    store = kept if kept == "memory:" else f"sqlite:///{tmp_path}/tasks.db"
    with A2AApp(kit.flow_bridge(expose_tools=True), store=store) as app, Client(app) as client:
        sent = spoken(client, "hello", "buy", "break", "then")
        assert "internal error (" in sent
        assert "You said: hello, then." in sent
        assert CANARY not in sent
        held = texts_in(app.store) if kept == "memory:" else bytes_in(tmp_path)
        assert "You said: hello, then." in held
        assert CANARY not in held


def test_tokens_are_streamed_unless_they_are_not_wanted(serve: Any) -> None:
    for stream in (True, False):
        with serve(interval=0, stream=stream).stream("hello") as events:
            pieces = [event for event in events if hasattr(event, "artifact")]
        assert (len(pieces) > 3) is stream
        assert events.text == "You said: hello."


def test_a_model_is_data(serve: Any) -> None:
    (artifact,) = send(serve(), "price").artifacts
    assert artifact.parts == (DataPart({"amount": 5}),)


def test_flow_ask_gets_no_input_instead_of_that_of_the_console(serve: Any) -> None:
    assert send(serve(), "ask").text == "read: None"


def test_the_models_that_a_flow_has_called_are_counted(serve: Any) -> None:
    assert set(send(serve(), "hello").metadata[USAGE]) == {"input_tokens", "output_tokens", "requests"}


def test_a_canceled_flow_stops_before_its_next_method(serve: Any, kit: Kit) -> None:
    later, ended = threading.Event(), threading.Event()

    class Slow(Flow[dict[str, Any]]):
        @start()
        def begin(self) -> None:
            kit.tools.waiting.set()
            kit.tools.stopped.wait(TIMEOUT)

        @listen(begin)
        def go_on(self, _: Any) -> None:
            later.set()

    class Followed(FlowBridge):
        def events(self, turn: Any) -> Any:
            try:
                yield from super().events(turn)
            finally:
                ended.set()

    client = serve(Followed(Slow))
    task = client.send("go", return_immediately=True).task
    assert kit.tools.waiting.wait(TIMEOUT)
    client.cancel_task(task.id)
    kit.tools.stopped.set()
    assert ended.wait(TIMEOUT)
    assert not later.is_set()


def test_a_state_that_is_a_dictionary_has_all_inputs(serve: Any) -> None:
    class Trip(Flow[dict[str, Any]]):
        @start()
        def begin(self) -> str:
            return str(self.state["city"])

        @listen(begin)
        def end(self, city: str) -> str:
            self.state["seen"] = [*self.state.get("seen", []), city]
            return ", ".join(self.state["seen"])

    client = serve(FlowBridge(Trip))
    assert send(client, DataPart({"city": "Rome"}), context_id="c").text == "Rome"
    assert send(client, DataPart({"city": "Oslo"}), context_id="c").text == "Rome, Oslo"


def test_a_caller_does_not_choose_the_id_of_a_state(serve: Any) -> None:
    class Open(Flow[dict[str, Any]]):
        @start()
        def answer(self) -> str:
            return str(self.state["id"])

    first, second = (serve(FlowBridge(Open)).send(["go", DataPart({"id": "of another"})]).text for _ in range(2))
    assert first != second
    assert "of another" not in (first, second)


def test_an_object_that_is_no_class_of_a_flow_is_refused(kit: Kit) -> None:
    with pytest.raises(TypeError, match="needs the class of a flow"):
        FlowBridge(kit.crew())  # type: ignore[arg-type]
