"""Crews and single agents behind their bridge: one suite for both. No model is called over a network."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crewai")

from crewai import Agent
from crewai.agents.agent_executor import AgentExecutorState
from crewai.tools import tool

from a2a_sync import A2AApp, Client, DataPart, Task, TaskArtifactUpdateEvent, TaskState
from a2a_sync.integrations.bridge import USAGE
from a2a_sync.integrations.crewai import CrewBridge
from a2a_sync.types import TaskStatusUpdateEvent
from tests.crewai.kit import Kit, Model
from tests.engine import eventually, texts
from tests.frameworks.brain import CANARY, INPUT_TOKENS, OUTPUT_TOKENS, SYSTEM, TIMEOUT, Price, Tools
from tests.frameworks.secrets import bytes_in, spoken, texts_in

S = TaskState
# CrewAI reads attributes of its own agents that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def kit() -> Kit:
    return Kit(Tools())


@pytest.fixture(params=["crew", "agent"])
def make(request: pytest.FixtureRequest, kit: Kit) -> Callable[..., Any]:
    """Makes a crew, or a single agent."""
    return {"crew": kit.crew, "agent": kit.agent}[request.param]


@pytest.fixture
def serve(make: Any, kit: Kit, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Clients of new apps, over one store."""
    made: list[Any] = []

    def serve(bridge: Any = None, **options: Any) -> Client:
        app = A2AApp(bridge or CrewBridge(make, name="shop", **options), store=f"sqlite:///{tmp_path}/tasks.db")
        made.extend((client := Client(app), app))
        return client

    yield serve
    kit.tools.stopped.set()
    for one in made:
        one.close()


def send(client: Client, message: Any = "hi", **options: Any) -> Task:
    task = client.send(message, timeout=TIMEOUT * 9, **options).task
    return client.get_task(task.id)


