"""What the client says and understands over HTTP+JSON, against an agent whose every byte is the test's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import Client, FilePart, Task, TaskNotFoundError, TaskState
from a2a_sync.errors import (
    AgentError,
    HTTPStatusError,
    InternalError,
    InvalidParamsError,
    MalformedResponseError,
    OverloadedError,
    UnsupportedOperationError,
)
from tests.client.peer import Asked, Line, Peer, Script, chunk, peer, status, task

INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "a2a-protocol.org"}


@contextmanager
def calling(script: Script, path: str = "/api", tenant: str = "", **options: Any) -> Iterator[tuple[Peer, Client]]:
    """An agent that is played by `script`, and a client whose card leads to it."""
    with peer(script) as server:
        card = server.card(tenant=tenant)
        interface = replace(card.supported_interfaces[0], url=server.url + path, protocol_binding="HTTP+JSON")
        with Client(replace(card, supported_interfaces=(interface,)), **options) as client:
            yield server, client


def said(reason: str, code: int, **members: Any) -> dict[str, Any]:
    details = [{**INFO, "reason": reason}]
    return {"error": {"code": code, "status": "X", "message": "no", "details": details, **members}}


def answering(value: Any, code: int = 200, **headers: str) -> Script:
    return lambda asked, line: line.answer(value, code, **headers)


def streaming(*events: Any, named: str = "") -> Script:
    """A stream of bare events; the last one has the name given."""

    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        for number, event in enumerate(events, 1):
            name = f"event: {named}\n" if named and number == len(events) else ""
            line.piece(f"id: {number}\n{name}data: {json.dumps(event)}\n\n".encode())
        line.end_stream()

    return script


def test_a_get_is_a_path_and_a_query_behind_the_interface_s_own() -> None:
    with calling(answering(task()), "/api/?key=1", tenant="a/b") as (server, client):
        assert client.get_task("x:cancel", history_length=0).id == "t-1"
    (asked,) = server.asked

    assert (asked.method, asked.path) == ("GET", "/api/a%2Fb/tasks/x%3Acancel?key=1&historyLength=0")
    assert asked.headers["a2a-version"] == "1.0"
    assert asked.headers["accept"] == "application/a2a+json, application/json"
    assert "content-type" not in asked.headers
    assert asked.body == b""


def test_a_send_is_a_body_of_the_binding_s_own_type() -> None:
    with calling(answering({"task": task("COMPLETED")}, 201)) as (server, client):
        client.send("hi", return_immediately=True)
    (asked,) = server.asked

    assert (asked.method, asked.path) == ("POST", "/api/message:send")
    assert asked.headers["content-type"] == "application/a2a+json"
    body = json.loads(asked.body)
    assert body["message"]["parts"] == [{"text": "hi"}]
    assert body["configuration"] == {"returnImmediately": True}


def test_a_stream_of_bare_events_is_followed() -> None:
    events = {"task": task()}, chunk("a", append=False), chunk("b"), status("COMPLETED")
    with calling(streaming(*events)) as (server, client), client.stream("hi") as stream:
        list(stream)

    assert stream.task is not None
    assert (stream.task.text, stream.task.state, stream.last_event_id) == ("ab", TaskState.COMPLETED, 4)
    assert (server.asked[0].path, server.asked[0].headers["accept"].split(",")[0]) == (
        "/api/message:stream",
        "text/event-stream",
    )


@pytest.mark.parametrize("name", ["error", ""])
def test_an_error_in_the_middle_of_a_stream_is_raised(name: str) -> None:
    events = {"task": task()}, said("INTERNAL_ERROR", 500)
    with calling(streaming(*events, named=name), retry=None) as (_, client), client.stream("hi") as stream:
        next(stream)
        with pytest.raises(InternalError):
            next(stream)


@pytest.mark.parametrize(
    ("body", "code", "cls"),
    [
        (said("TASK_NOT_FOUND", 404), 404, TaskNotFoundError),
        (said("TASK_NOT_FOUND", 404), 400, TaskNotFoundError),
        (said("RESOURCE_EXHAUSTED", 429), 429, OverloadedError),
        (said("QUOTA", 403), 403, AgentError),
        ({"error": {"code": 404, "status": "NOT_FOUND", "message": "no"}}, 404, TaskNotFoundError),
        ({"error": "not found"}, 404, HTTPStatusError),
        ({"detail": "Not Found"}, 404, HTTPStatusError),
        (b"<html>", 502, HTTPStatusError),
        (b"", 302, HTTPStatusError),
        (b"<html>", 200, MalformedResponseError),
        ({"id": 5}, 200, MalformedResponseError),
    ],
)
def test_an_error_is_the_agent_s_or_the_network_s(body: Any, code: int, cls: type[Exception]) -> None:
    with calling(answering(body, code, Retry_After="7"), retry=None) as (_, client), pytest.raises(cls) as caught:
        client.get_task("t-1")

    assert type(caught.value) is cls
    if code == 429:
        assert caught.value.retry_after == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize("id", ["", ".", ".."])
def test_an_id_that_no_path_can_hold_is_not_sent(id: str) -> None:
    with calling(answering(task())) as (server, client), pytest.raises(InvalidParamsError):
        client.get_task(id)

    assert server.asked == []


# -- protocol 0.3 -------------------------------------------------------------------------------------------------------


@contextmanager
def calling_old(script: Script, **options: Any) -> Iterator[tuple[Peer, Client]]:
    """The same with an agent of 0.3."""
    with peer(script) as server:
        card = server.card()
        interface = replace(
            card.supported_interfaces[0], url=server.url + "/api", protocol_binding="HTTP+JSON", protocol_version="0.3"
        )
        with Client(replace(card, supported_interfaces=(interface,)), **options) as client:
            yield server, client


OLD_TASK = {"id": "t-1", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}


def test_in_0_3_a_send_is_the_json_of_its_proto_and_no_stream() -> None:
    with calling_old(answering({"task": OLD_TASK}, 201)) as (server, client):
        done = client.send("hi")
    (asked,) = server.asked

    assert isinstance(done, Task)
    assert (done.id, done.state) == ("t-1", TaskState.COMPLETED)
    assert (asked.method, asked.path) == ("POST", "/api/v1/message:send")
    assert asked.headers["a2a-version"] == "0.3"
    assert (asked.headers["content-type"], asked.headers["accept"]) == ("application/json", "application/json")
    body = json.loads(asked.body)
    assert (body["message"]["role"], body["message"]["content"]) == ("ROLE_USER", [{"text": "hi"}])
    assert body["configuration"] == {"blocking": True}


def test_in_0_3_the_other_operations_have_the_paths_of_its_table() -> None:
    with calling_old(answering(OLD_TASK)) as (server, client):
        client.get_task("a/b", history_length=3)
        client.cancel_task("t-1", metadata={"why": "because"})

    assert [(asked.method, asked.path) for asked in server.asked] == [
        ("GET", "/api/v1/tasks/a%2Fb?historyLength=3"),
        ("POST", "/api/v1/tasks/t-1:cancel"),
    ]
    assert json.loads(server.asked[1].body) == {"name": "tasks/t-1"}


def test_in_0_3_tasks_are_listed_by_the_path_that_its_text_names() -> None:
    page = {"tasks": [OLD_TASK], "nextPageToken": "n", "pageSize": 1, "totalSize": 2}
    with calling_old(answering(page)) as (server, client):
        listed = client.list_tasks(context_id="c", status=TaskState.CANCELED, page_size=1, include_artifacts=True)

    assert [one.id for one in listed.tasks] == [OLD_TASK["id"]]
    assert (listed.next_page_token, listed.page_size, listed.total_size) == ("n", 1, 2)
    assert (server.asked[0].method, server.asked[0].path) == (
        "GET",
        "/api/v1/tasks?contextId=c&status=TASK_STATE_CANCELLED&pageSize=1&includeArtifacts=true",
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"detail": "Not Found"}, 404),
        ({"detail": "Method Not Allowed"}, 405),
        ({"message": "Not Found"}, 404),
        ({"message": "This operation is not supported"}, 501),
    ],
)
def test_in_0_3_an_agent_without_that_path_does_not_list_tasks(body: Any, code: int) -> None:
    with calling_old(answering(body, code), retry=None) as (_, client), pytest.raises(UnsupportedOperationError):
        client.list_tasks()


def test_in_0_3_a_stream_ends_with_the_event_that_says_so() -> None:
    update = {"taskId": "t-1", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}, "final": True}
    working = {"task": {**OLD_TASK, "status": {"state": "TASK_STATE_WORKING"}}}
    with calling_old(streaming(working, {"statusUpdate": update})) as (server, client), client.stream("hi") as stream:
        assert len(list(stream)) == 2
        assert stream.state is TaskState.INPUT_REQUIRED

    assert server.asked[0].path == "/api/v1/message:stream"


def other_verb(verb: str) -> Script:
    """A server that takes subscriptions by one verb only, as official ones do: the Python one by GET, others by POST."""

    def script(asked: Asked, line: Line) -> None:
        if asked.method == verb:
            streaming({"task": OLD_TASK})(asked, line)
        else:
            line.answer({"detail": "Method Not Allowed"}, 405, Allow=verb)

    return script


@pytest.mark.parametrize(("verb", "tried"), [("POST", ["POST", "POST"]), ("GET", ["POST", "GET", "GET"])])
def test_a_server_that_takes_the_other_verb_for_a_subscription_gets_it(verb: str, tried: list[str]) -> None:
    with calling_old(other_verb(verb)) as (server, client):
        for _ in range(2):
            with client.subscribe("t-1") as stream:
                assert [event.id for event in stream if isinstance(event, Task)] == ["t-1"]

    assert [asked.method for asked in server.asked] == tried
    assert {asked.path for asked in server.asked} == {"/api/v1/tasks/t-1:subscribe"}


def test_a_server_that_accepts_neither_is_distinguished_from_one_that_does() -> None:
    with calling_old(answering({"detail": "no"}, 405), retry=None) as (server, client):
        for _ in range(2):
            with pytest.raises(HTTPStatusError, match="405"), client.subscribe("t-1") as stream:
                list(stream)

    assert [asked.method for asked in server.asked] == ["POST", "GET"] * 2


@pytest.mark.parametrize(
    ("body", "code", "cls"),
    [
        ({"message": "Task not found"}, 404, TaskNotFoundError),
        ({"code": -32001, "message": "no"}, 500, TaskNotFoundError),
        (said("TASK_NOT_FOUND", 404), 404, TaskNotFoundError),
        ({"message": "unknown exception"}, 500, InternalError),
        ({"message": "no Route matched with those values"}, 503, HTTPStatusError),
        ({"detail": "Not Found"}, 404, HTTPStatusError),
    ],
)
def test_in_0_3_an_error_is_known_in_every_form(body: Any, code: int, cls: type[Exception]) -> None:
    with calling_old(answering(body, code), retry=None) as (_, client), pytest.raises(cls) as caught:
        client.get_task("t-1")

    assert type(caught.value) is cls


def test_an_agent_that_encodes_files_twice_gets_them_so_and_is_read_so() -> None:
    twice = "QVA4PQ=="  # of AP8=
    artifact = {"artifactId": "a", "parts": [{"file": {"fileWithBytes": twice}}]}
    with calling_old(answering({"task": {**OLD_TASK, "artifacts": [artifact]}}), double_base64_files=True) as (
        server,
        client,
    ):
        task = client.send(FilePart(raw=b"\0\xff"))

    assert isinstance(task, Task)
    assert task.artifacts[0].parts == (FilePart(raw=b"\0\xff"),)
    assert json.loads(server.asked[0].body)["message"]["content"] == [{"file": {"fileWithBytes": twice}}]
