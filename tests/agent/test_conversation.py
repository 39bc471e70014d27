"""What was said in all tasks of a context, as a handler sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, InputRequired, Message, PublicError
from a2a_sync import operations as op
from a2a_sync.agent.conversation import turns_of
from a2a_sync.operations import Principal
from a2a_sync.types import (
    Artifact,
    DataPart,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TextPart,
)
from tests.engine import STORES, TIMEOUT, Gate, Served, eventually, serving_over

ADA = Principal(id="ada")


@pytest.fixture(params=STORES)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    yield from serving_over(request.param, tmp_path)


def said(turns: Any) -> list[tuple[str, str]]:
    return [(str(turn.role), turn.text) for turn in turns]


class Listening:
    """A handler that notes the conversation at each message, and answers as `answer` says."""

    def __init__(self, answer: Callable[..., Any], **options: Any) -> None:
        self._answer = answer
        self._options = options
        self.heard: list[list[tuple[str, str]]] = []
        self.turns: tuple[Message, ...] = ()

    def __call__(self, message: Message, context: Any) -> Any:
        self.turns = context.conversation(**self._options)
        self.heard.append(said(self.turns))
        return self._answer(message, context)


def test_the_second_task_of_a_context_sees_what_both_sides_said_in_the_first(serve):
    handler = Listening(lambda message, context: f"{message.text}!")
    served = serve(handler)
    for text in ("one", "two"):
        served.send(text, context_id="c")
    served.send("elsewhere", context_id="d")
    assert handler.heard == [
        [("user", "one")],
        [("user", "one"), ("agent", "one!"), ("user", "two")],
        [("user", "elsewhere")],
    ]


def test_questions_and_answers_of_one_task_are_turns_too(serve):
    handler = Listening(lambda message, context: InputRequired("Which?") if message.text == "go" else "done")
    served = serve(handler)
    task = served.send("go", context_id="c")
    served.send("this", task_id=task.id)
    served.send("thanks", context_id="c")
    whole = [("user", "go"), ("agent", "Which?"), ("user", "this")]
    assert handler.heard[1:] == [whole, [*whole, ("agent", "done"), ("user", "thanks")]]


def test_the_own_task_comes_last_however_old_it_is(serve):
    handler = Listening(lambda message, context: InputRequired("?") if message.text == "old" else None)
    served = serve(handler)
    old = served.send("old", context_id="c")
    served.send("new", context_id="c")
    served.send("again", task_id=old.id)
    assert handler.heard[-1] == [("user", "new"), ("user", "old"), ("agent", "?"), ("user", "again")]


def test_what_only_artifacts_hold_is_a_turn_with_its_pieces_joined(serve):
    def execute(context: Any) -> Any:
        if context.message.text == "listen":
            handler.heard.append(said(context.conversation()))
            return
        with context.artifact("answer") as answer:
            for piece in ("a", "b", "c"):
                answer.write(piece)

    handler = Listening(lambda message, context: None)
    agent = Agent("executing")
    agent.execute = execute  # type: ignore[method-assign]
    served = serve(agent)
    served.send("go", context_id="c")
    served.send("listen", context_id="c")
    assert handler.heard == [[("user", "go"), ("agent", "abc"), ("user", "listen")]]


def test_a_stream_is_one_turn_and_not_said_twice(serve):
    def handler(message: Message, context: Any) -> Any:
        heard.append(said(context.conversation()))
        return (piece for piece in ("a", "b", "c"))

    heard: list[Any] = []
    served = serve(handler)
    served.send("one", context_id="c")
    served.send("two", context_id="c")
    assert heard[1] == [("user", "one"), ("agent", "abc"), ("user", "two")]


def test_the_last_word_of_a_status_is_a_turn(serve):
    def answer(message: Message, context: Any) -> Any:
        if message.text == "fail":
            raise PublicError("Quota used up")
        return context.agent_message("Hello") if message.text == "greet" else None

    handler = Listening(answer)
    served = serve(handler)
    for text in ("fail", "greet", "listen"):
        served.send(text, context_id="c")
    assert handler.heard[-1] == [
        ("user", "fail"),
        ("agent", "Quota used up"),
        ("user", "greet"),
        ("agent", "Hello"),
        ("user", "listen"),
    ]


def test_turns_are_messages_with_all_their_parts(serve):
    handler = Listening(lambda message, context: {"n": 1})
    served = serve(handler)
    first = served.send("one", context_id="c")
    served.send("two", context_id="c")
    answer = handler.turns[1]
    assert answer.parts == (DataPart.of({"n": 1}),)
    assert (answer.role, answer.task_id, answer.context_id) == (Role.AGENT, first.id, "c")


def test_only_the_newest_turns_are_given(serve):
    handler = Listening(lambda message, context: f"{message.text}!", limit=4)
    served = serve(handler)
    for n in range(30):
        served.send(str(n), context_id="c")
    assert handler.heard[-1] == [("agent", "27!"), ("user", "28"), ("agent", "28!"), ("user", "29")]


def test_many_tasks_are_read_page_by_page_in_order(serve):
    handler = Listening(lambda message, context: None, limit=1000)
    served = serve(handler)
    texts = [str(n) for n in range(45)]
    for text in texts:
        served.send(text, context_id="c")
    assert handler.heard[-1] == [("user", text) for text in texts]


def test_a_limit_of_nothing_is_refused(serve):
    served = serve(Listening(lambda message, context: None, limit=0))
    assert served.send("x").state is TaskState.FAILED


@pytest.mark.parametrize("stranger", [{"principal": Principal(id="bob")}, {"tenant": "other"}])
def test_nothing_of_it_is_visible_to_another_caller_or_tenant(serve, stranger):
    handler = Listening(lambda message, context: "secret")
    served = serve(handler)

    def send(text: str, *, principal: Principal = ADA, tenant: str = "acme") -> Any:
        request = replace(served.request(text, context_id="c"), tenant=tenant)
        return served.call(op.SEND_MESSAGE, request, principal=principal)

    send("mine")
    send("theirs", **stranger)
    send("mine too")
    assert handler.heard[1] == [("user", "theirs")]
    assert handler.heard[2] == [("user", "mine"), ("agent", "secret"), ("user", "mine too")]


def test_a_task_that_still_runs_has_said_what_it_has_said(serve):
    gate = Gate()

    def answer(message: Message, context: Any) -> Any:
        if message.text == "slow":
            context.emit(TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart("so far"),))))
            gate.block()

    handler = Listening(answer)
    served = serve(handler)
    slow = served.in_background("slow", context_id="c")
    gate.wait()
    eventually(lambda: served.list(include_artifacts=True).tasks[0].artifacts, "the first piece")
    served.send("quick", context_id="c")
    gate.open.set()
    slow.result()
    assert handler.heard[-1] == [("user", "slow"), ("agent", "so far"), ("user", "quick")]


def test_a_direct_agent_sees_the_conversation_without_a_task(serve):
    def handler(message: Message, context: Any) -> Any:
        heard.append(said(context.conversation()))
        return context.agent_message("quick") if message.text == "quick" else "kept"

    heard: list[Any] = []
    agent = Agent("direct", direct=True)
    agent.message(handler)
    # On the caller's thread a direct answer has the time it needs.
    served = serve(agent, direct_reply_timeout=TIMEOUT)
    served.send("keep", context_id="c")
    answer = served.send("quick", context_id="c")
    assert isinstance(answer, Message)
    assert heard[-1] == [("user", "keep"), ("agent", "kept"), ("user", "quick")]


def test_a_cancel_handler_sees_it_too(serve):
    agent = Agent("cancelled")
    agent.message(lambda message, context: InputRequired("Sure?"))
    heard: list[Any] = []
    done = threading.Event()

    @agent.on_cancel
    def cancel(context: Any) -> None:
        heard.append(said(context.conversation()))
        done.set()

    served = serve(agent, cancel_handler_timeout=TIMEOUT)
    task = served.send("go")
    served.cancel(task.id)
    assert done.wait(TIMEOUT)
    assert heard == [[("user", "go"), ("agent", "Sure?")]]


# -- one task -----------------------------------------------------------------------------------------------------------


def message(role: Role, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text),), task_id="t", context_id="c")


def test_an_artifact_stands_before_the_question_that_its_run_ended_with() -> None:
    history = (message(Role.USER, "go"), message(Role.AGENT, "Go on?"))
    task = Task(
        id="t",
        context_id="c",
        status=TaskStatus(state=TaskState.INPUT_REQUIRED),
        artifacts=(Artifact(parts=(TextPart("half"),)),),
        history=history,
    )
    assert [turn.text for turn in turns_of(task)] == ["go", "half", "Go on?"]
    answered = replace(task, history=(*history, message(Role.USER, "yes")), status=TaskStatus(state=TaskState.WORKING))
    assert [turn.text for turn in turns_of(answered)] == ["go", "half", "Go on?", "yes"]


def test_an_artifact_with_more_than_the_message_says_is_a_turn_of_its_own() -> None:
    task = Task(
        id="t",
        context_id="c",
        status=TaskStatus(state=TaskState.COMPLETED),
        artifacts=(Artifact(parts=(TextPart("ready"), DataPart({"n": 1}))),),
        history=(message(Role.USER, "go"), message(Role.AGENT, "ready")),
    )
    assert [len(turn.parts) for turn in turns_of(task)] == [1, 1, 2]


# -- over restarts ------------------------------------------------------------------------------------------------------


def counting() -> Agent:
    agent = Agent("counting")

    @agent.message
    def handler(message: Message, context: Any) -> str:
        return " ".join(turn.text for turn in context.conversation())

    return agent


def test_a_chat_is_continued_later_by_another_client_of_another_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    with A2AApp(counting(), store=store) as app, Client(app) as client:
        chat = client.chat()
        chat.send("one")
        context_id = chat.context_id
    with A2AApp(counting(), store=store) as app, Client(app) as client:
        assert client.chat(context_id=context_id).send("two").text == "one one two"


def test_tasks_that_are_not_completed_can_be_omitted(serve):
    def answer(message: Message, context: Any) -> Any:
        if message.text == "fail":
            raise PublicError("broken")
        return InputRequired("Which?") if message.text == "ask" else f"{message.text}!"

    handler = Listening(answer, completed_only=True)
    served = serve(handler)
    for text in ("one", "fail", "ask"):
        task = served.send(text, context_id="c")
    served.send("two", context_id="c")
    done = [("user", "one"), ("agent", "one!")]
    assert handler.heard[-1] == [*done, ("user", "two")]
    served.send("this", task_id=task.id)
    assert handler.heard[-1][:2] == done
    assert handler.heard[-1][-3:] == [("user", "ask"), ("agent", "Which?"), ("user", "this")]