def test_an_answer_is_streamed_and_kept_as_one_part(serve: Any) -> None:
    client = serve(interval=0)
    with client.stream("hello") as stream:
        pieces = [event for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    assert "".join(event.artifact.text for event in pieces[:-1]) == pieces[-1].artifact.text == "You said: hello."
    assert len(pieces) > 3
    task = client.get_task(stream.task_id)
    assert [(artifact.name, len(artifact.parts)) for artifact in task.artifacts] == [("result", 1)]
    assert texts(task.history) == ["user: hello", "agent: You said: hello."]
    assert task.metadata[USAGE] == {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "requests": 1}


def test_the_usage_of_a_crew_is_that_of_the_run_if_runs_and_agents_share_a_model(kit: Kit, serve: Any) -> None:
    model = Model()
    crew = kit.crew(model=model)
    crew.agents.append(kit.agent(model=model))
    client = serve(CrewBridge(crew, name="shop"))
    used = [client.send("hello").task.metadata[USAGE] for _ in range(3)]
    assert used == [{"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "requests": 1}] * 3


def test_a_conversation_is_remembered_also_by_another_app_and_apart_from_others(serve: Any) -> None:
    first = serve()
    assert send(first, "one", context_id="c").text == "You said: one."
    assert send(serve(), "two", context_id="c").text == "You said: one, two."
    assert send(first, "three", context_id="d").text == "You said: three."


def test_tasks_at_once_are_all_remembered(serve: Any) -> None:
    client = serve()
    tasks = [client.send(f"t{n}", context_id="c", return_immediately=True).task for n in range(3)]
    for task in tasks:
        eventually(lambda task=task: client.get_task(task.id).state is S.COMPLETED)
    assert sorted(send(client, "last", context_id="c").text[10:-1].split(", ")) == ["last", "t0", "t1", "t2"]


@pytest.mark.parametrize("shown", [False, True])
def test_calls_of_tools_are_hidden_unless_they_are_to_be_shown(serve: Any, shown: bool) -> None:
    with serve(expose_tools=shown).stream("add") as stream:
        found = [event.status for event in stream if isinstance(event, TaskStatusUpdateEvent)]
    data = [part.data for one in found if one.message for part in one.message.parts if isinstance(part, DataPart)]
    assert [one["type"] for one in data] == (["tool_call", "tool_result"] if shown else [])
    if shown:
        assert data[0]["tool_call"]["arguments"] == {"a": 1, "b": 2}
        assert data[1]["tool_result"]["tool_call_id"] == data[0]["tool_call"]["id"] != ""
    assert stream.text == "Done: 3."


def test_a_canceled_task_is_not_remembered(serve: Any, kit: Kit) -> None:
    client = serve()
    send(client, "one", context_id="c")
    task = client.send("wait", context_id="c", return_immediately=True).task
    assert kit.tools.waiting.wait(TIMEOUT)
    assert client.cancel_task(task.id).state is S.CANCELED
    kit.tools.stopped.set()
    assert send(client, "two", context_id="c").text == "You said: one, two."


class Followed(CrewBridge):
    """Knows when the crew of its last run has ended."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ended = threading.Event()

    def events(self, turn: Any) -> Any:
        try:
            yield from super().events(turn)
        finally:
            self.ended.set()


class Counting(Model):
    """Waits after its first token, like a tool that waits."""

    def __init__(self, tools: Tools) -> None:
        super().__init__()
        self._tools = tools
        self.calls: list[str] = []

    def answer(self, turns: Any) -> Any:
        self.calls.append(turns[-1][1])
        return super().answer(turns)

    def _emit_stream_chunk_event(self, chunk: str, **about: Any) -> None:
        super()._emit_stream_chunk_event(chunk, **about)
        self.calls.append(chunk)
        self._tools.waiting.set()
        self._tools.stopped.wait(TIMEOUT)


@pytest.mark.parametrize(
    ("message", "calls"),
    [("wait", ["wait"]), ("hello", ["hello", "You "])],
    ids=["before the next call of the model", "at the next token"],
)
def test_a_canceled_run_stops(serve: Any, make: Any, kit: Kit, message: str, calls: list[str]) -> None:
    model = Counting(kit.tools)
    bridge = Followed(lambda context: make(model=model), name="shop")
    client = serve(bridge)
    task = client.send(message, return_immediately=True).task
    assert kit.tools.waiting.wait(TIMEOUT)
    client.cancel_task(task.id)
    kit.tools.stopped.set()
    assert bridge.ended.wait(TIMEOUT)
    assert model.calls == calls


@pytest.mark.parametrize("kept", ["memory:", "sqlite"])
def test_no_secret_is_sent_or_stored(make: Any, tmp_path: Path, kept: str) -> None:
    store = kept if kept == "memory:" else f"sqlite:///{tmp_path}/tasks.db"
    with A2AApp(CrewBridge(make, name="shop", expose_tools=True), store=store) as app, Client(app) as client:
        sent = spoken(client, "hello", "add", "break", "then")
        assert "internal error (" in sent
        assert "You said: hello, add, then." in sent
        assert CANARY not in sent
        held = texts_in(app.store) if kept == "memory:" else bytes_in(tmp_path)
        assert "You said: hello, add, then." in held
        assert CANARY not in held


@pytest.mark.parametrize("served", ["crew", "agent"])
def test_a_declared_output_is_data(kit: Kit, served: str) -> None:
    class Priced(Model):
        def answer(self, turns: Any) -> str:
            return '{"amount": 5}'

    bridges = {
        "crew": CrewBridge(kit.crew(model=Priced(), output_pydantic=Price), name="prices"),
        "agent": CrewBridge(kit.agent(model=Priced()), response_format=Price, name="prices"),
    }
    with A2AApp(bridges[served]) as app, Client(app) as client:
        (artifact,) = send(client).artifacts
        assert artifact.parts == (DataPart({"amount": 5}),)


def test_the_thoughts_of_a_model_without_function_calling_are_not_shown(serve: Any, make: Any) -> None:
    class Thinking(Model):
        def supports_function_calling(self) -> bool:
            return False

        def answer(self, turns: Any) -> str:
            return f"Thought: I now know it {CANARY}\nFinal Answer: It is noon."

    with serve(CrewBridge(lambda context: make(model=Thinking()), name="thinks"), interval=0).stream("hi") as stream:
        events = list(stream)
    assert CANARY not in "".join(event.to_json() for event in events)
    assert stream.text == "It is noon."


def test_tasks_that_read_the_console_are_refused(serve: Any, kit: Kit) -> None:
    with pytest.raises(TypeError, match="human_input=True reads the console"):
        CrewBridge(kit.crew(human_input=True))
    assert send(serve(CrewBridge(lambda context: kit.crew(human_input=True), name="reads"))).state is S.FAILED


def test_a_run_of_an_agent_makes_no_class(kit: Kit) -> None:
    with A2AApp(CrewBridge(kit.agent(), name="shop")) as app, Client(app) as client:
        gc.disable()
        try:
            before = set(AgentExecutorState.__subclasses__())
            assert send(client).text == "You said: hi."
            assert set(AgentExecutorState.__subclasses__()) <= before
        finally:
            gc.enable()


@pytest.mark.parametrize("calls_functions", [True, False])
def test_a_run_of_an_agent_gets_no_results_of_tools_of_another(calls_functions: bool) -> None:
    said = cycle(["Thought: hm.\nAction: whoami\nAction Input: {}", "Thought: I know.\nFinal Answer: it is done"])
    asked: list[int] = []

    @tool
    def whoami() -> str:
        """Name the caller."""
        asked.append(len(asked))
        return f"caller {len(asked)}"

    class Fake(Model):
        def supports_function_calling(self) -> bool:
            return calls_functions

        def answer(self, turns: Any) -> Any:
            return super().answer(turns) if calls_functions else next(said)

    agent = Agent(role="shop", goal="sell", backstory=SYSTEM, llm=Fake(), tools=[whoami], cache=True)
    with A2AApp(CrewBridge(agent, name="shop")) as app, Client(app) as client:
        answers = [send(client, "whoami", context_id=context).text for context in ("a", "b")]
    assert answers == (["Done: caller 1.", "Done: caller 2."] if calls_functions else ["it is done"] * 2)
    assert (len(asked), agent.tools_results) == (2, [])


def test_the_answer_of_a_model_that_only_marks_it_is_streamed_without_the_mark(serve: Any, make: Any) -> None:
    class Marking(Model):
        def supports_function_calling(self) -> bool:
            return False

        def answer(self, turns: Any) -> str:
            return "Final Answer: It is noon."

    with serve(CrewBridge(lambda context: make(model=Marking()), name="marks"), interval=0).stream("hi") as stream:
        pieces = [event.artifact.text for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    assert "".join(pieces[:-1]) == pieces[-1] == "It is noon."


def test_an_object_that_is_neither_crew_nor_agent_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a Crew, an Agent, or a function"):
        CrewBridge("crew")


def test_a_remote_agent_is_a_tool(serve: Any, kit: Kit) -> None:
    from a2a_sync import Agent

    clerk = Agent("clerk", description="Takes orders.")
    clerk.message(lambda message, context: f"noted {message.text}")
    with Client(clerk) as client:
        kit.tools.more = [tool("clerk")(client.as_tool())]
        assert send(serve(), "order").text == "Done: noted order."
    clerk.close()
