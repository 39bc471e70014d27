"""Remote agents in flows: they are the providers of feedback, their questions are those of the task, and no message is sent twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crewai")

from crewai import Flow
from crewai.flow import human_feedback, listen, start

from a2a_sync import A2AApp, Client, Task, TaskState
from a2a_sync.integrations.crewai import FlowBridge, remote_tool
from a2a_sync.types import TaskStatusUpdateEvent
from tests.crewai.kit import Visit
from tests.engine import eventually, texts
from tests.frameworks.brain import CANARY, TIMEOUT
from tests.frameworks.test_remote_tools import Clerk

S = TaskState
# CrewAI reads attributes of its own agents that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def clerk() -> Iterator[Clerk]:
    clerk = Clerk()
    with clerk.app, clerk.client:
        yield clerk


@pytest.fixture
def flow(clerk: Clerk) -> type[Flow[Any]]:
    class ShopFlow(Flow[Visit]):
        @start()
        @human_feedback(message="the clerk", provider=remote_tool(clerk.client))
        def order(self) -> str:
            return self.state.query

        @listen(order)
        def done(self, result: Any) -> str:
            return f"Done: {result.feedback}."

    return ShopFlow


@pytest.fixture
def serve(flow: type[Flow[Any]], tmp_path: Path) -> Iterator[Callable[[], Client]]:
    """Clients of new apps, over one store."""
    made: list[Any] = []

    def serve() -> Client:
        app = A2AApp(FlowBridge(flow), store=f"sqlite:///{tmp_path}/tasks.db")
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


def send(client: Client, text: str, **options: Any) -> Task:
    return client.send(text, timeout=TIMEOUT * 9, **options).task


def test_questions_of_a_remote_agent_are_those_of_the_task_and_no_message_is_sent_twice(
    serve: Any, clerk: Clerk
) -> None:
    asked = send(serve(), "order")
    assert (asked.state, asked.status.message.text) == (S.INPUT_REQUIRED, "Which size?")
    again = send(serve(), "large", task_id=asked.id)
    assert (again.state, again.status.message.text) == (S.INPUT_REQUIRED, "Which colour?")
    done = send(serve(), "red", task_id=asked.id)
    assert (done.state, done.artifacts[0].text) == (S.COMPLETED, "Done: large and red.")
    (remote,) = clerk.client.list_tasks().tasks
    messages = texts(clerk.client.get_task(remote.id).history)
    assert [text for text in messages if text.startswith("user")] == ["user: order", "user: large", "user: red"]


def test_progress_of_a_remote_agent_is_progress_of_the_task(serve: Any) -> None:
    with serve().stream("order quickly") as stream:
        found = [event.status for event in stream if isinstance(event, TaskStatusUpdateEvent)]
    notes = [status.message.text for status in found if status.message and status.state is S.WORKING]
    assert notes == ["looking into the catalogue"]
    assert stream.text == "Done: at once."


def test_a_cancel_reaches_the_remote_agent(serve: Any, clerk: Clerk) -> None:
    client = serve()
    task = client.send("order slowly", return_immediately=True).task
    assert clerk.works.wait(TIMEOUT * 9)
    client.cancel_task(task.id)
    (remote,) = clerk.client.list_tasks().tasks
    eventually(lambda: clerk.client.get_task(remote.id).state is S.CANCELED)


def test_the_flow_reads_that_the_remote_agent_has_failed_and_no_secret(serve: Any, tmp_path: Path) -> None:
    done = send(serve(), "order badly")
    assert done.artifacts[0].text.startswith("Done: The agent did not complete the task: internal error")
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("tasks.db*") if path.is_file())
    assert CANARY not in done.to_json()
    assert CANARY.encode() not in stored


def test_in_a_flow_without_a_bridge_the_question_is_asked_on_the_console(
    flow: type[Flow[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter(["large", "red"])
    monkeypatch.setattr("builtins.input", lambda *_: next(given))
    assert flow(suppress_flow_events=True).kickoff(inputs={"query": "order"}) == "Done: large and red."
    assert list(given) == []
