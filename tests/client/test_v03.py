"""The client and agents of protocol 0.3: what it sends them, and how their streams, answers and refusals are taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import Client, Message, Retry, Task, TaskState, TaskStatusUpdateEvent
from a2a_sync.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from tests.client.peer import Asked, Line, Peer, Script, peer, results, steps, streams
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.timeout(30)

IDS = {"taskId": "t-1", "contextId": "c-1"}


def old_task(state: str = "working", **members: Any) -> dict[str, Any]:
    return {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": state}, **members}


def old_status(state: str, *, final: bool = False, **members: Any) -> dict[str, Any]:
    return {"kind": "status-update", **IDS, "status": {"state": state, **members}, "final": final}


def old_chunk(text: str, *, append: bool = True) -> dict[str, Any]:
    artifact = {"artifactId": "a-1", "parts": [{"kind": "text", "text": text}]}
    return {"kind": "artifact-update", **IDS, "artifact": artifact, "append": append}


def old_message(text: str) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "messageId": "m-9", "role": "agent", "parts": parts}


@contextmanager
def talking(script: dict[str, Script], *, streaming: bool = True, **options: Any) -> Iterator[tuple[Peer, Client]]:
    """An agent of 0.3 that plays a script for each method, and a client of it."""
    with peer(script) as server:
        card = server.card(streaming=streaming)
        (interface,) = card.supported_interfaces
        card = replace(card, supported_interfaces=(replace(interface, protocol_version="0.3"),))
        with Client(card, timeout=60, **options) as client:
            yield server, client


DONE = (old_task(), old_chunk("hel", append=False), old_chunk("lo"), old_status("completed", final=True))


# -- what is sent -------------------------------------------------------------------------------------------------------


def test_every_call_has_the_old_name_and_header() -> None:
    table = {
        "message/send": results(old_task("completed")),
        "message/stream": streams(*DONE),
        "tasks/get": results(old_task()),
        "tasks/cancel": results(old_task("canceled")),
        "tasks/resubscribe": streams(*DONE),
    }
    with talking(table) as (server, client):
        client.send("hi", return_immediately=True)
        assert client.send("hi").text == "hello"
        client.get_task("t-1")
        client.cancel_task("t-1")
        with client.subscribe("t-1") as stream:
            assert len(list(stream)) == 4

    assert server.operations == list(table)
    assert {asked.headers["a2a-version"] for asked in server.asked} == {"0.3"}


def test_every_send_says_whether_it_blocks() -> None:
    table = {"message/send": results(old_task("completed")), "message/stream": streams(*DONE)}
    with talking(table, streaming=False) as (server, client):
        client.send("hi")
        client.send("hi", return_immediately=True)
        client.send("hi", history_length=3)
    with talking(table) as (streaming, client):
        client.send("hi")

    configurations = [asked.params["configuration"] for asked in (*server.asked, *streaming.asked)]
    assert configurations == [
        {"blocking": True},
        {"blocking": False},
        {"blocking": True, "historyLength": 3},
        {"blocking": True},
    ]


def test_a_message_is_in_the_words_of_0_3() -> None:
    with talking({"message/send": results(old_message("hello"))}, streaming=False) as (server, client):
        answer = client.send("hi", context_id="c-7")

    assert isinstance(answer, Message)
    assert answer.text == "hello"
    sent = server.asked[0].params["message"]
    assert sent.pop("messageId")
    assert sent == {"kind": "message", "role": "user", "contextId": "c-7", "parts": [{"kind": "text", "text": "hi"}]}


def test_extensions_are_asked_for_under_both_names() -> None:
    with talking({"tasks/get": results(old_task())}, extensions=["urn:a", "urn:b"]) as (server, client):
        client.get_task("t-1")

    headers = server.asked[0].headers
    assert (headers["x-a2a-extensions"], headers["a2a-extensions"]) == ("urn:a, urn:b", "urn:a, urn:b")


def test_listing_is_refused_without_a_call() -> None:
    with talking({}) as (server, client):
        with pytest.raises(UnsupportedOperationError, match=r"0\.3 has no ListTasks"):
            client.list_tasks()
        with pytest.raises(UnsupportedOperationError):
            next(client.iter_tasks())

    assert server.asked == []


def test_a_history_of_0_is_none_whatever_the_agent_makes_of_it() -> None:
    task = old_task("completed", history=[old_message("one"), old_message("two")])
    with talking({"tasks/get": results(task), "message/send": results(task)}, streaming=False) as (_, client):
        assert client.get_task("t-1", history_length=0).history == ()
        assert [turn.text for turn in client.get_task("t-1", history_length=1).history] == ["two"]
        assert len(client.get_task("t-1").history) == 2
        answer = client.send("hi", history_length=0)

    assert isinstance(answer, Task)
    assert answer.history == ()


# -- streams ------------------------------------------------------------------------------------------------------------


def test_a_stream_ends_at_final_though_the_agent_keeps_it_open() -> None:
    def forgetful(asked: Asked, line: Line) -> None:
        line.start_stream()
        for event in DONE:
            line.event(event)
        line.pause()

    watch = Stopwatch()
    with talking({"message/stream": forgetful}) as (_, client), client.stream("hi") as stream:
        events = list(stream)
        assert stream.task is not None
        assert (stream.task.state, stream.task.text) == (TaskState.COMPLETED, "hello")

    assert len(events) == 4
    assert watch.within(5)


@pytest.mark.parametrize("state", ["working", "submitted", "unknown", "auth-required"])
def test_final_ends_a_stream_in_whatever_state_and_what_comes_after_is_not_shown(state: str) -> None:
    events = (old_task(), old_status(state, final=True, message=old_message("so")), old_status("completed", final=True))
    with talking({"message/stream": streams(*events)}) as (server, client), client.stream("hi") as stream:
        received = list(stream)

    assert len(received) == 2
    assert isinstance(received[-1], TaskStatusUpdateEvent)
    assert server.operations == ["message/stream"]


def test_a_send_waits_on_where_the_stream_s_end_was_not_the_task_s() -> None:
    table = {
        "message/stream": streams(old_task(), old_status("working", final=True)),
        "tasks/get": results(old_task("completed", artifacts=[old_chunk("late")["artifact"]])),
    }
    with talking(table) as (server, client):
        assert client.send("hi").text == "late"

    assert server.operations == ["message/stream", "tasks/get"]


def test_a_stream_that_just_ends_after_a_question_has_ended() -> None:
    table = {"message/stream": streams(old_task(), old_status("input-required", message=old_message("Which?")))}
    with talking(table) as (server, client), client.stream("hi") as stream:
        assert [type(event) for event in stream] == [Task, TaskStatusUpdateEvent]

    assert server.operations == ["message/stream"]


def test_a_stream_without_a_task_at_its_beginning_adds_up_to_one() -> None:
    with talking({"message/stream": streams(*DONE[1:])}) as (_, client):
        task = client.send("hi")

    assert isinstance(task, Task)
    assert (task.id, task.context_id, task.state, task.text) == ("t-1", "c-1", TaskState.COMPLETED, "hello")


def test_a_message_instead_of_a_task_is_the_whole_stream() -> None:
    with talking({"message/stream": streams(old_message("hello"))}) as (_, client):
        answer = client.send("hi")

    assert isinstance(answer, Message)
    assert answer.text == "hello"


@pytest.mark.parametrize("streaming", [True, False])
def test_agents_that_do_not_stream_are_sent_plain_messages(streaming: bool) -> None:
    table = {"message/send": results(old_task("completed"))}
    with talking(table, streaming=False) as (server, client):
        if streaming:
            with client.stream("hi") as stream:
                (event,) = stream
            assert isinstance(event, Task)
        else:
            assert isinstance(client.send("hi"), Task)

    assert server.operations == ["message/send"]


# -- refusals -----------------------------------------------------------------------------------------------------------

QUICK = Retry(initial_backoff=0.01, max_backoff=0.05)


def refuses(code: int, *, as_event: bool) -> Script:
    """Refuses a stream, in JSON or, as servers of 0.3 do, in its first event."""

    def script(asked: Asked, line: Line) -> None:
        if not as_event:
            line.error(code)
            return
        line.start_stream()
        line.piece(b'data: {"jsonrpc": "2.0", "id": 1, "error": {"code": %d, "message": "no"}}\n\n' % code)
        line.end_stream()

    return script


def cut(*events: Any) -> Script:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        for event in events:
            line.event(event)
        line.hang_up()

    return script


@pytest.mark.parametrize("as_event", [True, False])
@pytest.mark.parametrize("code", [-32001, -32004, -32602, -32601])
def test_a_task_that_can_no_longer_be_followed_is_looked_at(code: int, as_event: bool) -> None:
    table = {
        "message/stream": cut(*DONE[:2]),
        "tasks/resubscribe": refuses(code, as_event=as_event),
        "tasks/get": results(old_task("completed", artifacts=[old_chunk("hello")["artifact"]])),
    }
    with talking(table, retry=QUICK) as (server, client), client.stream("hi") as stream:
        received = list(stream)
        assert stream.task is not None
        assert (stream.task.state, stream.task.text) == (TaskState.COMPLETED, "hello")

    assert isinstance(received[-1], Task)
    assert server.operations == ["message/stream", "tasks/resubscribe", "tasks/get"]


@pytest.mark.parametrize("as_event", [True, False])
@pytest.mark.parametrize("code", [-32001, -32602])
def test_a_send_polls_a_working_task_that_refuses_subscriptions(code: int, as_event: bool) -> None:
    table = {
        "message/stream": cut(*DONE[:2]),
        "tasks/resubscribe": refuses(code, as_event=as_event),
        "tasks/get": steps(results(old_task()), results(old_task()), results(old_task("completed"))),
    }
    with talking(table, retry=QUICK) as (_, client):
        task = client.send("hi")

    assert isinstance(task, Task)
    assert task.state is TaskState.COMPLETED


@pytest.mark.parametrize("as_event", [True, False])
def test_a_refused_subscription_is_the_agent_s_error(as_event: bool) -> None:
    table = {"tasks/resubscribe": refuses(-32602, as_event=as_event)}
    with talking(table) as (server, client), pytest.raises(InvalidParamsError), client.subscribe("t-1") as stream:
        list(stream)

    assert server.operations == ["tasks/resubscribe"]


def test_errors_without_details_are_known_by_their_codes() -> None:
    table: dict[str, Script] = {
        "tasks/get": lambda asked, line: line.error(-32001, "Task not found"),
        "tasks/cancel": lambda asked, line: line.error(-32050, "mine"),
    }
    with talking(table) as (_, client):
        with pytest.raises(TaskNotFoundError, match="Task not found"):
            client.get_task("t-1")
        with pytest.raises(Exception, match="mine") as caught:
            client.cancel_task("t-1")
    assert getattr(caught.value, "jsonrpc_code", None) == -32050
