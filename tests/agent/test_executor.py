"""What user code sees of a run, and what it can say while the run goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from a2a_sync import Agent, Extension
from a2a_sync import operations as op
from a2a_sync.agent.executor import AgentExecutor, TaskCancelled
from a2a_sync.errors import InternalError
from a2a_sync.operations import Principal
from a2a_sync.types import (
    Artifact,
    DataPart,
    FilePart,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    to_parts,
)
from tests.engine import TIMEOUT, Gate, collect, serving, texts


@pytest.fixture
def serve():
    yield from serving()


def artifact_events(served, task_id):
    events = [entry.event for entry in served.log(task_id)]
    return [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]


# -- what was asked -----------------------------------------------------------------------------------------------------


def test_the_context_shows_the_request_and_what_surrounded_it(serve):
    seen = {}

    agent = Agent("tested", extensions=[Extension("urn:x")])

    @agent.message
    def handler(message, context):
        seen.update(
            {
                name: getattr(context, name)
                for name in ("message", "task_id", "context_id", "metadata", "user", "tenant", "extensions")
            },
            headers=dict(context.headers),
            modes=context.accepted_output_modes,
            cancelled=context.cancelled,
        )

    served = serve(agent)
    request = replace(
        served.request("hi", context_id="c7", accepted_output_modes=("text/plain",)),
        metadata={"k": 1},
        tenant="acme",
    )
    principal = Principal(id="ada")
    task = served.call(
        op.SEND_MESSAGE,
        request,
        principal=principal,
        extensions=("urn:x", "urn:y"),
        headers={"user-agent": "test/1", "authorization": "Bearer secret", "x-request-id": "r1"},
    )
    assert seen.pop("message") == replace(request.message, task_id=task.id)
    assert seen == {
        "task_id": task.id,
        "context_id": "c7",
        "metadata": {"k": 1},
        "user": principal,
        "tenant": "acme",
        "extensions": {"urn:x": True},
        "headers": {"user-agent": "test/1", "x-request-id": "r1"},
        "modes": ("text/plain",),
        "cancelled": False,
    }


def test_without_configuration_every_output_mode_is_taken(serve):
    seen = []
    served = serve(lambda message, context: seen.append(context.accepted_output_modes))
    served.call(op.SEND_MESSAGE, replace(served.request("hi"), configuration=None))
    assert seen == [()]


def test_the_task_and_its_history_hold_the_incoming_message(serve):
    seen = []

    def handler(message, context):
        seen.append((context.task.state, context.task.id == context.task_id, texts(context.history)))

    serve(handler).send("hi")
    assert seen == [(TaskState.WORKING, True, ["user: hi"])]


def test_the_history_is_read_when_it_is_asked_for_and_once(serve, monkeypatch):
    loads = []

    def handler(message, context):
        before = len(loads)
        _ = context.message, context.task_id, context.headers
        assert len(loads) == before
        assert context.task is context.task
        assert context.history is context.history
        assert len(loads) == before + 1

    served = serve(handler)
    load = served.store.load
    monkeypatch.setattr(served.store, "load", lambda *args, **options: loads.append(1) or load(*args, **options))
    assert served.send().state is TaskState.COMPLETED


def test_the_context_stays_valid_after_the_run(serve):
    kept = []
    served = serve(lambda message, context: kept.append(context) or "done")
    task = served.send("hi")
    (context,) = kept
    assert (context.message.text, context.task_id) == ("hi", task.id)
    assert context.history[0].text == "hi"
    with pytest.raises(TaskCancelled):
        context.update("too late")


# -- cancelling ---------------------------------------------------------------------------------------------------------


def test_sleeping_ends_at_once_when_the_task_is_cancelled(serve):
    gate, woken = Gate(), threading.Event()

    def handler(message, context):
        gate.reached.set()
        try:
            context.sleep(TIMEOUT * 10)
        except TaskCancelled:
            woken.set()
            assert context.cancelled
            with pytest.raises(TaskCancelled):
                context.check_cancelled()
            raise

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    assert woken.wait(TIMEOUT)
    served.quiet()


def test_sleeping_without_a_cancel_goes_on_after_its_time(serve):
    def handler(message, context):
        context.sleep(0.001)
        context.check_cancelled()
        return "rested"

    assert serve(handler).send().text == "rested"


def test_a_callback_is_called_once_when_the_task_is_cancelled(serve, caplog):
    gate, calls = Gate(), []

    def broken():
        raise OSError("no such process")

    def handler(message, context):
        context.on_cancel(lambda: calls.append("first"))
        context.on_cancel(broken)
        context.on_cancel(lambda: calls.append("second"))
        gate.reached.set()
        context.sleep(TIMEOUT)

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    served.quiet()
    assert calls == ["first", "second"]
    assert "a cancel callback failed" in caplog.text


def test_a_callback_that_comes_after_the_cancel_is_called_at_once(serve):
    gate, calls = Gate(), []

    def handler(message, context):
        gate.block()
        context.on_cancel(lambda: calls.append(threading.current_thread().name))

    served = serve(handler)
    task_id = served.begin()
    gate.wait()
    served.cancel(task_id)
    gate.open.set()
    served.quiet()
    assert [name.startswith("a2a-run") for name in calls] == [True]


def test_a_callback_is_not_called_when_the_run_ends_by_itself(serve):
    calls = []

    def handler(message, context):
        context.on_cancel(lambda: calls.append(message.text))
        if message.text == "fail":
            raise ValueError

    served = serve(handler)
    served.send("work")
    served.send("fail")
    served.quiet()
    direct = Agent("direct", description="d", direct=True)
    direct.message(handler)
    with pytest.raises(InternalError):
        serve(direct, direct_reply_timeout=TIMEOUT).send("fail")
    assert calls == []


# -- answering while the run goes on ------------------------------------------------------------------------------------


def test_progress_is_a_working_status_and_never_history(serve):
    def handler(message, context):
        context.update("half way", metadata={"percent": 50})
        return "done"

    served = serve(handler)
    events = [item.event for item in collect(served.stream("go"))]
    update = events[1]
    assert (update.status.state, update.status.message.text) == (TaskState.WORKING, "half way")
    assert (update.metadata, update.status.message.role) == ({"percent": 50}, Role.AGENT)
    assert (update.status.message.task_id, update.status.message.context_id) == (events[0].id, events[0].context_id)
    assert texts(served.get(events[0].id).history) == ["user: go", "agent: done"]
    assert served.get(events[0].id).metadata == {"percent": 50}


def test_several_events_are_stored_in_one_step_or_not_at_all(serve):
    def handler(message, context):
        good = TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart("kept?"),)))
        illegal = TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.SUBMITTED))
        with pytest.raises(ValueError, match="cannot go from working to submitted"):
            context.emit(good, illegal)
        return "done"

    task = serve(handler).send()
    assert [artifact.text for artifact in task.artifacts] == ["done"]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("text", (TextPart("text"),)),
        (TextPart("text"), (TextPart("text"),)),
        (["a", DataPart({"b": 1})], (TextPart("a"), DataPart({"b": 1}))),
        (("a", ["b", ("c",)]), (TextPart("a"), TextPart("b"), TextPart("c"))),
        ((text for text in "ab"), (TextPart("a"), TextPart("b"))),
        (Message(role=Role.USER, parts=(TextPart("said"),)), (TextPart("said"),)),
    ],
)
def test_parts_are_made_of_what_people_write(content, parts):
    assert to_parts(content) == parts


@pytest.mark.parametrize("content", [b"bytes", {"a": 1}, 5, None, [5], object()])
def test_what_is_no_part_is_refused_by_its_type(content):
    with pytest.raises(TypeError, match="expected text, a part or a list of parts, not"):
        to_parts(content)


def test_no_parts_at_all_are_refused():
    with pytest.raises(ValueError, match="at least one part"):
        to_parts([])


def test_what_the_agent_says_belongs_to_its_task(serve):
    said = []

    def handler(message, context):
        said.append(context.agent_message(["a", "b"]))
        said.append(
            context.agent_message(Message(role=Role.USER, parts=(TextPart("c"),), message_id="m9", metadata={"k": 1}))
        )

    task = serve(handler).send()
    for message in said:
        assert (message.role, message.task_id, message.context_id) == (Role.AGENT, task.id, task.context_id)
    assert (said[0].text, said[1].text, said[1].message_id, said[1].metadata) == ("a\nb", "c", "m9", {"k": 1})


# -- artifacts in pieces ------------------------------------------------------------------------------------------------


def test_a_writer_makes_extends_and_completes_one_artifact(serve):
    def handler(message, context):
        with context.artifact("report", description="all of it", metadata={"k": 1}) as report:
            report.write("one ")
            report.write([TextPart("two"), FilePart(raw=b"3")])
            assert report.text == "one two"

    served = serve(handler)
    task = served.send()
    first, second, last = artifact_events(served, task.id)
    assert (first.append, first.last_chunk, first.artifact.name) == (False, False, "report")
    assert (second.append, second.last_chunk, second.artifact.name) == (True, False, "")
    # The last event replaces the pieces, so it says all that the first one did.
    assert (last.append, last.last_chunk, last.artifact) == (False, True, task.artifacts[0])
    (artifact,) = task.artifacts
    assert (artifact.name, artifact.description, artifact.metadata) == ("report", "all of it", {"k": 1})
    assert artifact.parts == (TextPart("one two"), FilePart(raw=b"3"))


def test_the_last_piece_can_complete_the_artifact_itself(serve):
    def handler(message, context):
        with context.artifact("a", artifact_id="a1") as writer:
            assert writer.artifact_id == "a1"
            writer.write("x")
            writer.write("y", last=True)
            with pytest.raises(ValueError, match="artifact a1 is complete"):
                writer.write("z")

    served = serve(handler)
    events = artifact_events(served, served.send().id)
    assert [(event.append, event.last_chunk, event.artifact.text) for event in events] == [
        (False, False, "x"),
        (True, False, "y"),
        (False, True, "xy"),
    ]


def test_an_artifact_of_a_single_complete_piece_is_a_single_event(serve):
    def handler(message, context):
        context.artifact("a").write("whole", last=True)

    served = serve(handler)
    (event,) = artifact_events(served, served.send().id)
    assert (event.append, event.last_chunk, event.artifact.name, event.artifact.text) == (False, True, "a", "whole")


def test_an_artifact_can_begin_again_and_be_replaced_under_its_id(serve):
    def handler(message, context):
        with context.artifact("answer", artifact_id="a") as writer:
            writer.write("Let me ")
            writer.write("see")
            writer.restart()
            assert (writer.text, writer.parts) == ("", ())
            writer.write("It is ")
            writer.write("5")
        writer.replace("It is 6", last=True)
        with pytest.raises(ValueError, match="artifact a is complete"):
            writer.write("z")

    served = serve(handler)
    task = served.send()
    assert [(event.append, event.last_chunk, event.artifact.text) for event in artifact_events(served, task.id)] == [
        (False, False, "Let me "),
        (True, False, "see"),
        (False, False, "It is "),
        (True, False, "5"),
        (False, True, "It is 5"),
        (False, True, "It is 6"),
    ]
    assert [(artifact.artifact_id, artifact.name, artifact.text) for artifact in task.artifacts] == [
        ("a", "answer", "It is 6")
    ]


def test_progress_may_have_parts(serve):
    def handler(message, context):
        context.update(["half", DataPart({"done": 0.5})])

    served = serve(handler)
    task = served.send()
    (progress,) = [entry.event.status.message for entry in served.log(task.id) if _working_message(entry.event)]
    assert progress.parts == (TextPart("half"), DataPart({"done": 0.5}))
    assert texts(task.history) == ["user: go"]


def _working_message(event):
    return isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None


def test_a_writer_that_wrote_nothing_leaves_nothing(serve):
    def handler(message, context):
        with context.artifact("never"):
            pass

    assert serve(handler).send().artifacts == ()


def test_an_exception_leaves_what_was_written_unmarked(serve):
    def handler(message, context):
        with context.artifact("half") as writer:
            writer.write("so far")
            raise ValueError("secret")

    served = serve(handler)
    task = served.send()
    assert task.state is TaskState.FAILED
    assert [event.last_chunk for event in artifact_events(served, task.id)] == [False]
    assert task.artifacts[0].text == "so far"


def test_writers_side_by_side_do_not_mix(serve):
    def handler(message, context):
        start = threading.Barrier(4)

        def write(number):
            start.wait(TIMEOUT)
            with context.artifact(f"part {number}") as writer:
                for step in range(25):
                    writer.write(f"{step} ")

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)

    served = serve(handler)
    task = served.send()
    expected = "".join(f"{step} " for step in range(25))
    assert {artifact.name: artifact.text for artifact in task.artifacts} == {
        f"part {number}": expected for number in range(4)
    }
    assert [entry.number for entry in served.log(task.id)] == list(range(1, len(served.log(task.id)) + 1))


# -- executors ----------------------------------------------------------------------------------------------------------


def test_an_executor_is_anything_that_executes(serve):
    class Plain:
        def execute(self, context) -> Iterator[object]:
            yield TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart("x"),)))

    assert isinstance(Plain(), AgentExecutor)
    task = serve(Plain()).send()
    assert (task.state, task.text) == (TaskState.COMPLETED, "x")


def test_an_executor_may_emit_and_return_nothing(serve):
    class Callback:
        def execute(self, context):
            context.emit(context.agent_message("hello"))
            context.emit(TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart("x"),))))

    task = serve(Callback()).send("go")
    assert (task.state, task.text, texts(task.history)) == (TaskState.COMPLETED, "x", ["user: go", "agent: hello"])


def test_a_message_that_is_yielded_is_the_answer_and_one_that_is_emitted_is_history(serve):
    class Talker:
        def execute(self, context):
            context.emit(context.agent_message("by the way"))
            yield context.agent_message("the answer")

    task = serve(Talker()).send("go")
    assert (task.state, task.status.message.text) == (TaskState.COMPLETED, "the answer")
    assert texts(task.history) == ["user: go", "agent: by the way"]
