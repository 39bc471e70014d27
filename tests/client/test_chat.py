"""Conversations: which ids the next message carries."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_sync import Agent, Client, InputRequired, Message, Role, Task, TaskState, TextPart
from a2a_sync.errors import StreamInterruptedError
from tests.client.peer import Asked, Line, peer, said, status, steps, streams, task


def pizza() -> Agent:
    agent = Agent("pizza", description="Takes orders")

    @agent.message
    def take(message: Message, context: object) -> object:
        if message.text == "pizza":
            return InputRequired("what size?")
        return f"a {message.text} one"

    return agent


def test_an_answer_to_a_question_continues_the_task_and_the_next_message_does_not() -> None:
    with Client(pizza()) as client:
        chat = client.chat()
        asked, served, again = chat.send("pizza"), chat.send("large"), chat.send("small")

    assert isinstance(asked, Task)
    assert isinstance(served, Task)
    assert isinstance(again, Task)
    assert (asked.state, served.text, again.text) == (TaskState.INPUT_REQUIRED, "a large one", "a small one")
    assert asked.id == served.id != again.id
    assert asked.context_id == served.context_id == again.context_id == chat.context_id
    assert chat.task_id == ""


def test_streams_carry_a_conversation_on_as_sends_do() -> None:
    with Client(pizza()) as client:
        chat = client.chat()
        with chat.stream("pizza") as first:
            list(first)
        assert chat.task_id == first.task_id
        with chat.stream("large") as second:
            list(second)

    assert (second.task_id, second.context_id) == (first.task_id, first.context_id)
    assert second.text == "a large one"
    assert chat.task_id == ""


def test_a_conversation_can_be_taken_up_again() -> None:
    with Client(pizza()) as client:
        known = client.chat()
        known.send("small")
        later = client.chat(known.context_id)
        answer = later.send("large")

    assert answer.context_id == known.context_id


def test_a_conversation_that_is_taken_up_again_answers_the_question_it_stopped_at() -> None:
    with Client(pizza()) as client:
        asked = client.chat()
        question = asked.send("pizza")
        later = client.chat(context_id=asked.context_id)
        answer = later.send("large")
        after = later.send("small")

    assert isinstance(question, Task)
    assert isinstance(answer, Task)
    assert isinstance(after, Task)
    assert (answer.id, answer.text) == (question.id, "a large one")
    assert after.id != question.id


@pytest.mark.parametrize("refusal", [{"code": -32601}, {"http": 404}, {"http": 501}])
def test_an_agent_that_lists_no_tasks_is_asked_once_and_begins_a_new_one(refusal: dict[str, int]) -> None:
    def refuse(asked: Asked, line: Line) -> None:
        if "code" in refusal:
            line.error(refusal["code"], "Method not found")
        else:
            line.answer(b"no such page", refusal["http"], Content_Type="text/plain")

    with (
        peer(steps(refuse, streams({"task": task()}, status("COMPLETED", message=said("ok"))))) as server,
        Client(server.card()) as client,
    ):
        chat = client.chat("c-1")
        chat.send("one")
        chat.stream("two").close()

    assert server.operations == ["ListTasks", "SendStreamingMessage", "SendStreamingMessage"]
    assert all("taskId" not in asked.params["message"] for asked in server.asked[1:])


def test_the_question_is_looked_for_with_the_options_of_the_message() -> None:
    agent = Agent("tenants")

    @agent.message
    def answer(message: Message, context: Any) -> object:
        return InputRequired("?") if message.text == "ask" else context.tenant

    with Client(agent) as client:
        asked = client.chat("c")
        question = asked.send("ask", tenant="acme")
        assert isinstance(question, Task)
        later = client.chat("c")
        reply = later.send("answer", tenant="acme", metadata={"k": 1})
        assert isinstance(reply, Task)
        assert (reply.id, reply.text) == (question.id, "acme")


def test_a_message_that_was_lost_leaves_the_question_open() -> None:
    script = steps(streams({"task": task()}, status("INPUT_REQUIRED", message=said("Which?"))), streams())
    with peer(script) as server, Client(server.card()) as client:
        chat = client.chat()
        chat.send("pizza")
        with pytest.raises(StreamInterruptedError):
            list(chat.stream("large"))
        assert chat.task_id == "t-1"
        with pytest.raises(StreamInterruptedError):
            chat.send("large")
        assert chat.task_id == "t-1"

    assert [asked.params["message"].get("taskId") for asked in server.asked] == [None, "t-1", "t-1"]


def test_a_direct_answer_keeps_the_context() -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}], "contextId": "c-7"}
    with peer(streams({"message": message})) as server, Client(server.card()) as client:
        chat = client.chat()
        chat.send("one")
        chat.send(Message(role=Role.USER, parts=(TextPart("two"),)))

    assert server.asked[1].params["message"]["contextId"] == "c-7"
    assert "taskId" not in server.asked[1].params["message"]
    assert repr(chat) == "Chat(context_id='c-7', task_id='')"
