"""What the bridge makes of the events of an adapter: pieces, answers, memory, questions, usage, ends."""

from __future__ import annotations

import ast
import asyncio
import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Artifact, Client, DataPart, FilePart, Limits, PublicError, Role, Task, TaskState, TextPart
from a2a_sync.agent.dialogue import INTERRUPT
from a2a_sync.integrations.bridge import (
    MAX_FILES,
    USAGE,
    Ask,
    Bridge,
    Data,
    File,
    Final,
    Note,
    Question,
    Refused,
    Remember,
    Text,
    Turn,
    Usage,
    reported_by,
)
from a2a_sync.integrations.mapper import ToolCall, ToolResult
from a2a_sync.types import TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from tests.engine import TIMEOUT, Gate, eventually, texts
from tests.frameworks import BRIDGES, without_framework
from tests.metrics import ROOT, code_lines, docstring_lines

S = TaskState
CANARY = "canary-5a1c"


class Scripted(Bridge):
    """Does what `script` does with a turn."""

    public = {LookupError: (S.REJECTED, "not in the catalogue")}

    def __init__(self, script: Callable[[Turn], Any], **options: Any) -> None:
        super().__init__(None, name="scripted", description="d", **options)
        self.script = script

    def events(self, turn: Turn) -> Any:
        return self.script(turn)


