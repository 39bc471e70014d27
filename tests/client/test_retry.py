"""Sends whose answer is lost: sent again under their key where the agent knows it again, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from a2a_sync import (
    AgentCard,
    Client,
    Retry,
    Task,
    TaskState,
    Timeout,
    TransportError,
    TransportTimeoutError,
)
from a2a_sync.card import AgentExtension
from a2a_sync.client.deadlines import Deadline
from a2a_sync.client.retry import POLL, READ, SEND, Policy, RetryLoop
from a2a_sync.errors import (
    ConnectError,
    HTTPStatusError,
    InternalError,
    InvalidParamsError,
    OverloadedError,
    StreamInterruptedError,
    TaskNotCancelableError,
)
from a2a_sync.operations import IDEMPOTENT_SEND
from tests.client.peer import (
    TIMEOUT,
    Asked,
    Line,
    Peer,
    Script,
    chunk,
    peer,
    results,
    said,
    status,
    steps,
    streams,
    task,
)
from tests.stopwatch import Stopwatch

QUICK = Retry(max_elapsed=1.0, initial_backoff=0.01, max_backoff=0.05)
DONE = task("COMPLETED", artifacts=[{"artifactId": "a-1", "parts": [{"text": "all"}]}])
WHOLE = ({"task": task()}, chunk("all", append=False), status("COMPLETED"))


def knowing(server: Peer, **options: Any) -> AgentCard:
    """The card of an agent that knows a send again."""
    card = server.card(**options)
    extensions = (AgentExtension(uri="urn:another"), AgentExtension(uri=IDEMPOTENT_SEND))
    return replace(card, capabilities=replace(card.capabilities, extensions=extensions))


@contextmanager
def talking(script: Any, *, streaming: bool = True, **options: Any) -> Iterator[tuple[Peer, Client]]:
    options.setdefault("retry", QUICK)
    with ExitStack() as stack:
        server = stack.enter_context(peer(script))
        yield server, stack.enter_context(Client(knowing(server, streaming=streaming), **options))


def lost(asked: Asked, line: Line) -> None:
    """The request was read, and the connection breaks."""
    line.hang_up()


def lost_half_way(asked: Asked, line: Line) -> None:
    line.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{")
    line.hang_up()


def begun_only(asked: Asked, line: Line) -> None:
    line.start_stream()
    line.hang_up()


def says(code: int, http: int = 200, **headers: str) -> Script:
    return lambda asked, line: line.error(code, http=http, **headers)


def http(status: int, **headers: str) -> Script:
    return lambda asked, line: line.answer(b"", status, **headers)


def keys(server: Peer) -> list[str]:
    return [asked.headers.get("idempotency-key", "") for asked in server.asked]


# -- what goes out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
def test_each_send_has_a_key_of_its_own_where_the_agent_knows_it(streaming: bool) -> None:
    script = streams({"task": DONE}) if streaming else results({"task": DONE})
    with talking(script, streaming=streaming, extensions=["urn:x"]) as (server, client):
        client.send("hi")
        client.send("hi")
        client.stream("hi").close()

    assert len({*keys(server)} - {""}) == 3
    assert {asked.headers["a2a-extensions"] for asked in server.asked} == {f"urn:x, {IDEMPOTENT_SEND}"}


def test_other_calls_have_no_key() -> None:
    table = {"GetTask": results(DONE), "CancelTask": results(DONE), "SubscribeToTask": streams({"task": DONE})}
    with talking(table) as (server, client):
        client.get_task("t-1")
        client.cancel_task("t-1")
        list(client.subscribe("t-1"))

    assert keys(server) == ["", "", ""]
    assert all("a2a-extensions" not in asked.headers for asked in server.asked)


def test_without_deduplication_only_a_given_key_is_sent() -> None:
    with peer(results({"task": DONE})) as server, Client(server.card(streaming=False)) as client:
        client.send("hi")
        client.send("hi", idempotency_key="order 17")

    assert keys(server) == ["", "order 17"]
    assert all("a2a-extensions" not in asked.headers for asked in server.asked)


def test_a_given_key_is_sent_unchanged() -> None:
    with talking(streams({"task": DONE})) as (server, client):
        client.send("hi", idempotency_key="order 17")
        client.chat().send("hi", idempotency_key="order 18")
        for bad in ("", "a\nb", "ü", "x" * 256):
            with pytest.raises(ValueError, match="idempotency_key"):
                client.send("hi", idempotency_key=bad)

    assert keys(server) == ["order 17", "order 18"]


# -- again --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss", [lost, lost_half_way, http(502), http(503), http(504)], ids=["read", "half", "502", "503", "504"]
)
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
def test_a_send_whose_answer_is_lost_is_sent_again_with_the_same_key(loss: Script, streaming: bool) -> None:
    answer = streams(*WHOLE) if streaming else results({"task": DONE})
    with talking(steps(loss, loss, answer), streaming=streaming) as (server, client):
        task = client.send("hi")

    assert isinstance(task, Task)
    assert (task.state, task.text) == (TaskState.COMPLETED, "all")
    assert len(server.asked) == 3
    assert len({*keys(server)}) == 1
    bodies = [{**asked.rpc, "id": 0} for asked in server.asked]
    assert bodies[0] == bodies[1] == bodies[2]


@pytest.mark.parametrize("cut", [lost, begun_only, streams()], ids=["read", "broken", "ended"])
def test_a_stream_that_was_cut_before_its_first_event_is_asked_for_again(cut: Script) -> None:
    with talking(steps(cut, cut, streams(*WHOLE))) as (server, client):
        stream = client.stream("hi", task_id="t-1")
        assert len(list(stream)) == 3

    assert server.operations == ["SendStreamingMessage"] * 3
    assert len({*keys(server)}) == 1
    assert not stream.resynchronised


def test_after_its_first_event_it_is_taken_up_by_its_number() -> None:
    def rest(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event(WHOLE[1], 2)
        line.event(WHOLE[2], 3)
        line.end_stream()

    table = {"SendStreamingMessage": steps(lost, streams(WHOLE[0])), "SubscribeToTask": rest}
    with talking(table) as (server, client):
        assert len(list(client.stream("hi"))) == 3

    assert server.operations == ["SendStreamingMessage", "SendStreamingMessage", "SubscribeToTask"]
    assert "idempotency-key" not in server.asked[2].headers


def test_an_answer_that_takes_too_long_is_asked_for_again() -> None:
    """Whatever cuts silent connections on the way: the run goes on, and its end is waited for again."""

    def silent(asked: Asked, line: Line) -> None:
        line.await_close()

    with talking(
        steps(silent, silent, silent, results({"task": DONE})),
        streaming=False,
        timeout=Timeout(read=0.5),
        retry=Retry(max_elapsed=1.2, initial_backoff=0.01, max_backoff=0.05),
    ) as (server, client):
        task = client.send("hi")

    assert isinstance(task, Task)
    assert len({*keys(server)}) == 1
    assert len(server.asked) == 4


def test_a_busy_server_is_given_time_when_it_is_asked_again() -> None:
    busy = says(-32000, 429, Retry_After="1")
    with talking(
        steps(lost, busy, results({"task": DONE})), streaming=False, retry=Retry(max_elapsed=5, initial_backoff=0.01)
    ) as (
        server,
        client,
    ):
        watch = Stopwatch()
        client.send("hi")

    assert watch.within(4, least=1.0)
    assert len(server.asked) == 3


# -- not again ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("key", [None, "order 17"])
def test_without_deduplication_it_is_never_sent_again(streaming: bool, key: str | None) -> None:
    with peer(lost) as server, Client(server.card(streaming=streaming), retry=QUICK) as client:
        with pytest.raises(TransportError):
            client.send("hi", idempotency_key=key)
        with pytest.raises(TransportError):
            client.stream("hi", idempotency_key=key)

    assert len(server.asked) == 2


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
def test_without_retry_neither(streaming: bool) -> None:
    with talking(lost, streaming=streaming, retry=None) as (server, client), pytest.raises(TransportError):
        client.send("hi")

    assert keys(server) == [""]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (says(-32602), InvalidParamsError),
        (says(-32603), InternalError),
        (says(-32000, 429, Retry_After="1"), OverloadedError),
        (http(429), HTTPStatusError),
        (http(500), HTTPStatusError),
        (http(401), HTTPStatusError),
    ],
)
def test_an_error_of_the_agent_is_not_retried(answer: Script, error: type[Exception]) -> None:
    for streaming in (True, False):
        with talking(answer, streaming=streaming) as (server, client), pytest.raises(error):
            client.send("hi")
        assert len(server.asked) == 1


def test_a_send_that_was_never_sent_is_not_retried() -> None:
    with peer(lost) as server:
        card = knowing(server)
    with Client(card, retry=QUICK) as client:
        watch = Stopwatch()
        with pytest.raises(ConnectError):
            client.send("hi")
        assert watch.within(QUICK.max_elapsed / 2)


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
def test_it_gives_up_when_the_budget_is_used_up(streaming: bool) -> None:
    with talking(lost, streaming=streaming) as (server, client):
        watch = Stopwatch()
        with pytest.raises(TransportError, match="no retry succeeded within 1 seconds") as caught:
            client.send("hi")
        assert watch.within(TIMEOUT, least=0.9)

    assert caught.value.phase == ("stream" if streaming else "send")
    assert len(server.asked) > 5


def test_a_stream_without_any_event_is_given_up_too() -> None:
    with talking(streams()) as (server, client), pytest.raises(StreamInterruptedError, match="within 1 seconds"):
        list(client.stream("hi"))

    assert len(server.asked) > 5


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
def test_the_overall_limit_wins(streaming: bool) -> None:
    with talking(lost, streaming=streaming, retry=Retry(max_elapsed=60, initial_backoff=0.05, max_backoff=60)) as (
        _,
        client,
    ):
        watch = Stopwatch()
        with pytest.raises(TransportTimeoutError):
            client.send("hi", timeout=0.4)

    assert watch.within(3, least=0.3)


@pytest.mark.parametrize("policy", [SEND, READ, POLL], ids=["send", "read", "poll"])
def test_a_failure_at_the_end_of_the_overall_limit_is_a_timeout(policy: Policy) -> None:
    """The limit may run out between the failure and the check of the clock."""

    def breaks(opening: Deadline) -> Task:
        raise TransportError("the connection broke", phase="send", task_id="t-1")

    retries = RetryLoop(policy, Retry(), Deadline.after(0), Event(), agent="http://agent.test")
    with pytest.raises(TransportTimeoutError, match="the connection broke") as caught:
        retries.run(breaks)
    assert caught.value.task_id == "t-1"


# -- what may always be asked again -------------------------------------------------------------------------------------

CALLS = {
    "get": lambda client: client.get_task("t-1").state,
    "list": lambda client: client.list_tasks().tasks[0].state,
    "cancel": lambda client: client.cancel_task("t-1").state,
    "subscribe": lambda client: (stream := client.subscribe("t-1"), list(stream))[0].state,
}
ANSWERS = {
    "get": results(task("COMPLETED")),
    "list": results({"tasks": [task("COMPLETED")], "nextPageToken": "", "pageSize": 1, "totalSize": 1}),
    "cancel": results(task("CANCELED")),
    "subscribe": streams({"task": task()}, status("COMPLETED", message=said("done"))),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_broken_connection_is_retried(call: str) -> None:
    """Whether the agent keeps keys or not: none of these changes more by being asked twice."""
    script = steps(lost, lost, ANSWERS[call])
    with peer(script) as server, Client(server.card(streaming=True), retry=QUICK) as client:
        assert CALLS[call](client) in (TaskState.COMPLETED, TaskState.CANCELED)
        assert len(server.asked) == 3


@pytest.mark.parametrize("call", CALLS)
def test_without_retry_the_first_break_is_raised(call: str) -> None:
    with peer(lost) as server, Client(server.card(streaming=True), retry=None) as client:
        with pytest.raises(TransportError):
            CALLS[call](client)
        assert len(server.asked) == 1


def test_a_cancel_whose_answer_was_lost_succeeds() -> None:
    script = steps(lost, says(-32002), results(task("CANCELED")))
    with peer(script) as server, Client(server.card(), retry=QUICK) as client:
        assert client.cancel_task("t-1").state is TaskState.CANCELED
        assert [asked.rpc["method"] for asked in server.asked] == ["CancelTask", "CancelTask", "GetTask"]


def test_a_cancel_that_came_too_late_fails_on_retry_too() -> None:
    script = steps(lost, says(-32002), results(task("COMPLETED")))
    with (
        peer(script) as server,
        Client(server.card(), retry=QUICK) as client,
        pytest.raises(TaskNotCancelableError),
    ):
        client.cancel_task("t-1")


def test_a_card_is_requested_twice_at_most() -> None:
    with peer(lost) as server, Client(server.url, retry=QUICK) as client:
        with pytest.raises(TransportError) as caught:
            client.card()
        assert caught.value.phase == "card"
        assert len(server.asked) == 2
