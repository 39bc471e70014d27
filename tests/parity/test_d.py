"""System D: types, chat messages, mappers, tools. The ids are those of docs/reference/feature-comparison.md."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from a2a_sync import (
    A2AApp,
    Artifact,
    Client,
    DataPart,
    Failed,
    FilePart,
    InputRequired,
    Message,
    Part,
    PublicError,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.card import create_agent_card
from a2a_sync.client import RemoteTool
from a2a_sync.integrations.chat_messages import from_chat_messages, to_chat_messages
from a2a_sync.integrations.mapper import Mapper, RunEvent, ToolCall, ToolResult
from a2a_sync.integrations.runners import AgentRunnerExecutor, RunResult, WorkflowExecutor
from a2a_sync.stores.base import Owner
from a2a_sync.testing import wsgi_session
from a2a_sync.types import SendMessageConfiguration, SendMessageRequest, StreamResponse, from_dict
from tests.engine import eventually

S = TaskState
PARTS = (
    TextPart("hi", metadata={"k": 1}),
    FilePart(raw=b"\x00\x01", filename="a.bin", media_type="application/octet-stream"),
    FilePart(url="https://example.com/a", filename="a", media_type="text/plain"),
    DataPart({"n": [1, None]}),
)


def test_d1_parts_are_text_files_or_data():
    assert [part.to_dict("0.3")["kind"] for part in PARTS] == ["text", "file", "file", "data"]
    written = PARTS[1].to_dict("0.3")["file"]
    assert written == {
        "name": "a.bin",
        "mimeType": "application/octet-stream",
        "bytes": base64.b64encode(b"\x00\x01").decode(),
    }


def test_d2_constructors_of_parts(tmp_path):
    assert (TextPart("x").text, DataPart([1]).data) == ("x", [1])
    path = tmp_path / "a.txt"
    path.write_bytes(b"content")
    file = FilePart.from_path(path)
    assert (file.raw, file.filename, file.media_type) == (b"content", "a.txt", "text/plain")
    with pytest.raises(ValueError, match="either raw bytes or a url"):
        FilePart(raw=b"x", url="https://example.com/")


def test_d3_parts_round_trip_in_order():
    message = Message(role=Role.USER, parts=PARTS)
    for version in ("0.3", "1.0"):
        written = json.loads(json.dumps(message.to_dict(version)))
        assert Message.from_dict(written, version).parts == PARTS


def test_d4_a_message_has_an_id_and_may_have_context_and_task_ids():
    one, other = (Message(role=Role.AGENT, parts=(TextPart("a"), DataPart(1), TextPart("b"))) for _ in range(2))
    assert one.message_id != other.message_id
    assert one.text == "a\nb"
    placed = Message(role=Role.USER, parts=PARTS, context_id="c", task_id="t", reference_task_ids=("r",))
    written = placed.to_dict("0.3")
    assert (written["kind"], written["contextId"], written["taskId"]) == ("message", "c", "t")
    assert Message.from_dict(written, "0.3") == placed


def test_d5_roles_are_user_and_agent():
    for version, names in (("0.3", ["user", "agent"]), ("1.0", ["ROLE_USER", "ROLE_AGENT"])):
        said = [Message(role=role, parts=PARTS).to_dict(version) for role in (Role.USER, Role.AGENT)]
        assert [message["role"] for message in said] == names
        assert [Message.from_dict(message, version).role for message in said] == [Role.USER, Role.AGENT]


def test_d6_four_of_eight_states_are_terminal():
    said = set(S) - {S.UNSPECIFIED}
    assert said == {
        "submitted",
        "working",
        "input-required",
        "completed",
        "canceled",
        "failed",
        "rejected",
        "auth-required",
    }
    assert {state for state in said if state.terminal} == {"completed", "canceled", "failed", "rejected"}


def test_d7_a_status_has_a_state_a_timestamp_and_an_optional_message(make):
    status = make(lambda message, context: InputRequired("Which?")).call("go").status
    assert (status.state, status.message.text) == (S.INPUT_REQUIRED, "Which?")
    assert status.timestamp.utcoffset().total_seconds() == 0
    assert status.to_dict("0.3")["timestamp"].endswith("Z")


def test_d8_a_new_task_has_ids_and_stores_artifacts_and_history(make):
    with A2AApp(make(lambda message, context: "ok")) as app, Client(app) as client:
        with client.stream("hi", context_id="c") as stream:
            first, *rest = list(stream)
        assert isinstance(first, Task)
        assert (first.context_id, first.artifacts) == ("c", ())
        log = [entry.event for entry in app.store.log(Owner(), first.id).entries]
        states = [event.status.state for event in log if isinstance(event, TaskStatusUpdateEvent)]
        assert states == [S.SUBMITTED, S.WORKING, S.COMPLETED]
        assert [message.text for message in first.history] == ["hi"]
        assert {event.task_id for event in rest} == {first.id}
        other = client.send("hi")
        assert first.id != other.id
        assert other.context_id not in ("", "c")
        done = client.get_task(first.id)
    assert (done.id, done.context_id, done.state) == (first.id, "c", S.COMPLETED)
    assert [artifact.text for artifact in done.artifacts] == ["ok"]
    assert [message.text for message in done.history] == ["hi", "ok"]
    assert {message.task_id for message in done.history} == {done.id}
    assert Task.from_dict(done.to_dict("0.3"), "0.3") == done


def test_d9_an_artifact_has_an_id_a_name_a_description_and_parts():
    one, other = (Artifact(name="n", description="d", parts=PARTS) for _ in range(2))
    assert one.artifact_id != other.artifact_id
    assert Artifact.from_dict(one.to_dict("0.3"), "0.3") == one


def test_d10_events_have_ids_and_the_last_one_is_final():
    status = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=S.COMPLETED))
    artifact = TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=Artifact(parts=PARTS))
    written = [event.to_dict("0.3") for event in (status, artifact)]
    assert [event["kind"] for event in written] == ["status-update", "artifact-update"]
    assert {(event["taskId"], event["contextId"]) for event in written} == {("t", "c")}
    assert written[0]["final"] is True
    assert [from_dict(StreamResponse, event, "0.3") for event in written] == [status, artifact]


def test_d11_a_request_has_a_configuration():
    request = SendMessageRequest(
        message=Message(role=Role.USER, parts=PARTS),
        configuration=SendMessageConfiguration(
            accepted_output_modes=("text/plain",), history_length=2, return_immediately=True
        ),
        metadata={"k": 1},
    )
    written = request.to_dict("0.3")
    assert written["configuration"] == {"acceptedOutputModes": ["text/plain"], "historyLength": 2, "blocking": False}
    assert SendMessageRequest.from_dict(written, "0.3") == request


CALL = {"id": "c1", "type": "function", "function": {"name": "sum", "arguments": "{}"}}
CHATS = [
    {"role": "user", "content": "2 + 3?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "5"},
    {"role": "assistant", "content": "It is 5."},
]
START, END = RunEvent("run_start"), RunEvent("run_end")
SUM = RunEvent(
    "tool_call_result", tool_call=ToolCall(id="c1", name="sum"), tool_result=ToolResult(tool_call_id="c1", content="5")
)
CARD = create_agent_card("tested", "An agent under test", skills={"test": "Is tested"})


def said(text):
    return [RunEvent("message_start"), RunEvent("message_delta", delta=text), RunEvent("message_end")]


@pytest.fixture
def serve():
    """A factory of clients of an executor."""
    made = []

    def serve(executor):
        app = A2AApp(executor, card=CARD)
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


class Runner:
    """An agent or a workflow of a framework."""

    def __init__(self, *events):
        self.events = events
        self.given = []

    def run_stream(self, given, **options):
        self.given.append(given)
        yield from self.events


def test_d12_text_tool_calls_and_results_round_trip_through_chat_messages():
    messages = from_chat_messages(CHATS)
    assert [message.role for message in messages] == [Role.USER, Role.AGENT, Role.AGENT, Role.AGENT]
    assert messages[1].parts[0].data["tool_call"] == {"id": "c1", "name": "sum", "arguments": "{}"}
    assert messages[2].parts[0].data["tool_result"] == {"tool_call_id": "c1", "content": "5", "is_error": False}
    assert to_chat_messages(messages) == CHATS
    assert from_chat_messages(to_chat_messages(messages, lossless=True)) == messages
    assert from_chat_messages({"role": "system", "content": "x", "id": "m"})[0].message_id == "m"
    odd = Message(role=Role.USER, parts=PARTS)
    assert from_chat_messages(to_chat_messages(odd, lossless=True)) == [odd]


def test_d13_a_mapper_belongs_to_one_task_and_generates_missing_ids():
    mapper = Mapper("t", "c")
    assert (mapper.task_id, mapper.context_id, mapper.state) == ("t", "c", S.SUBMITTED)
    assert len({Mapper().task_id, Mapper().task_id, Mapper().context_id}) == 3


def test_d14_a_mapper_has_a_builder_for_each_status():
    mapper = Mapper("t", "c")
    events = [
        mapper.submitted(),
        mapper.working(),
        mapper.input_required("Which?"),
        mapper.status_update(S.WORKING, "again"),
        mapper.completed("done"),
    ]
    assert [event.status.state for event in events] == [
        S.SUBMITTED,
        S.WORKING,
        S.INPUT_REQUIRED,
        S.WORKING,
        S.COMPLETED,
    ]
    assert [event.status.message and event.status.message.text for event in events] == [
        None,
        None,
        "Which?",
        "again",
        "done",
    ]
    assert (mapper.state, events[-1].task_id, events[-1].context_id) == (S.COMPLETED, "t", "c")
    assert (Mapper().failed("why").status.message.text, Mapper().canceled().status.message) == ("why", None)
    assert [event.to_dict("0.3")["final"] for event in (events[1], events[-1], Mapper().failed("x"))] == [
        False,
        True,
        True,
    ]
    artifact = Artifact(parts=PARTS)
    assert mapper.artifact_update(artifact).artifact == artifact


def test_d15_run_events_map_to_protocol_events():
    mapper = Mapper()
    silent = [RunEvent("step_start"), RunEvent("loop_iteration"), RunEvent("tool_call_start"), RunEvent("unheard_of")]
    events = [START, START, *silent, *said("first"), SUM, END, *said("last"), END]
    events = [mapper.map_event(event) for event in events]
    assert [place for place, event in enumerate(events) if event is not None] == [0, 9, len(events) - 1]
    assert events[9].artifact.name == "sum"
    assert events[9].artifact.description == "Tool execution result"
    assert events[9].artifact.metadata == {"tool_call_id": "c1", "tool_name": "sum", "is_error": False}
    assert (events[-1].status.state, events[-1].status.message.text) == (S.COMPLETED, "last")
    nested = Mapper()
    failed = [nested.map_event(event) for event in (START, START, RunEvent("run_error"))][-1]
    assert (failed.status.state, failed.status.message.text) == (S.FAILED, "unknown error")


def test_d16_a_stream_of_run_events_is_mapped_lazily():
    taken = []

    def events():
        for event in (START, *said("hi"), END):
            taken.append(event)
            yield event

    events = Mapper().map_stream(events())
    assert next(events).status.state is S.WORKING
    assert len(taken) == 1
    assert [event.status.state for event in events] == [S.COMPLETED]


def test_d17_a_mapper_creates_a_task_with_a_given_history():
    mapper = Mapper("t", "c")
    mapper.working()
    task = mapper.create_task()
    assert (task.id, task.context_id, task.state, task.history) == ("t", "c", S.WORKING, ())
    assert mapper.create_task(history=from_chat_messages(CHATS)).history[0].text == "2 + 3?"


def test_d18_complete_returns_the_final_task_with_artifacts():
    mapper = Mapper("t", "c")
    list(mapper.map_stream([START, *said("done")]))
    task = mapper.complete(artifacts=[Artifact(name="chart", parts=PARTS)])
    assert (task.state, task.status.message.text, task.artifacts[0].name) == (S.COMPLETED, "done", "chart")


def test_d19_an_executor_supports_send_and_stream(serve):
    client = serve(AgentRunnerExecutor(Runner(START, *said("hi"), END)))
    task = client.send("hello")
    assert isinstance(task, Task)
    with client.stream("hello") as stream:
        states = [event.status.state for event in stream if isinstance(event, TaskStatusUpdateEvent)]
    assert (task.state, states[-1], stream.closed) == (S.COMPLETED, S.COMPLETED, True)


def test_d20_an_agent_runner_receives_chat_messages_and_options(serve):
    class Agent:
        def run(self, messages, **options):
            if options["fail"]:
                raise PublicError("no rates")
            return RunResult("It is 5.", [*messages, *CHATS[1:]])

    task = serve(AgentRunnerExecutor(Agent(), fail=False)).send("2 + 3?", context_id="c", history_length=10)
    assert (task.state, task.artifacts[0].text, task.status.message, task.context_id) == (
        S.COMPLETED,
        "It is 5.",
        None,
        "c",
    )
    assert to_chat_messages(task.history) == CHATS
    failed = serve(AgentRunnerExecutor(Agent(), fail=True)).send("2 + 3?")
    assert (failed.state, failed.status.message.text) == (S.FAILED, "no rates")
    runner = Runner(START, RunEvent("run_error", error="broken"))
    assert serve(AgentRunnerExecutor(runner)).send("hi").text == "broken"
    assert runner.given == [[{"role": "user", "content": "hi"}]]


def test_d21_a_workflow_runner_receives_merged_text_data_and_metadata(serve):
    flow = Runner(START, *said("done"), END)
    parts = (TextPart("go"), DataPart({"a": 1, "b": 1}), DataPart([1]))
    task = serve(WorkflowExecutor(flow)).send(Message(role=Role.USER, parts=parts, metadata={"b": 2}))
    assert flow.given == [{"query": "go", "a": 1, "b": 2}]
    assert task.state is S.COMPLETED
    broken = Runner(START, START, RunEvent("run_error", error="step 2"), END, END)
    assert serve(WorkflowExecutor(broken)).send("go").text == "step 2"


def test_d22_a_closed_stream_does_not_block_its_run(make):
    agent = make(lambda message, context: (f"{number} " for number in range(500)))
    with agent.stream("count") as stream:
        task_id = next(iter(stream)).id
    task = eventually(lambda: (task := agent.get_task(task_id)).state.terminal and task)
    assert (task.state, task.text) == (S.COMPLETED, "".join(f"{number} " for number in range(500)))


def test_d23_a_client_sends_text_or_messages_and_raises_errors_with_codes(make):
    app = A2AApp(make(lambda message, context: message.text.upper()))
    with app, Client("http://agent.test", protocol_version="0.3", session=wsgi_session(app)) as client:
        assert client.send("hi").text == "HI"
        assert client.send(Message(role=Role.USER, parts=(TextPart("there"),))).text == "THERE"
        with pytest.raises(TaskNotFoundError) as refused:
            client.send("hi", task_id="unknown")
    assert (refused.value.jsonrpc_code, refused.value.message) == (-32001, "Task not found: unknown")


def test_d24_a_remote_tool_can_be_registered(make):
    class Tools(dict):
        def register_func(self, name, description, schema, handler):
            self[name] = (description, schema, handler)

    with Client(make(lambda message, context: Failed("broken") if message.text == "bad" else "5.40 USD")) as client:
        tool = RemoteTool(client)
        assert (tool.name, tool.description) == ("remote_agent", "Call a remote AI agent to perform a task")
        assert tool.tool()["parameters"]["required"] == ["query"]
        named = RemoteTool(client, name="convert", description="Converts", schema={"type": "object"})
        named.register(tools := Tools())
        description, schema, handler = tools["convert"]
        assert (description, schema, handler('{"query": "5 EUR"}')) == ("Converts", {"type": "object"}, "5.40 USD")
        assert handler({"query": "bad"}) == "Remote agent failed: broken"
        with pytest.raises(ValueError, match="invalid input"):
            handler("{")
    with (
        Client("http://127.0.0.1:9/", retry=None) as unreachable,
        pytest.raises(RuntimeError, match="remote agent call failed"),
    ):
        RemoteTool(unreachable).handler({"query": "hi"})


def test_d24_an_agent_can_be_used_as_a_function(make):
    with Client(make(lambda message, context: message.text, name="Echo", description="Says it again")) as client:
        tool = client.as_tool()
        assert (tool.__name__, tool.__doc__.splitlines()[0], tool("hi")) == ("echo", "Says it again", "hi")


def test_d25_converters_and_tools_are_thread_safe_and_mappers_are_not(make):
    assert "one thread" in Mapper.__doc__
    with Client(make(lambda message, context: message.text)) as client, ThreadPoolExecutor(8) as pool:
        tool = client.as_tool()
        assert list(pool.map(tool, map(str, range(16)))) == [str(number) for number in range(16)]
        assert all(back == CHATS for back in pool.map(lambda _: to_chat_messages(from_chat_messages(CHATS)), range(16)))


@pytest.mark.parametrize("part", PARTS, ids=["text", "bytes", "address", "data"])
def test_d26_a_single_part_round_trips(part):
    for version in ("0.3", "1.0"):
        written = json.loads(json.dumps(part.to_dict(version)))
        assert from_dict(Part, written, version) == type(part).from_dict(written, version) == part
    assert part.to_dict("0.3")["kind"] in part.to_dict("0.3")