@pytest.fixture(params=["memory", "sqlite"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    made: list[Any] = []

    def serve(script: Any, limits: Limits | None = None, **options: Any) -> Client:
        store = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
        bridge = script if isinstance(script, Bridge) else Scripted(script, **options)
        app = A2AApp(bridge, store=store, limits=limits)
        made.extend((client := Client(app), app))
        return client

    yield serve
    for one in made:
        one.close()


def send(client: Client, message: Any = "hi", **options: Any) -> Task:
    task = client.send(message, timeout=TIMEOUT, **options).task
    return client.get_task(task.id)


def pieces(client: Client) -> list[tuple[bool, bool, str]]:
    with client.stream("go") as stream:
        events = [event for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    return [(event.append, event.last_chunk, event.artifact.text) for event in events]


def test_an_ended_run_keeps_no_message_until_a_garbage_collection(serve: Any) -> None:
    """15 messages of 2 MB, with 248,000 small objects each, took 1.6 GB."""
    contexts: list[weakref.ref[Any]] = []

    async def script(turn: Turn) -> Any:
        contexts.append(weakref.ref(turn.context))
        yield Text("done")

    client = serve(script)
    gc.collect()
    gc.disable()
    try:
        # What a thread has done last may be in its frames.
        for _ in range(5):
            assert send(client).text == "done"
        eventually(lambda: sum(one() is not None for one in contexts) <= 1, "the end of the contexts")
    finally:
        gc.enable()


# -- the answer ---------------------------------------------------------------------------------------------------------


def test_text_is_streamed_and_ends_as_one_artifact_and_one_message(serve: Any) -> None:
    async def script(turn: Turn) -> Any:
        for word in ("one ", "two ", "three"):
            yield Text(word)

    client = serve(script, interval=0)
    assert pieces(client) == [
        (False, False, "one "),
        (True, False, "two "),
        (True, False, "three"),
        (False, True, "one two three"),
    ]
    task = send(client)
    assert [(artifact.name, artifact.parts) for artifact in task.artifacts] == [
        ("result", (TextPart("one two three"),))
    ]
    assert texts(task.history) == ["user: hi", "agent: one two three"]


@pytest.mark.parametrize(
    ("options", "by_adk", "repeated"),
    [
        ({}, False, False),
        ({"status_text": True}, True, True),
        ({"status_text": "auto"}, False, True),
        ({"status_text": "auto"}, True, False),
    ],
)
def test_the_final_status_repeats_the_text_if_that_is_wanted(
    serve: Any, options: Any, by_adk: bool, repeated: bool
) -> None:
    def script(turn: Turn) -> Any:
        yield Text("five")
        yield Data({"amount": 5})

    task = send(serve(script, **options), [TextPart("hi", metadata={"adk_type": "text"} if by_adk else {})])
    message = task.status.message
    assert (message.parts if message else None) == ((TextPart("five"),) if repeated else None)


def test_characters_within_the_interval_are_joined(serve: Any) -> None:
    def script(turn: Turn) -> Any:
        for _ in range(1000):
            yield Text("x")

    found = pieces(serve(script, interval=TIMEOUT))
    assert [len(text) for _, _, text in found] == [1, 999, 1000]


def test_an_asynchronous_adapter_is_not_held_up_by_its_pieces(serve: Any) -> None:
    async def script(turn: Turn) -> Any:
        for _ in range(1000):
            yield Text("x")
            await asyncio.sleep(0)

    found = pieces(serve(script, interval=TIMEOUT * 9))
    # A piece is sent early only where 257 events wait for the thread of the run.
    assert (found[-1][1], len(found[-1][2])) == (True, 1000)
    assert len(found) <= 6, [len(text) for _, _, text in found]


def test_a_piece_does_not_wait_for_the_next_event(serve: Any) -> None:
    gate = Gate()

    def script(turn: Turn) -> Any:
        yield Text("a")
        yield Text("b")
        gate.block()

    client = serve(script)
    with client.stream("go") as stream:
        for _ in stream:
            if stream.text == "ab":
                gate.open.set()
    assert stream.text == "ab"


def test_the_text_of_an_earlier_message_becomes_history(serve: Any) -> None:
    def script(turn: Turn) -> Any:
        yield Text("Let me see", "m1")
        yield Text("It is ", "m2")
        yield Text("5", "m2")

    task = send(serve(script))
    assert texts(task.history) == ["user: hi", "agent: Let me see", "agent: It is 5"]
    assert [artifact.text for artifact in task.artifacts] == ["It is 5"]


def test_the_final_text_replaces_pieces_that_differ(serve: Any) -> None:
    def script(turn: Turn) -> Any:
        yield Text("Draft")
        yield Final("Whole")

    task = send(serve(script))
    assert ([artifact.text for artifact in task.artifacts], texts(task.history)[1:]) == (["Whole"], ["agent: Whole"])


def test_data_and_files(serve: Any) -> None:
    def script(turn: Turn) -> Any:
        yield File(FilePart(raw=b"x", filename="a.bin"))
        yield Data({"n": 5})
        yield Final("five")

    task = send(serve(script))
    assert [(artifact.name, artifact.parts[-1]) for artifact in task.artifacts] == [
        ("a.bin", FilePart(raw=b"x", filename="a.bin")),
        ("result", DataPart({"n": 5})),
    ]


def test_a_run_without_an_answer_is_completed(serve: Any) -> None:
    task = send(serve(lambda turn: iter(())))
    assert (task.state, task.artifacts, texts(task.history)) == (S.COMPLETED, (), ["user: hi"])


def test_events_of_the_protocol_are_emitted_as_they_are(serve: Any) -> None:
    def script(turn: Turn) -> Any:
        yield turn.context.agent_message("first")
        yield TaskArtifactUpdateEvent(artifact=Artifact(name="own", parts=(TextPart("x"),)), last_chunk=True)
        yield 5

    task = send(serve(script))
    assert (texts(task.history)[1:], [artifact.name for artifact in task.artifacts]) == (["agent: first"], ["own"])
    assert task.state is S.FAILED


@pytest.mark.parametrize("shown", [False, True])
def test_tools_are_hidden_unless_they_are_to_be_shown(serve: Any, shown: bool) -> None:
    def script(turn: Turn) -> Any:
        yield ToolCall(id="c1", name="sum", arguments={"a": 1})
        yield ToolResult(tool_call_id="c1", content="3")
        yield Note("half")
        yield Final("done")

    with serve(script, expose_tools=shown).stream("go") as stream:
        messages = [event.status.message for event in stream if isinstance(event, TaskStatusUpdateEvent)]
    data = [part.data for message in messages if message for part in message.parts if isinstance(part, DataPart)]
    assert [message.text for message in messages if message][-1:] == ["half"]
    assert [one["type"] for one in data] == (["tool_call", "tool_result"] if shown else [])


# -- ends ---------------------------------------------------------------------------------------------------------------


def test_a_piece_of_an_asynchronous_adapter_does_not_wait_for_the_next_event(serve: Any) -> None:
    go = threading.Event()

    async def script(turn: Turn) -> Any:
        yield Text("a")
        await asyncio.sleep(0)
        yield Text("b")
        await asyncio.to_thread(go.wait, TIMEOUT)

    client = serve(script)
    with client.stream("go") as stream:
        for _ in stream:
            if stream.text == "ab":
                go.set()
    assert go.is_set()


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (Refused("too long", S.REJECTED), S.REJECTED, "too long"),
        (KeyError(CANARY), S.REJECTED, "not in the catalogue"),
        (PublicError("no rates"), S.FAILED, "no rates"),
    ],
)
def test_known_exceptions_end_the_task_with_a_public_text(serve: Any, error: Any, state: TaskState, text: str) -> None:
    async def script(turn: Turn) -> Any:
        yield Text("so far")
        raise error

    task = send(serve(script))
    assert (task.state, task.status.message.text) == (state, text)
    assert CANARY not in task.to_json()


def test_other_exceptions_deps_and_memory_are_hidden(serve: Any) -> None:
    async def script(turn: Turn) -> Any:
        yield Remember([CANARY])
        raise ValueError(f"{CANARY} {turn.deps}")

    task = send(serve(script, deps=lambda context: CANARY))
    assert (task.state, task.text.partition(" (")[0]) == (S.FAILED, "internal error")
    assert CANARY not in task.to_json()


def test_a_message_with_too_many_files_is_rejected_before_the_framework_reads_it(serve: Any) -> None:
    read: list[int] = []

    async def script(turn: Turn) -> Any:
        read.append(len(turn.message.parts))
        yield Final("seen")

    client = serve(script)
    files = [FilePart(raw=b"x", media_type="text/plain", filename=f"{number}.txt") for number in range(MAX_FILES + 1)]
    assert send(client, files[:MAX_FILES]).state is S.COMPLETED
    task = send(client, files)
    assert (task.state, f"may have {MAX_FILES} files" in task.text) == (S.REJECTED, True)
    assert read == [MAX_FILES]


@pytest.mark.parametrize("asks", [False, True], ids=["memory", "pending"])
def test_a_conversation_that_is_too_long_is_no_internal_error(
    serve: Any, asks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(turn: Turn) -> Any:
        yield Ask([Question(id="q", text="and?")], turn.text()) if asks else Remember([turn.text()])
        yield Final("answer")

    client = serve(script, limits=Limits(max_context_memory_bytes=1000))
    task = send(client, "x" * 1001)
    assert (task.state, task.text) == (S.FAILED, "the conversation is too long for this agent; start a new one")
    assert not caplog.records
    assert send(client, "x" * 10).state is (S.INPUT_REQUIRED if asks else S.COMPLETED)


def test_a_canceled_run_stops_its_task_and_leaves_the_memory(serve: Any) -> None:
    began, stopped, seen = threading.Event(), threading.Event(), []

    async def script(turn: Turn) -> Any:
        seen.append(list(turn.memory))
        yield Remember([turn.text()])
        if turn.text() == "slow":
            began.set()
            try:
                await asyncio.sleep(TIMEOUT)
            finally:
                stopped.set()

    client = serve(script)
    send(client, "one", context_id="c")
    with client.stream("slow", context_id="c") as stream:
        next(iter(stream))
        assert began.wait(TIMEOUT)
        client.cancel_task(stream.task_id)
    assert stopped.wait(60)
    send(client, "two", context_id="c")
    assert seen == [[], ["one"], ["one"]]


def test_events_may_be_reported_by_calls(serve: Any) -> None:
    async def run(report: Callable[[Any], None]) -> None:
        report(Text("one "))
        await asyncio.sleep(0)
        report(Text("two"))
        report(Remember(["kept"]))

    client = serve(lambda turn: reported_by(run))
    assert [pieces(client)[-1], send(client).text] == [(False, True, "one two"), "one two"]


def test_an_exception_of_reported_events_ends_the_run(serve: Any) -> None:
    async def run(report: Callable[[Any], None]) -> None:
        report(Text("so far"))
        raise Refused("too long", S.REJECTED)

    task = send(serve(lambda turn: reported_by(run)))
    assert (task.state, task.status.message.text) == (S.REJECTED, "too long")


def test_a_cancel_stops_the_task_that_reports(serve: Any) -> None:
    began, stopped = threading.Event(), threading.Event()

    async def run(report: Callable[[Any], None]) -> None:
        report(Text("one"))
        began.set()
        try:
            await asyncio.sleep(TIMEOUT)
        finally:
            stopped.set()

    client = serve(lambda turn: reported_by(run))
    task = client.send("slow", return_immediately=True).task
    assert began.wait(TIMEOUT)
    client.cancel_task(task.id)
    assert stopped.wait(TIMEOUT)


# -- memory -------------------------------------------------------------------------------------------------------------


def test_four_tasks_at_once_are_all_remembered(serve: Any) -> None:
    together = threading.Barrier(4)
    seen: list[Any] = []

    def script(turn: Turn) -> Any:
        if turn.text() == "list":
            seen.append(turn.memory)
            return
        yield Remember([turn.text()])
        together.wait(TIMEOUT)
        yield Remember(lambda memory: [*memory, turn.text().upper()])

    client = serve(script)
    tasks = [client.send(f"t{n}", context_id="c", return_immediately=True).task for n in range(4)]
    for task in tasks:
        eventually(lambda task=task: client.get_task(task.id).state is S.COMPLETED)
    send(client, "list", context_id="c")
    assert sorted(seen[0]) == ["T0", "T1", "T2", "T3", "t0", "t1", "t2", "t3"]


# -- questions ----------------------------------------------------------------------------------------------------------

BUY = Question(id="b", kind="approval", text="Buy it?", tool="buy", arguments={"n": 2})
SEND = Question(id="s", kind="approval", text="Send it?")
SIZE = Question(id="q", text="Which size?", options=("small", "large"))


def asking(*questions: Question) -> Callable[[Turn], Any]:
    def script(turn: Turn) -> Any:
        yield Usage(1, 2, 1)
        if not turn.resumes:
            yield Text("One moment")
            yield Ask(questions, pending={"step": CANARY})
        else:
            assert turn.pending == {"step": CANARY}
            yield Final(repr(dict(turn.answers)))

    return script


def test_a_question_has_its_data_and_what_was_said_becomes_history(serve: Any) -> None:
    client = serve(asking(BUY, SIZE))
    task = send(client)
    message = task.status.message
    assert (task.state, message.text) == (S.INPUT_REQUIRED, "Buy it?\nWhich size?")
    assert [part.data for part in message.parts[1:]] == [
        {
            "type": "interrupt",
            "id": "b",
            "kind": "approval",
            "text": "Buy it?",
            "tool": "buy",
            "arguments": {"n": 2},
        },
        {"type": "interrupt", "id": "q", "kind": "question", "text": "Which size?", "options": ["small", "large"]},
    ]
    assert message.metadata[INTERRUPT]["ids"] == ["b", "q"]
    assert texts(task.history)[:2] == ["user: hi", "agent: One moment"]
    assert CANARY not in task.to_json()
    done = send(client, DataPart({"b": True, "q": "large"}), task_id=task.id)
    assert [artifact.artifact_id for artifact in done.artifacts] == [message.metadata[INTERRUPT]["artifact"]]
    assert done.metadata[USAGE] == {"input_tokens": 2, "output_tokens": 4, "requests": 2}


@pytest.mark.parametrize(
    ("questions", "answer", "expected"),
    [
        ((SIZE,), "large, please", {"q": "large, please"}),
        ((SIZE,), DataPart({"size": 3}), {"q": {"size": 3}}),
        ((SIZE,), DataPart({"q": 3}), {"q": 3}),
        ((BUY,), "yes, do it", {"b": True}),
        ((BUY, SEND), "no", {"b": False, "s": False}),
        ((BUY, SEND), DataPart({"answers": {"b": True, "s": "no"}}), {"b": True, "s": False}),
        ((BUY,), DataPart({"interruptResponse": {"interruptId": "b", "response": "y"}}), {"b": True}),
        (
            (BUY, SEND),
            DataPart([{"interruptResponse": {"interruptId": i, "response": True}} for i in "bs"]),
            {"b": True, "s": True},
        ),
    ],
)
def test_an_answer_names_its_question_or_can_only_mean_one(
    serve: Any, questions: Any, answer: Any, expected: Any
) -> None:
    client = serve(asking(*questions))
    task = send(client, answer, task_id=send(client).id)
    assert (task.state, task.text) == (S.COMPLETED, repr(expected))


@pytest.mark.parametrize("answer", ["ok, what would that buy", "I refuse, ok", "show me the true price", "ok nein"])
@pytest.mark.parametrize("as_data", [False, True])
def test_words_beside_an_agreement_approve_nothing(serve: Any, answer: str, as_data: bool) -> None:
    client = serve(asking(BUY))
    task = send(client, DataPart({"b": answer}) if as_data else answer, task_id=send(client).id)
    assert (task.state, task.status.message.text) == (S.INPUT_REQUIRED, "Buy it?")


def test_questions_that_stay_open_are_asked_again_and_answers_are_kept(serve: Any) -> None:
    client = serve(asking(BUY, SIZE))
    task = send(client)
    asked = send(client, "yes", task_id=task.id)
    assert (asked.state, asked.status.message.text) == (S.INPUT_REQUIRED, "Which size?")
    assert send(client, "small", task_id=task.id).text == "{'b': True, 'q': 'small'}"


@pytest.mark.parametrize(
    "value",
    [
        {"approved": False},
        {"answer": "no"},
        [False],
        ["no"],
        0,
        1,
        -1,
        0.5,
        {},
        [],
        {"type": "edit"},
        {"type": 1},
        "not ok",
    ],
)
def test_an_approval_is_true_or_false(value: Any, serve: Any) -> None:
    client = serve(asking(BUY))
    asked = send(client, DataPart({"b": value}), task_id=send(client).id)
    assert (asked.state, asked.status.message.text) == (S.INPUT_REQUIRED, "Buy it?")


@pytest.mark.parametrize(("kind", "expected"), [("approve", True), ("reject", False)])
def test_a_decision_is_true_or_false_where_the_framework_has_none(kind: str, expected: bool, serve: Any) -> None:
    client = serve(asking(BUY))
    decided = send(client, DataPart({"b": {"type": kind, "message": "because"}}), task_id=send(client).id)
    assert decided.text == repr({"b": expected})


def test_an_approval_is_not_guessed(serve: Any) -> None:
    client = serve(asking(BUY))
    task = send(client)
    asked = send(client, "what does it cost?", task_id=task.id)
    assert (asked.state, asked.status.message.text) == (S.INPUT_REQUIRED, "Buy it?")


@pytest.mark.parametrize("serve", ["sqlite"], indirect=True)
def test_a_question_is_answered_in_another_app(serve: Any) -> None:
    task = send(serve(asking(BUY)))
    assert send(serve(asking(BUY)), "yes", task_id=task.id).text == "{'b': True}"


def test_a_new_task_while_one_waits_starts_from_the_memory(serve: Any) -> None:
    def script(turn: Turn) -> Any:
        yield Remember([turn.text()])
        yield Ask([SIZE]) if turn.text() == "ask" else Final(repr(turn.memory))

    client = serve(script)
    waits = send(client, "ask", context_id="c")
    assert send(client, "other", context_id="c").text == "['ask']"
    assert client.get_task(waits.id).state is S.INPUT_REQUIRED


# -- the agent ----------------------------------------------------------------------------------------------------------


def test_a_factory_is_called_once_on_the_loop_of_the_runs(serve: Any) -> None:
    made: list[Any] = []

    async def make() -> Any:
        await asyncio.sleep(0)
        made.append(asyncio.get_running_loop())
        if len(made) == 1:
            raise ValueError("not yet")
        return object()

    class Made(Bridge):
        async def events(self, turn: Turn) -> Any:  # type: ignore[override]
            agent = await self.agent()
            yield Final(f"{id(agent)} {asyncio.get_running_loop() is made[-1]}")

    client = serve(Made(make, name="made"))
    assert send(client).state is S.FAILED
    answers = {send(client).text for _ in range(3)}
    assert (len(made), len(answers), answers.pop().endswith("True")) == (2, 1, True)


def test_a_bridge_describes_itself(serve: Any) -> None:
    client = serve(lambda turn: iter(()), skills={"sum": "Adds numbers"}, input_modes=["text/plain"])
    card = client.card()
    assert (card.name, card.description, [skill.id for skill in card.skills]) == ("scripted", "d", ["sum"])
    assert tuple(card.default_input_modes) == ("text/plain",)


def test_the_parts_of_a_turn_are_its_files_and_one_text_between_two_of_them(serve: Any) -> None:
    seen: list[Any] = []

    def script(turn: Turn) -> Any:
        seen.extend([[*turn.parts()], [*turn.parts(urls=False)]])
        return iter([Final("done")])

    image, page = FilePart(raw=b"x", media_type="image/png"), FilePart(url="https://a.test/b", media_type="text/html")
    given = ["a", DataPart({"n": 1}), FilePart(url="gs://b", media_type="image/png"), image, "c", page, "d"]
    serve(script, input_modes=["*/*"]).send(given)
    before = [TextPart('a\n{"n":1}\ngs://b'), image]
    assert seen == [
        [*before, TextPart("c"), page, TextPart("d")],
        [*before, TextPart("c\nhttps://a.test/b\nd")],
    ]


def test_the_text_of_a_turn_has_data_and_addresses(serve: Any) -> None:
    client = serve(lambda turn: iter([Final(turn.text())]), input_modes=["*/*"])
    parts = ["look", DataPart({"a": 1}), FilePart(url="https://example.com/a"), FilePart(raw=b"x")]
    assert send(client, parts).text == 'look\n{"a":1}\nhttps://example.com/a'
    assert send(client, parts).history[-1].role is Role.AGENT


@pytest.mark.parametrize("module", sorted(BRIDGES))
def test_without_its_framework_a_bridge_names_the_extra(module: str) -> None:
    if module not in without_framework():
        pytest.skip("the framework is installed")
    with pytest.raises(ImportError, match=re.escape(f"pip install 'a2a-sync[{BRIDGES[module][1]}]'")):
        import_module(module)


# -- the adapters -------------------------------------------------------------------------------------------------------


def lines_of(module: str) -> dict[str, int]:
    """The lines of code of an adapter by the part that they are for, without its imports."""
    path = ROOT / "a2a_sync/integrations" / f"{module}.py"
    text = path.read_text()
    tree = ast.parse(text)
    lines = code_lines(text, docstring_lines(tree))
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Try) or ast.unparse(node).startswith("__all__ ="):
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    found = {"bridge": 0, "remote agents as tools": 0, "remote agents as models": 0}
    part = "bridge"
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# -- "):
            part = title if (title := line.strip("# -")) in found else "bridge"
        found[part] += number in lines
    return found


def test_the_page_has_the_size_of_each_adapter() -> None:
    table = (ROOT / "docs/explanation/frameworks.md").read_text().partition("## Size of the adapters")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    listed = {row[0].strip("`"): [int(re.split(r"\D", cell)[0] or 0) for cell in row[1:]] for row in rows}
    assert listed == {module: list(lines_of(module).values()) for module in listed}
    assert {module.rpartition(".")[2] for module in BRIDGES} <= set(listed)
