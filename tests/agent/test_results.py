"""What each kind of result does to artifacts, history, status and its message; nothing more and nothing less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

import pytest

from a2a_sync import AuthRequired, Failed, InputRequired, Rejected, StreamingResult
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
)
from tests.engine import STORES, collect, serving_over, texts

S = TaskState


@pytest.fixture(params=STORES)
def serve(request, tmp_path):
    yield from serving_over(request.param, tmp_path)


@dataclass
class Order:
    item: str
    due: date


def effect(task):
    """A task as a table row: state, status message, artifacts' parts, history behind the user's message."""
    said = task.status.message.text if task.status.message is not None else None
    return task.state, said, [artifact.parts for artifact in task.artifacts], texts(task.history)[1:]


PICTURE = FilePart(raw=b"\x89PNG", media_type="image/png", filename="p.png")
ORDER = DataPart({"item": "pizza", "due": "2026-01-02"}, media_type="application/json")
RESULTS = {
    "text": (lambda: "done", (S.COMPLETED, None, [(TextPart("done"),)], ["agent: done"])),
    "empty text": (lambda: "", (S.COMPLETED, None, [(TextPart(""),)], ["agent: "])),
    "a part": (lambda: PICTURE, (S.COMPLETED, None, [(PICTURE,)], ["agent: "])),
    "a list": (
        lambda: ["see", PICTURE, {"k": None}],
        (
            S.COMPLETED,
            None,
            [(TextPart("see"), PICTURE, DataPart({"k": None}, media_type="application/json"))],
            ["agent: see"],
        ),
    ),
    "a tuple": (lambda: ("a", "b"), (S.COMPLETED, None, [(TextPart("a"), TextPart("b"))], ["agent: a\nb"])),
    "a dict": (
        lambda: {"n": [1, 2]},
        (S.COMPLETED, None, [(DataPart({"n": [1, 2]}, media_type="application/json"),)], ["agent: "]),
    ),
    "a dataclass": (lambda: Order("pizza", date(2026, 1, 2)), (S.COMPLETED, None, [(ORDER,)], ["agent: "])),
    "an artifact": (
        lambda: Artifact(name="report", parts=(TextPart("r"),)),
        (S.COMPLETED, None, [(TextPart("r"),)], ["agent: r"]),
    ),
    "nothing": (lambda: None, (S.COMPLETED, None, [], [])),
    "a question": (lambda: InputRequired("size?"), (S.INPUT_REQUIRED, "size?", [], ["agent: size?"])),
    "a log-in": (lambda: AuthRequired("log in"), (S.AUTH_REQUIRED, "log in", [], ["agent: log in"])),
    "a refusal": (lambda: Rejected("not mine"), (S.REJECTED, "not mine", [], [])),
    "a failure": (lambda: Failed("no stock"), (S.FAILED, "no stock", [], [])),
    "a message": (
        lambda: Message(role=Role.AGENT, parts=(TextPart("hello"),)),
        (S.COMPLETED, "hello", [], []),
    ),
    "a status": (
        lambda: TaskStatusUpdateEvent(status=TaskStatus(state=S.REJECTED)),
        (S.REJECTED, None, [], []),
    ),
    "an artifact event": (
        lambda: TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart("x"),))),
        (S.COMPLETED, None, [(TextPart("x"),)], []),
    ),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_has_exactly_the_effect_it_should(serve, kind):
    make, expected = RESULTS[kind]
    task = serve(lambda message, context: make()).send("go")
    assert effect(task) == expected


@pytest.mark.parametrize("kind", RESULTS)
def test_a_stream_shows_the_same_as_the_task_has_afterwards(serve, kind):
    make, _expected = RESULTS[kind]
    served = serve(lambda message, context: make())
    first, *events = [item.event for item in collect(served.stream("go"))]
    assert served.get(first.id).status == events[-1].status
    shown = [event.artifact for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert shown == list(served.get(first.id).artifacts)


def test_a_result_and_its_end_are_one_step(serve):
    """No reader can see the artifact of a text without its message and its status."""
    served = serve(lambda message, context: "done")
    written = []
    start, append = served.store.start_run, served.store.append
    served.store.start_run = lambda *args, **options: written.append(len(args[2])) or start(*args, **options)
    served.store.append = lambda *args, **options: written.append(len(args[1])) or append(*args, **options)
    served.send()
    # With the message and the first two states.
    assert written == [6]
    served.send(return_immediately=True)
    served.quiet()
    assert written == [6, 3, 3]


def test_an_ending_carries_its_metadata_into_status_and_task(serve):
    task = serve(lambda message, context: InputRequired("size?", metadata={"choices": ["S", "L"]})).send()
    assert task.metadata == {"choices": ["S", "L"]}


def test_an_ending_may_hold_parts_or_a_whole_message(serve):
    message = Message(role=Role.USER, message_id="q1", parts=(TextPart("size?"), DataPart(["S"])), metadata={"k": 1})

    def handler(incoming, context):
        return InputRequired(message) if incoming.text == "message" else InputRequired(["size?", DataPart(["S"])])

    served = serve(handler)
    task = served.send("parts")
    assert task.status.message.parts == message.parts
    task = served.send("message")
    asked = task.status.message
    assert (asked.message_id, asked.role, asked.task_id, asked.metadata) == ("q1", Role.AGENT, task.id, {"k": 1})


def test_the_question_in_the_history_is_the_one_in_the_status(serve):
    task = serve(lambda message, context: InputRequired("size?")).send("go")
    assert task.history[-1] == task.status.message


def test_a_question_is_in_the_history_once_however_often_its_status_is_sent(serve):
    def handler(message, context):
        question = context.agent_message("log in, please")
        context.emit(question)
        waiting = TaskStatusUpdateEvent(status=TaskStatus(state=S.AUTH_REQUIRED, message=question))
        context.emit(waiting)
        context.emit(waiting)
        return TaskStatusUpdateEvent(status=TaskStatus(state=S.INPUT_REQUIRED, message=question))

    task = serve(handler).send("go")
    assert texts(task.history) == ["user: go", "agent: log in, please"]


def test_a_message_of_the_agent_is_the_agents_whatever_its_author_wrote(serve):
    def handler(message, context):
        return Message(role=Role.USER, parts=(TextPart("hello"),), task_id="other", context_id="other")

    task = serve(handler).send()
    said = task.status.message
    assert (said.role, said.task_id, said.context_id) == (Role.AGENT, task.id, task.context_id)


# -- streams of chunks --------------------------------------------------------------------------------------------------


def test_chunks_are_pieces_of_one_artifact_which_is_repeated_as_a_whole_and_becomes_the_message(serve):
    def handler(message, context) -> Iterator[object]:
        yield "one "
        yield ""
        yield "two "
        yield DataPart({"three": 3})

    served = serve(handler)
    first, *events = [item.event for item in collect(served.stream("go"))]
    chunks = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert [(chunk.append, chunk.last_chunk) for chunk in chunks] == [
        (False, False),
        (True, False),
        (True, False),
        (False, True),
    ]
    assert len({chunk.artifact.artifact_id for chunk in chunks}) == 1
    parts = (TextPart("one two "), DataPart({"three": 3}))
    assert chunks[-1].artifact.parts == parts
    task = served.get(first.id)
    assert effect(task) == (S.COMPLETED, None, [parts], ["agent: one two "])
    assert task.history[-1].parts == parts


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (ValueError("no stock"), "no stock"),
        (ValueError(), "ValueError"),
        ({"code": 7, "why": "no stock"}, '{"code":7,"why":"no stock"}'),
        (("no stock", 7), '["no stock",7]'),
        (7, "7"),
        ({1}, "{1}"),
        ([], "[]"),
        (("no", "stock"), "no\nstock"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("generator", [False, True])
def test_a_failure_shows_its_reason_whatever_that_is(serve, reason, shown, generator):
    def handler(message, context):
        return Failed(reason, metadata={"k": 1})

    def streams(message, context):
        yield from ()
        return Failed(reason, metadata={"k": 1})

    task = serve(streams if generator else handler).send()
    assert (task.state, task.status.message.text, task.metadata) == (S.FAILED, shown, {"k": 1})


ENDS = {
    "nothing": (None, (S.COMPLETED, None, [("ab",)], ["agent: ab"])),
    "a last chunk": ("c", (S.COMPLETED, None, [("abc",)], ["agent: abc"])),
    "several last chunks": (["c", "d"], (S.COMPLETED, None, [("abcd",)], ["agent: abcd"])),
    "an empty last chunk": ("", (S.COMPLETED, None, [("ab",)], ["agent: ab"])),
    "a question": (InputRequired("go on?"), (S.INPUT_REQUIRED, "go on?", [("ab",)], ["agent: ab", "agent: go on?"])),
    "a log-in": (AuthRequired("Log in"), (S.AUTH_REQUIRED, "Log in", [("ab",)], ["agent: ab", "agent: Log in"])),
    "a failure": (Failed("broke"), (S.FAILED, "broke", [("ab",)], ["agent: ab"])),
    "a refusal": (Rejected("no"), (S.REJECTED, "no", [("ab",)], ["agent: ab"])),
    "another artifact": (
        Artifact(parts=(TextPart("z"),)),
        (S.COMPLETED, None, [("ab",), ("z",)], ["agent: ab", "agent: z"]),
    ),
    "a message": (
        Message(role=Role.AGENT, parts=(TextPart("bye"),)),
        (S.COMPLETED, "bye", [("ab",)], ["agent: ab"]),
    ),
}


@pytest.mark.parametrize("kind", ENDS)
def test_what_a_generator_returns_decides_the_end(serve, kind):
    returned, expected = ENDS[kind]

    def handler(message, context):
        yield "a"
        yield "b"
        return returned

    state, said, artifacts, history = effect(serve(handler).send())
    assert (state, said, [tuple(p.text for p in parts) for parts in artifacts], history) == expected


def test_artifacts_events_and_messages_go_out_as_they_are_between_chunks(serve):
    def handler(message, context):
        yield "a"
        yield Artifact(name="chart", parts=(PICTURE,))
        yield context.agent_message("by the way")
        yield TaskStatusUpdateEvent(status=TaskStatus(state=S.WORKING, message=context.agent_message("nearly")))
        yield "b"

    served = serve(handler)
    first, *events = [item.event for item in collect(served.stream("go"))]
    assert [type(event).__name__ for event in events] == [
        "TaskArtifactUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskStatusUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskStatusUpdateEvent",
    ]
    task = served.get(first.id)
    assert [(artifact.name, artifact.text) for artifact in task.artifacts] == [("answer", "ab"), ("chart", "")]
    assert texts(task.history) == ["user: go", "agent: by the way", "agent: ab"]


def test_a_generator_that_yields_nothing_completes_without_artifact(serve):
    def handler(message, context):
        yield from ()

    assert effect(serve(handler).send()) == (S.COMPLETED, None, [], [])


@pytest.mark.parametrize("returned", [None, "", []])
def test_an_empty_last_chunk_makes_no_artifact(serve, returned):
    def handler(message, context):
        yield ""
        return returned

    assert effect(serve(handler).send()) == (S.COMPLETED, None, [], [])


def test_chunks_that_are_no_text_become_the_message_too(serve):
    file = FilePart(raw=b"1", media_type="image/png")

    def handler(message, context):
        yield DataPart(1)
        yield file

    served = serve(handler)
    task = served.send()
    assert effect(task) == (S.COMPLETED, None, [(DataPart(1), file)], ["agent: "])
    assert task.history[-1].parts == (DataPart(1), file)
    assert [message.role for message in served.get(task.id).history] == [Role.USER, Role.AGENT]


def test_an_artifact_of_more_than_a_mebibyte_is_not_repeated(serve):
    def handler(message, context):
        yield "a" * 1024 * 1024
        yield "b"

    served = serve(handler)
    first, *events = [item.event for item in collect(served.stream("go"))]
    chunks = [event for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert [(chunk.append, chunk.last_chunk) for chunk in chunks] == [(False, False), (True, False), (True, True)]
    assert chunks[-1].artifact.parts == (TextPart(""),)
    assert served.get(first.id).text == "a" * 1024 * 1024 + "b"


def test_any_iterable_can_be_streamed_and_is_closed(serve):
    class Chunks:
        def __init__(self):
            self.left, self.closed = ["a", "b"], False

        def __iter__(self):
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            return self.left.pop(0)

        def close(self):
            self.closed = True

    chunks = Chunks()
    assert effect(serve(lambda message, context: StreamingResult(chunks)).send())[2:] == (
        [(TextPart("ab"),)],
        ["agent: ab"],
    )
    assert chunks.closed


@pytest.mark.slow
def test_ten_thousand_chunks_arrive_whole(serve):
    def handler(message, context):
        for number in range(10_000):
            yield f"{number},"

    served = serve(handler)
    items = collect(served.stream())
    text = "".join(f"{number}," for number in range(10_000))
    task = served.get(items[0].event.id)
    assert (len(items), task.text, task.history[-1].text) == (10_003, text, text)
    assert [item.number for item in items[1:]] == sorted({item.number for item in items[1:]})


# -- what is none of these ----------------------------------------------------------------------------------------------

WRONG = {
    "a number": (lambda context: 5, "not int"),
    "bytes": (lambda context: b"raw", "not bytes"),
    "a class": (lambda context: Order, "not the class Order; give an instance"),
    "a list of numbers": (lambda context: [1, 2], "not int"),
    "an empty list": (lambda context: [], "at least one part"),
    "an object": (lambda context: object(), "not object"),
    "text where parts belong": (lambda context: Artifact(parts="text"), "artifact.parts: expected a tuple"),
    "strings for parts": (lambda context: Artifact(parts=("text",)), r"artifact.parts\[0\]: expected a part, not str"),
    "no parts": (lambda context: Artifact(parts=()), "needs at least one part"),
    "a number for a text": (lambda context: TextPart(5), r"artifact.parts\[0\].text: expected str, not int"),
    "half a character": (lambda context: "\ud83d", r"artifact.parts\[0\].text: .*lone surrogate"),
    "data that is not JSON": (lambda context: DataPart({"when": date.today()}), r"artifact.parts\[0\].data: not JSON"),
    "data without end": (lambda context: DataPart(float("nan")), r"artifact.parts\[0\].data: not JSON"),
    "a dict that is not JSON": (lambda context: {"file": object()}, "file"),
    "metadata that is not JSON": (
        lambda context: Artifact(parts=(TextPart("x"),), metadata={"f": print}),
        "artifact.metadata: not JSON",
    ),
    "an empty message": (
        lambda context: Message(role=Role.AGENT, parts=()),
        "message.parts: at least one part",
    ),
    "a naive time": (
        lambda context: TaskStatusUpdateEvent(status=TaskStatus(state=S.COMPLETED, timestamp=datetime(2026, 1, 1))),
        "a time zone is needed",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_unreadable_result_fails_the_task_and_is_explained_in_the_log(serve, kind, caplog):
    make, explained = WRONG[kind]
    served = serve(lambda message, context: make(context))
    task = served.send()
    assert task.state is S.FAILED
    assert task.status.message.text.startswith("internal error (id ")
    assert served.get(task.id) == task
    assert re.search(explained, caplog.text), caplog.text


@pytest.mark.parametrize("item", [InputRequired("?"), None, StreamingResult(()), 5])
def test_what_a_generator_cannot_yield_fails_the_task(serve, item, caplog):
    def handler(message, context):
        yield "a"
        yield item

    task = serve(handler).send()
    assert (task.state, task.artifacts[0].text) == (S.FAILED, "a")
    assert "TypeError" in caplog.text


def test_lists_where_tuples_belong_are_taken(serve):
    task = serve(lambda message, context: Artifact(parts=[TextPart("a"), TextPart("b")])).send()
    assert task.artifacts[0].parts == (TextPart("a"), TextPart("b"))
