"""Remote agents as tools of frameworks: their questions pass through the bridge, and no message is sent twice."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, DataPart, Message, RequestContext, Task, TaskState
from a2a_sync.types import TaskStatusUpdateEvent
from tests.engine import eventually, texts
from tests.frameworks.brain import CANARY, TIMEOUT, Tools

S = TaskState
# LlamaIndex reads all attributes of its agents, also those that Pydantic has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The `.*` attribute is deprecated"),
    pytest.mark.filterwarnings("ignore:Accessing the '.*' attribute on the instance is deprecated"),
]
#: The frameworks, and whether their tools report progress.
FRAMEWORKS = {
    "agent_framework": False,
    "langgraph": True,
    "llamaindex": True,
    "openai_agents": False,
    "pydantic_ai": False,
    "strands": False,
}


class Clerk:
    """A remote agent that asks twice, works for long, or fails."""

    def __init__(self) -> None:
        self.works = threading.Event()
        agent = Agent("clerk", description="Takes orders.")
        agent.message(self.answer)
        self.app = A2AApp(agent)
        self.client = Client(self.app)

    def answer(self, message: Message, context: RequestContext) -> str:
        if message.text == "order slowly":
            context.update("looking into the catalogue")
            self.works.set()
            context.sleep(TIMEOUT)
        if message.text == "order quickly":
            context.update("looking into the catalogue")
            return "at once"
        if message.text == "order badly":
            raise ValueError(CANARY)
        size = context.ask("Which size?")
        return f"{size} and {context.ask('Which colour?')}"


@pytest.fixture
def clerk() -> Iterator[Clerk]:
    clerk = Clerk()
    with clerk.app, clerk.client:
        yield clerk


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve(framework: str, clerk: Clerk, tmp_path: Path) -> Iterator[Callable[[], Client]]:
    """Clients of new apps, over one store."""
    kit = importlib.import_module(f"tests.frameworks.kit_{framework}").Kit(Tools())
    module = importlib.import_module(f"a2a_sync.integrations.{framework}")
    kit.tools.more = [module.remote_tool(clerk.client)]
    made: list[Any] = []

    def serve() -> Client:
        app = A2AApp(kit.make(), store=f"sqlite:///{tmp_path}/tasks.db")
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


def send(client: Client, text: str, **options: Any) -> Task:
    return client.send(text, timeout=TIMEOUT, **options).task


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


def test_a_question_of_a_remote_agent_may_wait_beside_an_approval(serve: Any, clerk: Clerk) -> None:
    task = send(serve(), "buy and order")
    waiting = {"buy": "yes", "Which size?": "large", "Which colour?": "red"}
    for _ in range(4):
        if task.state is not S.INPUT_REQUIRED:
            break
        questions = [part.data for part in task.status.message.parts if isinstance(part, DataPart)]
        answers = {one["id"]: waiting[one["text"] if one["kind"] == "question" else "buy"] for one in questions}
        task = serve().send(DataPart({"answers": answers}), task_id=task.id, timeout=TIMEOUT).task
    assert task.artifacts[0].text == "Done: bought a boat and large and red."
    (remote,) = clerk.client.list_tasks().tasks
    messages = texts(clerk.client.get_task(remote.id).history)
    assert [text for text in messages if text.startswith("user")] == ["user: order", "user: large", "user: red"]


def test_two_calls_with_the_same_message_are_two_remote_tasks(serve: Any, clerk: Clerk) -> None:
    task = send(serve(), "order twice")
    for answer in ("large", "red"):
        questions = [part.data for part in task.status.message.parts if isinstance(part, DataPart)]
        answers = {one["id"]: f"{answer} {number}" for number, one in enumerate(questions)}
        assert len(answers) == 2
        task = serve().send(DataPart({"answers": answers}), task_id=task.id, timeout=TIMEOUT).task
    # Which of the two asks first in the second round depends on which remote agent answers first.
    said = task.artifacts[0].text.removeprefix("Done: ").removesuffix(".").split(" and ")
    assert sorted(said) == ["large 0", "large 1", "red 0", "red 1"]
    assert len(clerk.client.list_tasks().tasks) == 2


def test_progress_of_a_remote_agent_is_progress_of_the_task(serve: Any, framework: str) -> None:
    with serve().stream("order quickly") as stream:
        found = [event.status for event in stream if isinstance(event, TaskStatusUpdateEvent)]
    notes = [status.message.text for status in found if status.message and status.state is S.WORKING]
    assert notes == ["looking into the catalogue"] * FRAMEWORKS[framework]
    assert stream.text == "Done: at once."


def test_a_cancel_reaches_the_remote_agent(serve: Any, clerk: Clerk) -> None:
    client = serve()
    task = client.send("order slowly", return_immediately=True).task
    assert clerk.works.wait(TIMEOUT)
    client.cancel_task(task.id)
    (remote,) = clerk.client.list_tasks().tasks
    eventually(lambda: clerk.client.get_task(remote.id).state is S.CANCELED)


def test_the_model_reads_that_the_remote_agent_has_failed_and_no_secret(serve: Any, tmp_path: Path) -> None:
    done = send(serve(), "order badly")
    assert done.artifacts[0].text.startswith("Done: The agent did not complete the task: internal error")
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("tasks.db*") if path.is_file())
    assert CANARY not in done.to_json()
    assert CANARY.encode() not in stored
