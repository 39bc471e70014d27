"""System A: declarative agents with their own runtime. The ids are those of docs/reference/feature-comparison.md."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    AgentSkill,
    Artifact,
    Client,
    DataPart,
    Extension,
    Failed,
    FilePart,
    InputRequired,
    MemoryStore,
    Message,
    PublicError,
    Rejected,
    Role,
    StreamingResult,
    TaskArtifactUpdateEvent,
    TaskNotFoundError,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a_sync.agent.executor import TaskCancelled
from a2a_sync.auth import ApiKeyAuth, BearerAuth, Principal
from a2a_sync.card import AgentProvider, create_agent_card
from a2a_sync.errors import InvalidParamsError, TaskNotCancelableError, TransportTimeoutError, UnsupportedOperationError
from a2a_sync.multiagent import AgentEvents, AgentSupervisor
from a2a_sync.testing import FakeClock, wsgi_session
from tests.engine import TIMEOUT, Background, Gate, eventually, texts

S = TaskState


def get(app, path, **headers):
    return wsgi_session(app).get(f"http://agent.test{path}", headers=headers, timeout=TIMEOUT)


# -- declaration --------------------------------------------------------------------------------------------------------


class Greeter(Agent):
    name = "greeter"
    description = "Greets users"
    version = "2.1"
    skills: ClassVar = [AgentSkill(id="greet", name="Greet", description="Says hello", tags=["hello"])]

    def handle_message(self, message, context):
        return f"Hello, {message.text}!"


DECLARED = {
    "description": "Greets users",
    "version": "2.1",
    "skills": [AgentSkill(id="greet", name="Greet", description="Says hello", tags=["hello"])],
    "input_modes": ("text/plain",),
    "output_modes": ("text/markdown",),
    "provider": AgentProvider(organization="o", url="https://example.com/"),
    "documentation_url": "https://example.com/docs",
    "icon_url": "https://example.com/i.png",
}


@pytest.mark.parametrize("way", ["class", "arguments"])
def test_a1_an_agent_is_declared_by_attributes(way):
    agent = type("Declared", (Agent,), {"name": "a", **DECLARED})() if way == "class" else Agent("a", **DECLARED)
    agent.message(lambda message, context: "ok")
    with agent:
        card = get(A2AApp(agent), "/.well-known/agent-card.json").json()
    assert {name: card[name] for name in ("name", "description", "version", "documentationUrl", "iconUrl")} == {
        "name": "a",
        "description": "Greets users",
        "version": "2.1",
        "documentationUrl": "https://example.com/docs",
        "iconUrl": "https://example.com/i.png",
    }
    assert (card["defaultInputModes"], card["defaultOutputModes"]) == (["text/plain"], ["text/markdown"])
    assert card["provider"] == {"organization": "o", "url": "https://example.com/"}
    assert [skill["id"] for skill in card["skills"]] == ["greet"]


def test_a1_only_the_name_is_required_and_unknown_attributes_are_refused():
    bare = Agent("bare").describe()
    assert (bare.name, bare.description, bare.version, bare.skills) == ("bare", "", "0.1.0", ())
    with pytest.raises(TypeError, match="no attribute 'shoe_size'"):
        Agent("bare", shoe_size=43)


def test_a2_the_card_is_a_method_that_can_be_overridden():
    class Fancy(Greeter):
        def describe(self):
            return Agent("by hand", description="Written by hand").describe()

    with Fancy() as agent:
        assert agent.agent_card().name == "by hand"
        assert agent.call("Ada").text == "Hello, Ada!"


def test_a3_one_callback_is_sufficient(make):
    assert make(lambda message, context: message.text[::-1]).call("abc").text == "cba"


def test_a4_a_cancel_callback_may_refuse_the_cancel(make):
    agent = make(lambda message, context: InputRequired("?"))
    assert agent.cancel(agent.call("x").id).state is S.CANCELED

    @agent.on_cancel
    def keep(context):
        raise TaskNotCancelableError("too late to stop")

    task = agent.call("x")
    with pytest.raises(TaskNotCancelableError, match="too late to stop"):
        agent.cancel(task.id)
    assert agent.get_task(task.id).state is S.INPUT_REQUIRED


def test_a5_the_members_of_a_card_and_a_skill():
    (skill,) = Greeter().describe().skills
    assert (skill.id, skill.name, skill.description, skill.tags) == ("greet", "Greet", "Says hello", ("hello",))
    with Greeter() as agent:
        public = get(A2AApp(agent), "/.well-known/agent-card.json").json()
    assert (public["name"], public["version"], public["skills"][0]["tags"]) == ("greeter", "2.1", ["hello"])


def test_a6_the_context_has_ids_history_metadata_and_extensions(make):
    seen = {}

    def handler(message, context):
        seen.update(task=context.task_id, context=context.context_id, metadata=dict(context.metadata))
        seen.update(history=texts(context.history), extensions=dict(context.extensions))
        return "ok"

    agent = make(handler, extensions=[Extension("urn:x")])
    task = Client(agent).send("hi", metadata={"k": 1}, extensions=["urn:x"])
    assert seen["task"] == task.id
    assert seen["context"] == task.context_id != ""  # generated if the caller sends none
    assert (seen["metadata"], seen["history"], seen["extensions"]) == ({"k": 1}, ["user: hi"], {"urn:x": True})


#: By kind: the handler's result (or a function that creates it), the state, the parts of each artifact, the status text.
REPLIES = {
    "text": ("done", S.COMPLETED, [(TextPart("done"),)], None),
    "part": (TextPart("done"), S.COMPLETED, [(TextPart("done"),)], None),
    "parts": (["do", DataPart(1)], S.COMPLETED, [(TextPart("do"), DataPart(1))], None),
    "stream": (lambda: StreamingResult(["do", "ne"]), S.COMPLETED, [(TextPart("done"),)], None),
    "generator": (lambda: (piece for piece in ("do", "ne")), S.COMPLETED, [(TextPart("done"),)], None),
    "input": (InputRequired("done"), S.INPUT_REQUIRED, [], "done"),
    "error": (Failed("done"), S.FAILED, [], "done"),
}


@pytest.mark.parametrize("kind", REPLIES)
def test_a7_the_result_of_a_handler_determines_the_outcome(make, kind):
    reply, state, artifacts, status = REPLIES[kind]
    agent = make(lambda message, context: reply() if callable(reply) else reply)
    task = agent.call("go")
    assert (task.state, task.status.message and task.status.message.text) == (state, status)
    assert [tuple(artifact.parts) for artifact in task.artifacts] == artifacts
    with agent.stream("go") as stream:
        events = list(stream)
    live = [event.artifact.text for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    whole = ["".join(part.text for part in parts if isinstance(part, TextPart)) for parts in artifacts]
    assert stream.task.state is state
    # A stream ends with its whole artifact.
    assert live == (["do", "ne", *whole] if kind in ("stream", "generator") else whole)


def test_a8_the_text_of_a_message_joins_its_text_parts():
    message = Message(role=Role.USER, parts=(TextPart("one"), DataPart({}), TextPart("two")))
    assert message.text == "one\ntwo"
    assert Message(role=Role.USER, parts=(DataPart({}),)).text == ""


# -- the runtime --------------------------------------------------------------------------------------------------------


def test_a9_the_runtime_manages_states_history_and_storage(make):
    store = MemoryStore()
    agent = make(lambda message, context: "ok").start(store=store)
    task = agent.call("hi")
    with A2AApp(agent, store=store) as app, Client(app) as client:
        kept = client.get_task(task.id)
    assert (kept.state, texts(kept.history), kept.artifacts) == (S.COMPLETED, ["user: hi", "agent: ok"], task.artifacts)


def states_of(agent, text="go", task_id=None):
    with agent.stream(text, task_id=task_id) as stream:
        seen = [event.status.state for event in stream if hasattr(event, "status")]
    return stream.task, seen


def test_a10_state_transitions(make):
    def handler(message, context):
        if message.text == "ask":
            return InputRequired("?")
        if message.text == "fail":
            return Failed("no")
        return "ok"

    agent = make(handler)
    events, received = AgentEvents(), []
    events.on("task.transition", lambda event: received.append((event.before, event.state)))
    agent.start(**events.watch("a"))
    asked = agent.call("ask")
    agent.call("go", task_id=asked.id)
    agent.call("fail")
    agent.cancel(agent.call("ask").id)
    assert events.flush(TIMEOUT)
    begin = [(S.UNSPECIFIED, S.SUBMITTED), (S.SUBMITTED, S.WORKING)]
    assert received == [
        *begin,
        (S.WORKING, S.INPUT_REQUIRED),
        (S.INPUT_REQUIRED, S.WORKING),
        (S.WORKING, S.COMPLETED),
        *begin,
        (S.WORKING, S.FAILED),
        *begin,
        (S.WORKING, S.INPUT_REQUIRED),
        (S.INPUT_REQUIRED, S.CANCELED),
    ]


class Emitting:
    """An executor that emits these events in one batch."""

    def __init__(self, *events):
        self._events = events

    def execute(self, context):
        context.emit(*self._events)


def status(state):
    return TaskStatusUpdateEvent(status=TaskStatus(state=state))


FOLLOWERS = {
    "a state": status(S.WORKING),
    "a question": status(S.INPUT_REQUIRED),
    "the same end": status(S.COMPLETED),
    "an artifact": TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart("late"),))),
    "a message": Message(role=Role.AGENT, parts=(TextPart("late"),)),
}


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("end", [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED])
def test_a10_a_terminal_state_is_final(end, follower):
    """The whole batch is refused and the task fails, because the executor has a bug."""
    card = create_agent_card("a", "Emits", skills={"x": "X"})
    with A2AApp(Emitting(status(end), FOLLOWERS[follower]), card=card) as app, Client(app) as client:
        task = client.send("go")
        assert (task.state, task.artifacts, texts(task.history)) == (S.FAILED, (), ["user: go"])
        with pytest.raises(UnsupportedOperationError):
            client.send("more", task_id=task.id)


@pytest.mark.parametrize("back", [S.SUBMITTED, S.UNSPECIFIED])
def test_a10_no_state_returns_to_submitted(back):
    card = create_agent_card("a", "Emits", skills={"x": "X"})
    with A2AApp(Emitting(status(back)), card=card) as app, Client(app) as client:
        assert client.send("go").state is S.FAILED


def test_a11_a_reply_is_an_artifact_and_a_message_in_the_history(make):
    def handler(message, context):
        return InputRequired("more?", metadata={}) if message.text == "ask" else ["a", DataPart(1)]

    agent = make(handler)
    task = agent.call("go")
    (artifact,) = task.artifacts
    assert artifact.parts == (TextPart("a"), DataPart(1))
    assert (task.state, task.status.message) == (S.COMPLETED, None)
    assert task.history[-1].role is Role.AGENT
    assert task.history[-1].parts == artifact.parts


def test_a11_artifacts_of_several_turns_accumulate(make):
    def handler(message, context):
        if message.text == "first":
            context.artifact("first").write("one", last=True)
            return InputRequired("more?")
        return Artifact(name="second", parts=(TextPart("two"),))

    agent = make(handler)
    task = agent.call("first")
    task = agent.call("second", task_id=task.id)
    assert [(artifact.name, artifact.text) for artifact in task.artifacts] == [("first", "one"), ("second", "two")]


def test_a12_a_question_is_one_message_in_history_and_status(make):
    task = make(lambda message, context: InputRequired("Which size?")).call("pizza")
    assert (task.state, task.artifacts) == (S.INPUT_REQUIRED, ())
    assert task.status.message == task.history[-1]
    assert task.text == "Which size?"


def test_a13_a_stream_produces_one_artifact_and_one_message(make):
    gates = {number: Gate() for number in "23"}

    def count():
        for number in "123":
            if number in gates:
                gates[number].block()
            yield f"{number} "

    agent = make(lambda message, context: StreamingResult(count()))
    pieces, states = [], []
    with agent.stream("count to 3") as stream:
        for event in stream:
            if isinstance(event, TaskArtifactUpdateEvent):
                pieces.append(event)
                # Each chunk arrives before the next one is produced.
                if (following := gates.get(str(len(pieces) + 1))) is not None:
                    following.open.set()
            elif isinstance(event, TaskStatusUpdateEvent):
                states.append(event.status.state)
    assert [piece.artifact.text for piece in pieces][:3] == ["1 ", "2 ", "3 "]
    assert len({piece.artifact.artifact_id for piece in pieces}) == 1
    assert [piece.append for piece in pieces][:3] == [False, True, True]
    assert [piece.last_chunk for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert states[-1] is S.COMPLETED
    stored = agent.get_task(stream.task.id)
    assert (stored.state, stored.status.message) == (S.COMPLETED, None)
    assert [artifact.text for artifact in stored.artifacts] == ["1 2 3 "]
    assert stream.task.artifacts == stored.artifacts
    assert texts(stored.history) == ["user: count to 3", "agent: 1 2 3 "]


@pytest.mark.parametrize("way", ["returned", "raised", "after a piece"])
def test_a14_the_reason_of_an_error_is_in_the_status_only(make, way):
    def pieces():
        yield "half"
        raise PublicError("out of dough")

    def handler(message, context):
        if way == "raised":
            raise PublicError("out of dough")
        return Failed("out of dough") if way == "returned" else pieces()

    agent = make(handler)
    made = ["half"] if way == "after a piece" else []
    with agent.stream("pizza") as stream:
        last = list(stream)[-1]
    assert (last.status.state, last.status.message.text) == (S.FAILED, "out of dough")
    task = agent.get_task(stream.task.id)
    assert (task.state, task.status.message.text) == (S.FAILED, "out of dough")
    assert "out of dough" not in "".join(texts(task.history))
    assert texts(task.history)[0] == "user: pizza"
    assert [artifact.text for artifact in task.artifacts] == made


def test_a14_the_text_of_other_exceptions_is_not_sent(make):
    def handler(message, context):
        raise ValueError("password: 1234")

    task = make(handler).call("pizza")
    assert (task.state, "1234" in task.to_json()) == (S.FAILED, False)


def test_a15_the_history_is_the_transcript_and_the_status_message_the_prompt(make):
    def handler(message, context):
        context.update("looking it up")
        return InputRequired("Which size?") if len(context.history) == 1 else "Done."

    agent = make(handler)
    task = agent.call("pizza")
    assert (task.status.message.text, texts(task.history)) == ("Which size?", ["user: pizza", "agent: Which size?"])
    task = agent.call("large", task_id=task.id)
    assert task.status.message is None
    assert texts(task.history)[2:] == ["user: large", "agent: Done."]


def test_a16_an_exception_fails_only_its_own_task(make):
    gate = Gate()

    def handler(message, context):
        if message.text == "boom":
            raise ValueError("secret")
        gate.block()
        return "fine"

    agent = make(handler)
    other = Background(lambda: agent.call("wait"))
    gate.wait()
    failed = agent.call("boom")
    gate.open.set()
    assert (failed.state, "secret" in failed.text) == (S.FAILED, False)
    assert other.result().text == "fine"
    assert agent.get_task(failed.id).state is S.FAILED


def test_a17_an_exhausted_stream_completes_and_a_failing_one_fails(make):
    def handler(message, context):
        yield "a"
        if message.text == "break":
            raise ValueError

    agent = make(handler)
    assert states_of(agent)[1][-1] is S.COMPLETED
    task, states = states_of(agent, "break")
    assert states[-1] is S.FAILED
    assert [artifact.text for artifact in task.artifacts] == ["a"]


def test_a17_the_run_of_a_closed_stream_continues(make):
    gate = Gate()

    def handler(message, context):
        yield "a"
        gate.block()
        yield "b"

    agent = make(handler)
    with agent.stream("go") as stream:
        for event in stream:
            if isinstance(event, TaskArtifactUpdateEvent):
                break
    gate.wait()
    gate.open.set()
    task = eventually(lambda: (task := agent.get_task(stream.task.id)).state.terminal and task)
    assert (task.state, task.text) == (S.COMPLETED, "ab")


def test_a18_a_blocking_send_waits_for_the_whole_stream(make):
    task = make(lambda message, context: (piece for piece in ("a", "b"))).call("go")
    assert (task.state, task.text) == (S.COMPLETED, "ab")
    app = A2AApp(make(lambda message, context: (piece for piece in ("a", "b"))))
    with app, Client("http://agent.test", session=wsgi_session(app)) as client:
        task = client.send("go", return_immediately=True)
        assert client.wait(task.id, timeout=TIMEOUT).text == "ab"


def test_a19_tasks_run_concurrently_and_messages_of_a_task_in_sequence(make):
    both, running, most = threading.Barrier(2), [], []

    def handler(message, context):
        if message.text == "meet":
            both.wait(TIMEOUT)
            return "met"
        running.append(1)
        most.append(len(running))
        context.sleep(0.01)
        running.pop()
        return InputRequired("next?")

    agent = make(handler)
    pair = [Background(lambda: agent.call("meet")) for _ in range(2)]
    assert [one.result().text for one in pair] == ["met", "met"]
    task = agent.call("turn")
    turns = [Background(lambda: agent.call("turn", task_id=task.id)) for _ in range(3)]
    assert [turn.result().state for turn in turns] == [S.INPUT_REQUIRED] * 3
    assert most == [1] * 4


# -- several turns ------------------------------------------------------------------------------------------------------


def pizza(message, context):
    said = [turn.text for turn in context.history if turn.role is Role.USER]
    return InputRequired("Which size?") if len(said) == 1 else f"One {said[1]} {said[0]}"


def test_a20_a_message_with_a_task_id_continues_the_task(make):
    agent = make(pizza)
    first = agent.call("pizza")
    second = agent.call("large", task_id=first.id)
    assert (second.id, second.context_id, second.text) == (first.id, first.context_id, "One large pizza")


def test_a21_only_existing_tasks_that_are_not_terminal_can_be_continued(make):
    agent = make(pizza)
    ended = agent.call("large", task_id=agent.call("pizza").id)
    with pytest.raises(UnsupportedOperationError) as refused:
        agent.call("more", task_id=ended.id)
    assert refused.value.jsonrpc_code == -32004
    with pytest.raises(TaskNotFoundError) as refused:
        agent.call("more", task_id="unknown")
    assert refused.value.jsonrpc_code == -32001


def test_a22_two_turns_are_four_messages_of_one_task(make):
    agent = make(pizza)
    task = agent.call("pizza")
    assert agent.call("large", task_id=task.id).id == task.id
    assert texts(agent.get_task(task.id).history) == [
        "user: pizza",
        "agent: Which size?",
        "user: large",
        "agent: One large pizza",
    ]


# -- calls --------------------------------------------------------------------------------------------------------------


def test_a23_a_call_accepts_text_parts_or_a_message_and_options(make):
    seen = []

    def handler(message, context):
        seen.append((message, context.task_id, context.context_id, dict(context.metadata)))
        return InputRequired("?")

    agent = make(handler)
    parts = (TextPart("one", metadata={"n": 1}), DataPart({"k": [1]}), FilePart(raw=b"\0", filename="a"))
    own = Message(role=Role.USER, parts=parts, message_id="mine", context_id="c", metadata={"m": 1})
    first = agent.call("text", context_id="c", metadata={"k": 1}, timeout=TIMEOUT)
    agent.call(["parts", *parts], task_id=first.id, context_id="c")
    other = agent.call(own)
    assert [(task, context, metadata) for _, task, context, metadata in seen] == [
        (first.id, "c", {"k": 1}),
        (first.id, "c", {}),
        (other.id, "c", {}),
    ]
    assert [message.parts for message, *_ in seen] == [(TextPart("text"),), (TextPart("parts"), *parts), parts]
    assert (seen[2][0].message_id, seen[2][0].metadata) == ("mine", {"m": 1})
    assert len({message.message_id for message, *_ in seen}) == 3
    assert other.id != first.id


def test_a23_a_call_times_out_and_its_task_continues(make):
    gate = Gate()
    agent = make(lambda message, context: gate.block() or "late")
    before = time.monotonic()
    with pytest.raises(TransportTimeoutError):
        agent.call("go", timeout=0.05)
    assert time.monotonic() - before >= 0.05
    gate.wait()
    (task,) = Client(agent).list_tasks().tasks
    assert task.state is S.WORKING
    gate.open.set()
    assert Client(agent).wait(task.id, timeout=TIMEOUT).text == "late"


def test_a24_every_agent_can_be_streamed(make):
    with make(lambda message, context: "all at once").stream("go") as stream:
        assert [type(event).__name__ for event in stream][-1] == "TaskStatusUpdateEvent"
        assert stream.text == "all at once"


def test_a25_an_agent_has_call_cancel_and_get_task(make):
    agent = make(lambda message, context: InputRequired("?"))
    task = agent.call("go")
    assert agent.get_task(task.id) == task
    assert agent.cancel(task.id).state is S.CANCELED
    with pytest.raises(TaskNotFoundError):
        agent.cancel("unknown")
    with pytest.raises(TaskNotFoundError):
        agent.get_task("unknown")


@pytest.mark.parametrize("end", ["completed", "canceled", "failed", "rejected"])
def test_a25_a_terminal_task_cannot_be_cancelled(make, end):
    ends = {"completed": "ok", "failed": Failed("no"), "rejected": Rejected("no"), "canceled": InputRequired("?")}
    agent = make(lambda message, context: ends[end])
    task = agent.call("go")
    if end == "canceled":
        agent.cancel(task.id)
    with pytest.raises(TaskNotCancelableError):
        agent.cancel(task.id)
    assert agent.get_task(task.id).state == end


def test_a26_an_agent_is_started_with_a_store_and_a_registered_name(tmp_path):
    store = f"sqlite:///{tmp_path}/tasks.db"
    with AgentSupervisor([(Greeter, {"name": "front desk", "store": store})]) as agents:
        assert agents.registry.list_agents() == ["front desk"]
        task = agents["front desk"].call("Ada")
    with Greeter().start(store=store) as again:
        assert again.get_task(task.id).text == "Hello, Ada!"
        with pytest.raises(RuntimeError, match="has been started"):
            again.start()


# -- persistence --------------------------------------------------------------------------------------------------------


def test_a27_readers_of_a_store_see_every_write(make, sqlite):
    one, other = make(pizza).start(store=sqlite()), make(pizza).start(store=sqlite())
    task = one.call("pizza")
    assert other.get_task(task.id) == task
    assert other.call("large", task_id=task.id).text == "One large pizza"
    assert one.get_task(task.id).state is S.COMPLETED
    with pytest.raises(TaskNotFoundError):
        make(pizza).get_task(task.id)


def test_a28_tasks_of_a_context_are_listed_newest_first(make):
    agent = make(lambda message, context: "ok")
    mine = [agent.call("go", context_id="c").id for _ in range(3)]
    agent.call("go")
    assert [task.id for task in Client(agent).list_tasks(context_id="c").tasks] == mine[::-1]


def test_a29_tasks_are_listed_in_pages_newest_status_first(make):
    with FakeClock() as clock:
        agent = make(lambda message, context: InputRequired("?") if message.text == "ask" else "ok")
        asked = agent.call("ask", context_id="c").id
        ids = [asked]
        for _ in range(2):
            clock.advance(1)
            ids.append(agent.call("go").id)
        clock.advance(1)
        agent.call("go", task_id=asked)  # The oldest task has the newest status now.
        newest = [asked, ids[2], ids[1]]
        with Client(agent) as client:
            page = client.list_tasks(page_size=2, history_length=0)
            assert [task.id for task in page.tasks] == newest[:2]
            assert [(task.history, task.artifacts) for task in page.tasks] == [((), ())] * 2
            rest = client.list_tasks(page_size=2, page_token=page.next_page_token, history_length=0)
            assert ([task.id for task in rest.tasks], rest.next_page_token, rest.total_size) == (newest[2:], "", 3)
            assert [task.id for task in client.iter_tasks(page_size=1)] == newest
            shown = client.list_tasks(include_artifacts=True, history_length=1).tasks[0]
            assert ([one.text for one in shown.artifacts], texts(shown.history)) == (["ok"], ["agent: ok"])
            waiting = agent.call("ask", context_id="d")
            assert [task.id for task in client.list_tasks(status="input-required").tasks] == [waiting.id]
            assert [task.id for task in client.list_tasks(context_id="c").tasks] == [asked]
            with pytest.raises(InvalidParamsError):
                client.list_tasks(page_token="unknown")


# -- registry, events, app ----------------------------------------------------------------------------------------------


def test_a30_agents_are_found_by_name_and_by_the_tags_of_their_skills(make):
    with AgentSupervisor([Greeter, make(pizza, "pizza", skills={"order": "Takes orders"})]) as agents:
        registry = agents.registry
        assert registry.find_by_tag("hello") == ["greeter"]
        assert registry.find_by_tag("nothing") == []
        assert registry.get_agent_card("greeter").name == "greeter"
        assert registry.list_agents() == ["greeter", "pizza"]
        assert registry.unregister("pizza")
        assert registry.list_agents() == ["greeter"]


def test_a31_a_supervisor_starts_agents_with_common_and_individual_options(make, sqlite):
    store = sqlite()
    own = make(pizza, "pizza")
    with AgentSupervisor([Greeter, (own, {"store": store})], store="memory:") as agents:
        assert sorted(agents) == ["greeter", "pizza"]
        task = agents["pizza"].call("pizza")
        assert agents.registry.submit_task("greeter", "Ada").text == "Hello, Ada!"
        registry = agents.registry
    assert registry.list_agents() == []
    assert make(pizza).start(store=store).get_task(task.id).state is S.INPUT_REQUIRED


def test_a32_calls_messages_cancels_and_transitions_emit_events(make):
    def handler(message, context):
        return {"ask": InputRequired("?"), "fail": Failed("no"), "stream": StreamingResult(["a", "b"])}.get(
            message.text, "ok"
        )

    events, received = AgentEvents(), {}
    for name in ("agent.call", "agent.message", "agent.cancel", "task.transition"):
        events.on(name, lambda event: received.setdefault(event.name, []).append(event))
    with AgentSupervisor([make(handler, "a")], events=events) as agents:
        for text in ("go", "stream", "fail", "ask"):
            task = agents["a"].call(text)
        agents["a"].cancel(task.id)
        with pytest.raises(TaskNotFoundError):
            agents["a"].call("go", task_id="unknown")
        assert events.flush(TIMEOUT)
    assert [(event.agent, event.error) for event in received["agent.call"]] == [("a", "")] * 4 + [
        ("a", "TASK_NOT_FOUND")
    ]
    assert [event.reply for event in received["agent.message"]] == ["reply", "stream", "error", "input_required"]
    assert all(event.seconds > 0 for event in (*received["agent.call"], *received["agent.message"]))
    assert [(event.task_id, event.error) for event in received["agent.cancel"]] == [(task.id, "")]
    last = received["task.transition"][-1]
    assert (last.task_id, last.before, last.state) == (task.id, S.INPUT_REQUIRED, S.CANCELED)


def test_a33_an_app_has_a_url_versions_and_extensions(make):
    agent = make(lambda message, context: str(dict(context.metadata)), extensions=[Extension("urn:x")])
    app = A2AApp(agent, url="https://agents.example.com/x", protocol_versions=("1.0",))
    card = get(app, "/.well-known/agent-card.json").json()
    assert {one["url"] for one in card["supportedInterfaces"]} >= {"https://agents.example.com/x/"}
    assert {one["protocolVersion"] for one in card["supportedInterfaces"]} == {"1.0"}
    assert "urn:x" in [one["uri"] for one in card["capabilities"]["extensions"]]
    assert get(app, "/.well-known/agent.json").status_code == 404  # only 0.3 has this path
    with app, Client(app) as client:
        assert client.send("go", metadata={"k": 1}).text == "{'k': 1}"


def test_a33_owner_selects_the_visible_tasks(make):
    people = {"one": Principal(id="a"), "two": Principal(id="b"), "three": Principal(id="c")}
    teams = {"a": "red", "b": "red", "c": "blue"}
    app = A2AApp(
        make(lambda message, context: "ok"),
        auth=BearerAuth(people),
        owner=lambda call: teams[call.context.principal.id],
    )

    def calls(token):
        return Client(app.agent_card("http://agent.test/"), session=wsgi_session(app), auth=token)

    with app, calls("one") as one, calls("two") as two, calls("three") as three:
        task = one.send("go")
        assert two.get_task(task.id).id == task.id
        assert [known.id for known in two.list_tasks().tasks] == [task.id]
        assert three.list_tasks().tasks == ()
        with pytest.raises(TaskNotFoundError):
            three.get_task(task.id)


def test_a33_without_owner_each_principal_sees_its_own_tasks(make):
    app = A2AApp(make(lambda message, context: "ok"), auth=BearerAuth({"one": "a", "two": "b"}))

    def calls(token):
        return Client(app.agent_card("http://agent.test/"), session=wsgi_session(app), auth=token)

    with app, calls("one") as one, calls("two") as two:
        task = one.send("go")
        assert one.get_task(task.id).id == task.id
        with pytest.raises(TaskNotFoundError):
            two.get_task(task.id)


def test_a34_schemes_are_combined_and_a_refusal_names_them(make):
    both = BearerAuth({"t": "ada"}) & ApiKeyAuth({"k": "ada"}, header="X-Key")
    either = both | BearerAuth({"root": Principal(id="root")}, name="root")
    app = A2AApp(make(lambda message, context: context.user.id), auth=either)
    assert get(app, "/.well-known/agent-card.json").status_code == 200
    with app:

        def status(**headers):
            body = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "SendMessage",
                "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
            }
            headers = {name.replace("_", "-"): value for name, value in headers.items()} | {"A2A-Version": "1.0"}
            return wsgi_session(app).post("http://agent.test/", json=body, headers=headers, timeout=TIMEOUT)

        refused = status()
        assert refused.status_code == 401
        assert "Bearer" in refused.headers["WWW-Authenticate"]
        assert status(Authorization="Bearer t").status_code == 401
        assert status(Authorization="Bearer t", X_Key="k").status_code == 200
        assert status(Authorization="Bearer root").status_code == 200


def test_a35_a_card_for_a_url_needs_no_server(make):
    card = A2AApp(Greeter()).agent_card("https://agents.example.com/greeter/")
    assert {one.url.rstrip("/") for one in card.supported_interfaces} == {"https://agents.example.com/greeter"}


def test_a4_a_cancel_interrupts_the_handler(make):
    gate, stopped = Gate(), threading.Event()

    def handler(message, context):
        gate.reached.set()
        try:
            context.sleep(TIMEOUT)
        except TaskCancelled:
            stopped.set()
            raise

    agent = make(handler)
    waiting = Background(lambda: agent.call("go"))
    gate.wait()
    (task,) = Client(agent).list_tasks().tasks
    agent.cancel(task.id)
    assert waiting.result().state is S.CANCELED
    assert stopped.wait(TIMEOUT)


class Pricing(Agent):
    currency = "USD"

    def handle_message(self, message, context):
        return f"{message.text} {self.currency}"


def test_a36_start_options_are_attributes_and_unknown_ones_are_refused():
    with Pricing().start(currency="EUR", store="memory:") as agent:
        assert agent.call("5").text == "5 EUR"
    given = [Pricing, (Pricing, {"name": "francs", "currency": "CHF"})]
    with AgentSupervisor(given) as agents:
        assert [agents[name].call("5").text for name in ("Pricing", "francs")] == ["5 USD", "5 CHF"]
    for option in ("colour", "handle_message"):
        with pytest.raises(TypeError, match=f"Pricing has no attribute '{option}'"):
            Pricing().start(**{option: "red"})
