"""Streams over real sockets: prompt in every framing, ended or cut, closed from anywhere, within their limits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from a2a_sync import (
    Client,
    TaskNotFoundError,
    TaskState,
    TaskStream,
    Timeout,
    TransportTimeoutError,
)
from a2a_sync.client import stream as stream_module
from a2a_sync.errors import InternalError, MalformedResponseError, StreamInterruptedError
from a2a_sync.types import Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from tests.client.peer import TIMEOUT, Asked, Line, chunk, peer, said, status, steps, streams, task
from tests.stopwatch import Stopwatch

both_framings = pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "ended-by-close"])


def in_thread(run: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """`run` on a thread of its own; its result or error arrives in the list."""
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.append(run())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread, outcome


def count_events(stream: TaskStream, reading: threading.Event) -> int:
    """Read to the end; `reading` is set with the first event."""
    events = []
    for event in stream:
        events.append(event)
        reading.set()
    return len(events)


@both_framings
def test_events_arrive_while_the_stream_goes_on(chunked: bool) -> None:
    seen = threading.Semaphore(0)

    def script(asked: Asked, line: Line) -> None:
        line.start_stream(chunked=chunked)
        for event in ({"task": task()}, chunk("a", append=False), chunk("b")):
            line.event(event)
            assert seen.acquire(timeout=TIMEOUT), "the event did not arrive before the next one was sent"
        line.event(status("COMPLETED"))
        line.end_stream()

    with peer(script) as server, Client(server.card()) as client, client.stream("go") as stream:
        kinds = []
        for event in stream:
            kinds.append(type(event))
            seen.release()

    assert kinds == [Task, TaskArtifactUpdateEvent, TaskArtifactUpdateEvent, TaskStatusUpdateEvent]
    assert stream.text == "ab"
    assert stream.task is not None
    assert stream.task.state is TaskState.COMPLETED


def test_the_task_is_folded_as_events_come() -> None:
    script = streams({"task": task("SUBMITTED")}, status("WORKING"), chunk("x", append=False), status("COMPLETED"))

    with peer(script) as server, Client(server.card()) as client:
        stream = client.stream("go")
        assert stream.task is None
        assert (stream.state, stream.last_event_id) == (TaskState.UNSPECIFIED, None)
        seen: list[tuple[str, str, int | None]] = []
        for _ in stream:
            assert stream.task is not None
            seen.append((stream.task.state.value, stream.task.text, stream.last_event_id))

    assert seen == [("submitted", "", 1), ("working", "", 2), ("working", "x", 3), ("completed", "x", 4)]
    assert (stream.task_id, stream.context_id) == ("t-1", "c-1")


@pytest.mark.parametrize(
    ("events", "added"),
    [
        ([chunk("a", append=False), chunk("b"), chunk("ab", append=False, last=True)], ["", "a", "b", "", ""]),
        ([chunk("a", append=False), chunk("b"), chunk("abc", append=False, last=True)], ["", "a", "b", "c", ""]),
        ([chunk("a", append=False), chunk("x", append=False)], ["", "a", "x", ""]),
        ([chunk("b"), chunk("ab", append=False, last=True)], ["", "b", "", ""]),
    ],
    ids=["repeated", "repeated with more", "replaced", "joined late"],
)
def test_the_text_that_an_event_adds_is_that_which_was_not_there(events: Any, added: list[str]) -> None:
    script = streams({"task": task()}, *events, status("COMPLETED"))
    with peer(script) as server, Client(server.card()) as client, client.stream("go") as stream:
        assert [stream.new_text for _ in stream] == added


def test_a_direct_answer_is_one_message() -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}], "contextId": "c-9"}

    with peer(streams({"message": message})) as server, Client(server.card()) as client:
        stream = client.stream("go")
        events = list(stream)

    assert [type(event) for event in events] == [Message]
    assert (stream.text, stream.task, stream.context_id) == ("hi", None, "c-9")
    assert isinstance(stream.message, Message)


@both_framings
@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "INPUT_REQUIRED", "AUTH_REQUIRED"])
def test_a_stream_that_ends_when_its_task_has_paused_has_ended(state: str, chunked: bool) -> None:
    script = streams({"task": task()}, status(state), chunked=chunked)
    with peer(script) as server, Client(server.card()) as client:
        assert len(list(client.stream("go"))) == 2


@both_framings
def test_a_stream_that_ends_while_its_task_works_was_cut(chunked: bool) -> None:
    with (
        peer(streams({"task": task()}, chunk("x"), chunked=chunked)) as server,
        Client(server.card(), retry=None) as client,
    ):
        stream = client.stream("go")
        with pytest.raises(StreamInterruptedError, match="while the task was working") as caught:
            list(stream)

    assert (caught.value.phase, caught.value.agent, caught.value.task_id) == ("stream", server.url + "/rpc", "t-1")
    assert (stream.last_event_id, caught.value.last_event_id) == (2, 2)
    assert stream.closed


@both_framings
def test_an_event_that_was_cut_is_not_delivered(chunked: bool) -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream(chunked=chunked)
        line.event({"task": task()})
        line.piece(b'data: {"jsonrpc":"2.0","result":{"statusUp')
        line.hang_up()

    with peer(script) as server, Client(server.card(), retry=None) as client:
        stream = client.stream("go")
        assert type(next(stream)) is Task
        with pytest.raises(StreamInterruptedError) as caught:
            next(stream)

    assert caught.value.task_id == "t-1"
    assert list(stream) == []


def test_a_stream_that_ends_before_its_first_event_was_cut() -> None:
    with (
        peer(streams()) as server,
        Client(server.card(), retry=None) as client,
        pytest.raises(StreamInterruptedError, match="before its first event"),
    ):
        list(client.stream("go"))


def test_after_the_last_state_a_broken_connection_is_no_error() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event(status("COMPLETED"))
        line.hang_up()

    with peer(script) as server, Client(server.card()) as client:
        assert len(list(client.stream("go"))) == 1


def test_a_server_that_does_not_end_its_stream_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_END_GRACE", 0.05)

    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event(status("COMPLETED", message=said("done")))
        line.await_close()

    with peer(script) as server, Client(server.card()) as client:
        watch = Stopwatch()
        assert len(list(client.stream("go"))) == 1
        assert watch.within(2)


def test_a_snapshot_after_the_last_state_still_counts() -> None:
    final = task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "all of it"}]}])
    script = streams({"task": task()}, status("COMPLETED"), {"task": final})
    with peer(script) as server, Client(server.card()) as client, client.stream("go") as stream:
        assert len(list(stream)) == 3
        assert stream.text == "all of it"


def test_an_error_within_a_stream_is_raised() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        line.piece(b'event: error\ndata: {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"it broke"}}\n\n')
        line.end_stream()

    with peer(script) as server, Client(server.card()) as client:
        stream = client.stream("go")
        assert type(next(stream)) is Task
        with pytest.raises(InternalError, match="it broke"):
            next(stream)


def test_an_error_instead_of_a_stream_is_raised_at_once() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.error(-32001)

    with peer(script) as server, Client(server.card()) as client, pytest.raises(TaskNotFoundError):
        client.subscribe("t-1")


def test_a_plain_answer_to_a_streaming_call_is_a_stream_of_one() -> None:
    with peer(lambda asked, line: line.result({"task": task("COMPLETED")})) as server, Client(server.card()) as client:
        assert [type(event) for event in client.stream("go")] == [Task]


@pytest.mark.parametrize("data", [b"data: hello\n\n", b"data: {}\n\n", b'data: "\xff"\n\n'])
def test_a_stream_of_something_else_is_refused(data: bytes) -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.piece(data)
        line.end_stream()

    with peer(script) as server, Client(server.card()) as client, pytest.raises(MalformedResponseError) as caught:
        list(client.stream("go"))

    assert caught.value.phase == "stream"


# -- closing ------------------------------------------------------------------------------------------------------------


@both_framings
def test_closing_from_another_thread_ends_a_blocked_iteration_at_once(chunked: bool) -> None:
    reading = threading.Event()

    def script(asked: Asked, line: Line) -> None:
        line.start_stream(chunked=chunked)
        line.event({"task": task()})
        line.await_close()

    with peer(script) as server, Client(server.card()) as client:
        stream = client.stream("go")
        thread, outcome = in_thread(lambda: count_events(stream, reading))
        assert reading.wait(TIMEOUT)
        # The reader may not be in its next read yet: closing must work at both moments.
        watch = Stopwatch()
        stream.close()
        assert watch.within(0.5)
        thread.join(60)

    assert outcome == [1]
    assert stream.closed
    assert stream.state is TaskState.WORKING


def test_closing_the_client_ends_its_streams() -> None:
    reading = threading.Event()

    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        line.await_close()

    with peer(script) as server:
        client = Client(server.card())
        stream = client.stream("go")
        thread, outcome = in_thread(lambda: count_events(stream, reading))
        assert reading.wait(TIMEOUT)
        client.close()
        thread.join(60)
        with pytest.raises(RuntimeError, match="closed"):
            client.get_task("t-1")

    assert outcome == [1]


def test_leaving_the_with_block_hangs_up() -> None:
    hung_up = threading.Event()

    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        line.await_close()
        hung_up.set()

    with peer(script) as server, Client(server.card()) as client:
        with client.stream("go") as stream:
            next(stream)
        assert hung_up.wait(60)
        assert list(stream) == []


def test_a_stream_read_to_its_end_leaves_its_connection_to_the_next_call() -> None:
    table = {
        "SendStreamingMessage": streams({"task": task()}, status("COMPLETED", message=said("done"))),
        "GetTask": lambda asked, line: line.result(task("COMPLETED")),
    }
    with peer(table) as server, Client(server.card()) as client:
        for _ in range(3):
            list(client.stream("go"))
            client.get_task("t-1")
        assert client.send("go").context_id == "c-1"

    assert len(server.asked) == 7
    assert server.connections == 1


# -- limits -------------------------------------------------------------------------------------------------------------


@both_framings
def test_a_silent_stream_is_left_after_the_idle_limit(chunked: bool) -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream(chunked=chunked)
        line.event({"task": task()})
        line.await_close()

    with peer(script) as server, Client(server.card(), timeout=Timeout(read=0.2), retry=None) as client:
        stream = client.stream("go")
        with pytest.raises(TransportTimeoutError, match="within the read timeout") as caught:
            list(stream)

    assert (caught.value.phase, caught.value.task_id) == ("stream", "t-1")


def test_heartbeats_keep_a_silent_stream_alive() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task()})
        for _ in range(8):
            line.pause(0.1)
            line.piece(b": hb\n\n")
        line.event(status("COMPLETED"))
        line.end_stream()

    with peer(script) as server, Client(server.card(), timeout=Timeout(read=0.5)) as client:
        assert len(list(client.stream("go"))) == 2


@both_framings
def test_a_dripping_stream_ends_at_the_overall_limit(chunked: bool) -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream(chunked=chunked)
        line.event({"task": task()})
        while not line.pause(0.03):
            line.piece(b": hb\n\n")

    with peer(script) as server, Client(server.card()) as client:
        watch = Stopwatch()
        stream = client.stream("go", timeout=0.4)
        with pytest.raises(TransportTimeoutError, match=r"^the total timeout expired \[stream") as caught:
            list(stream)

    assert watch.within(2, least=0.3)
    assert (caught.value.phase, caught.value.task_id) == ("stream", "t-1")


def test_a_stream_that_drips_within_a_chunk_head_ends_at_the_overall_limit() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.drip(b"0" * 1000)

    with peer(script) as server, Client(server.card()) as client:
        watch = Stopwatch()
        with pytest.raises(TransportTimeoutError):
            list(client.stream("go", timeout=0.3))

    assert watch.within(2)


def test_a_stream_within_its_limit_is_not_disturbed_by_it() -> None:
    with (
        peer(streams({"task": task()}, status("COMPLETED"))) as server,
        Client(server.card(), timeout=TIMEOUT) as client,
    ):
        assert [len(list(client.stream("go"))) for _ in range(20)] == [2] * 20
        assert server.connections == 1


# -- resuming -----------------------------------------------------------------------------------------------------------


def test_a_subscription_names_the_event_it_goes_on_after() -> None:
    script = steps(streams({"task": task()}, chunk("a", append=False)), streams(chunk("b"), status("COMPLETED")))
    with peer(script) as server, Client(server.card(), retry=None) as client:
        first = client.stream("go")
        with pytest.raises(StreamInterruptedError):
            list(first)
        assert len(list(client.subscribe(first.task_id, last_event_id=first.last_event_id))) == 2

    assert server.operations == ["SendStreamingMessage", "SubscribeToTask"]
    assert server.asked[1].headers["last-event-id"] == "2"
    assert server.asked[1].params == {"id": "t-1"}


def test_ids_that_are_no_numbers_are_no_place_to_resume_at() -> None:
    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.piece(b"id: 8c2f-\n")
        line.event(status("COMPLETED"))
        line.end_stream()

    with peer(script) as server, Client(server.card()) as client, client.stream("go") as stream:
        list(stream)

    assert stream.last_event_id is None
