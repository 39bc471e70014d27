"""System D: types, chat messages, mappers, tools. The ids are those of docs/reference/parity.md."""

from __future__ import annotations

import base64

import pytest

from a2a_sync import (
    A2AApp,
    Artifact,
    Client,
    DataPart,
    FilePart,
    InputRequired,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.testing import wsgi_session
from a2a_sync.types import SendMessageConfiguration, SendMessageRequest
from tests.engine import Gate, eventually
from tests.parity.wire import CODEC

S = TaskState
PARTS = (
    TextPart("hi", metadata={"k": 1}),
    FilePart(raw=b"\x00\x01", filename="a.bin", media_type="application/octet-stream"),
    FilePart(url="https://example.com/a", filename="a", media_type="text/plain"),
    DataPart({"n": [1, None]}),
)


def test_d1_parts_are_text_files_and_data_and_say_which():
    assert [CODEC.dump(part)["kind"] for part in PARTS] == ["text", "file", "file", "data"]
    written = CODEC.dump(PARTS[1])["file"]
    assert written == {
        "name": "a.bin",
        "mimeType": "application/octet-stream",
        "bytes": base64.b64encode(b"\x00\x01").decode(),
    }


def test_d2_parts_are_made_of_text_bytes_addresses_and_any_data(tmp_path):
    assert (TextPart("x").text, DataPart([1]).data) == ("x", [1])
    path = tmp_path / "a.txt"
    path.write_bytes(b"content")
    file = FilePart.from_path(path)
    assert (file.raw, file.filename, file.media_type) == (b"content", "a.txt", "text/plain")
    with pytest.raises(ValueError, match="either raw bytes or a url"):
        FilePart(raw=b"x", url="https://example.com/")


def test_d3_parts_are_written_and_read_back_in_their_order():
    message = Message(role=Role.USER, parts=PARTS)
    assert CODEC.load(Message, CODEC.dump(message)).parts == PARTS


def test_d4_a_message_has_ids_of_its_own_and_may_name_a_context_and_a_task():
    one, other = (Message(role=Role.AGENT, parts=(TextPart("a"), DataPart(1), TextPart("b"))) for _ in range(2))
    assert one.message_id != other.message_id
    assert one.text == "a\nb"
    placed = Message(role=Role.USER, parts=PARTS, context_id="c", task_id="t", reference_task_ids=("r",))
    written = CODEC.dump(placed)
    assert (written["kind"], written["contextId"], written["taskId"]) == ("message", "c", "t")
    assert CODEC.load(Message, written) == placed


def test_d5_roles_are_user_and_agent():
    assert [CODEC.dump(Message(role=role, parts=PARTS))["role"] for role in (Role.USER, Role.AGENT)] == [
        "user",
        "agent",
    ]


def test_d6_there_are_eight_states_of_which_four_are_ends():
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


def test_d7_a_status_has_a_state_a_time_and_maybe_a_message(make):
    status = make(lambda message, context: InputRequired("Which?")).call("go").status
    assert (status.state, status.message.text) == (S.INPUT_REQUIRED, "Which?")
    assert status.timestamp.utcoffset().total_seconds() == 0
    assert CODEC.dump(status)["timestamp"].endswith("Z")


def test_d8_a_new_task_is_submitted_with_ids_and_keeps_artifacts_and_history(make):
    gate = Gate()
    with Client(make(lambda message, context: gate.here() or "ok")) as client:
        task = client.send("hi", return_immediately=True, context_id="c")
        assert (task.state in (S.SUBMITTED, S.WORKING), task.context_id, bool(task.id)) == (True, "c", True)
        gate.open.set()
        done = client.wait(task.id)
    assert CODEC.load(Task, CODEC.dump(done)) == done
    assert CODEC.dump(done)["kind"] == "task"


def test_d9_an_artifact_has_a_name_a_description_parts_and_an_id_of_its_own():
    one, other = (Artifact(name="n", description="d", parts=PARTS) for _ in range(2))
    assert one.artifact_id != other.artifact_id
    assert CODEC.load(Artifact, CODEC.dump(one)) == one


def test_d10_events_name_their_task_and_the_last_one_of_a_run_says_so():
    status = TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=S.COMPLETED))
    artifact = TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=Artifact(parts=PARTS))
    assert [CODEC.dump(event)["kind"] for event in (status, artifact)] == ["status-update", "artifact-update"]
    assert CODEC.dump(status)["final"] is True
    assert [CODEC.load_event(CODEC.dump(event)) for event in (status, artifact)] == [status, artifact]


def test_d11_a_request_says_how_it_is_to_be_answered():
    operation = CODEC.operation("message/send")
    request = SendMessageRequest(
        message=Message(role=Role.USER, parts=PARTS),
        configuration=SendMessageConfiguration(
            accepted_output_modes=("text/plain",), history_length=2, return_immediately=True
        ),
        metadata={"k": 1},
    )
    written = CODEC.dump_request(operation, request)
    assert written["configuration"] == {"acceptedOutputModes": ["text/plain"], "historyLength": 2, "blocking": False}
    assert CODEC.load_request(operation, written) == request


def test_d22_a_reader_that_leaves_holds_nobody_up(make):
    agent = make(lambda message, context: (f"{number} " for number in range(500)))
    with agent.stream("count") as stream:
        task_id = next(iter(stream)).id
    task = eventually(lambda: (task := agent.get_task(task_id)).state.terminal and task)
    assert (task.state, len(task.artifacts[0].parts)) == (S.COMPLETED, 500)


def test_d23_a_client_sends_text_or_a_message_and_errors_have_code_and_message(make):
    app = A2AApp(make(lambda message, context: message.text.upper()))
    with app, Client("http://agent.test", version="0.3", session=wsgi_session(app)) as client:
        assert client.send("hi").text == "HI"
        assert client.send(Message(role=Role.USER, parts=(TextPart("there"),))).text == "THERE"
        with pytest.raises(TaskNotFoundError) as refused:
            client.send("hi", task_id="unknown")
    assert (refused.value.code, refused.value.message) == (-32001, "Task not found: unknown")
