"""Streams that are resumed, from agents that number their events or do not, that send wrong events, or that are unreachable for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from a2a_sync import Client, Retry, Task, TaskState, TaskStream, Timeout, TransportTimeoutError
from a2a_sync.client import stream as stream_module
from a2a_sync.client.retry import Backoff
from a2a_sync.errors import HTTPStatusError, InternalError, OverloadedError, StreamInterruptedError, TaskNotFoundError
from a2a_sync.types import TaskArtifactUpdateEvent
from tests.client.peer import TIMEOUT, Asked, Line, Peer, Script, chunk, peer, results, said, status, steps, task
from tests.stopwatch import Stopwatch

QUICK = Retry(max_elapsed=1.0, initial_backoff=0.01, max_backoff=0.05)


def streams_events(*events: tuple[int | None, Any], cut: bool = True, broken: bool = False) -> Script:
    """A stream of numbered events; `cut`: without the end of its task; `broken`: in the middle of an event."""

    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        for number, event in events:
            line.event(event, number)
        if broken:
            line.piece(b'id: 99\ndata: {"jsonrpc":"2.0","result":{"sta')
            line.hang_up()
        else:
            line.end_stream()

    return script


def hangs_up(asked: Asked, line: Line) -> None:
    line.hang_up()


def says(code: int, http: int = 200, **headers: str) -> Script:
    return lambda asked, line: line.error(code, http=http, **headers)


STARTED = {"task": task()}
FIRST = streams_events((2, STARTED), (3, chunk("a", append=False)), (4, chunk("b")))
REST = ((5, chunk("c")), (6, status("COMPLETED")))
PARTS = [{"artifactId": "a-1", "parts": [{"text": "a"}, {"text": "b"}]}]
DONE = task("COMPLETED", artifacts=[{"artifactId": "a-1", "parts": [{"text": "abc"}]}])


@contextmanager
def talking(script: Any, **options: Any) -> Iterator[tuple[Peer, Client]]:
    options.setdefault("retry", QUICK)
    with ExitStack() as stack:
        server = stack.enter_context(peer(script))
        yield server, stack.enter_context(Client(server.card(), **options))


def read(stream: TaskStream) -> list[str]:
    """The events, shortened; a star marks those that re-synchronise."""
    seen = []
    for event in stream:
        if isinstance(event, Task):
            text = f"task {event.state} {event.text}".rstrip()
        else:
            text = event.artifact.text if isinstance(event, TaskArtifactUpdateEvent) else str(stream.state)
        seen.append(text + "*" * stream.resynchronised)
    return seen


WHOLE = ["task working", "a", "b", "c", "completed"]


# -- servers that number their events -----------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True], ids=["ended", "broken"])
def test_a_cut_stream_goes_on_after_the_last_number(broken: bool) -> None:
    first = streams_events((2, STARTED), (3, chunk("a", append=False)), (4, chunk("b")), broken=broken)
    table = {"SendStreamingMessage": first, "SubscribeToTask": streams_events(*REST)}
    with talking(table) as (server, client):
        stream = client.stream("go")
        assert read(stream) == WHOLE

    assert server.asked[1].headers["last-event-id"] == "4"
    assert server.asked[1].params == {"id": "t-1"}
    assert (stream.text, stream.last_event_id) == ("abc", 6)


def test_it_is_cut_as_often_as_it_likes() -> None:
    table = {
        "SendStreamingMessage": streams_events((2, STARTED)),
        "SubscribeToTask": steps(
            streams_events((3, chunk("a", append=False))),
            hangs_up,
            streams_events(),
            streams_events((4, chunk("b")), broken=True),
            streams_events(),
            streams_events(*REST),
        ),
        "GetTask": results(task()),
    }
    with talking(table) as (server, client):
        assert read(client.stream("go")) == WHOLE

    asked_after = [a.headers["last-event-id"] for a in server.asked if a.operation == "SubscribeToTask"]
    assert asked_after == ["2", "3", "3", "3", "4", "4"]


def test_what_was_seen_is_not_shown_again() -> None:
    again = ((2, status("WORKING")), (3, chunk("a", append=False)), (4, chunk("b")), *REST)
    with talking({"SendStreamingMessage": FIRST, "SubscribeToTask": streams_events(*again)}) as (_, client):
        stream = client.stream("go")
        assert read(stream) == WHOLE

    assert stream.text == "abc"


def test_a_subscription_that_is_cut_at_once_asks_again_for_what_it_was_asked_for() -> None:
    table = {
        "SubscribeToTask": steps(streams_events(), streams_events(), streams_events(*REST)),
        "GetTask": results(task()),
    }
    with talking(table) as (server, client):
        assert read(client.subscribe("t-1", last_event_id=4)) == ["c", "completed"]

    assert [a.headers["last-event-id"] for a in server.asked if a.operation == "SubscribeToTask"] == ["4", "4", "4"]


def test_the_silence_of_a_lost_connection_is_a_cut() -> None:
    def silent(asked: Asked, line: Line) -> None:
        line.start_stream()
        for number, event in ((2, STARTED), (3, chunk("a", append=False)), (4, chunk("b"))):
            line.event(event, number)
        line.await_close()

    table = {"SendStreamingMessage": silent, "SubscribeToTask": streams_events(*REST)}
    with talking(table, timeout=Timeout(read=0.2)) as (_, client):
        assert read(client.stream("go")) == WHOLE


# -- servers that keep nothing, or number nothing -----------------------------------------------------------------------


def test_a_snapshot_in_place_of_what_was_missed_is_marked() -> None:
    missed = task(artifacts=[{"artifactId": "a-1", "parts": [{"text": "abc"}]}])
    rest = ((7, {"task": missed}), (8, chunk("d")), (9, status("COMPLETED")))
    with talking({"SendStreamingMessage": FIRST, "SubscribeToTask": streams_events(*rest)}) as (_, client):
        stream = client.stream("go")
        assert read(stream) == ["task working", "a", "b", "task working abc*", "d", "completed"]

    assert stream.text == "abcd"
    assert stream.last_event_id == 9


def test_numbers_that_begin_again_with_each_stream_lose_nothing() -> None:
    first = streams_events((1, STARTED), (2, chunk("a", append=False)), (3, chunk("b")))
    missed = task(artifacts=[{"artifactId": "a-1", "parts": [{"text": "abc"}]}])
    rest = ((1, {"task": missed}), (2, chunk("d")), (3, status("COMPLETED")))
    with talking({"SendStreamingMessage": first, "SubscribeToTask": streams_events(*rest)}) as (_, client):
        stream = client.stream("go")
        assert read(stream) == ["task working", "a", "b", "task working abc*", "d", "completed"]

    assert stream.text == "abcd"


def test_without_numbers_the_snapshot_of_a_new_subscription_is_where_it_goes_on() -> None:
    first = streams_events((None, STARTED), (None, chunk("a", append=False)))
    missed = task(artifacts=PARTS)
    rest = ((None, {"task": missed}), (None, chunk("c")), (None, status("COMPLETED")))
    with talking({"SendStreamingMessage": first, "SubscribeToTask": streams_events(*rest)}) as (server, client):
        stream = client.stream("go")
        assert read(stream) == ["task working", "a", "task working ab*", "c", "completed"]

    assert "last-event-id" not in server.asked[1].headers
    assert stream.text == "abc"


def test_a_snapshot_without_news_is_not_returned() -> None:
    first = streams_events((None, STARTED), (None, chunk("a", append=False)), (None, chunk("b")))
    rest = ((None, {"task": task(artifacts=PARTS)}), (None, chunk("c")), (None, status("COMPLETED")))
    with talking({"SendStreamingMessage": first, "SubscribeToTask": streams_events(*rest)}) as (_, client):
        assert read(client.stream("go")) == WHOLE


def test_with_neither_numbers_nor_a_snapshot_the_task_is_looked_at() -> None:
    first = streams_events((None, STARTED), (None, chunk("a", append=False)))
    table = {
        "SendStreamingMessage": first,
        "SubscribeToTask": streams_events((None, chunk("c")), (None, status("COMPLETED"))),
        "GetTask": results(task(artifacts=PARTS)),
    }
    with talking(table) as (server, client):
        stream = client.stream("go")
        assert read(stream) == ["task working", "a", "task working ab*", "c", "completed"]

    assert server.operations == ["SendStreamingMessage", "SubscribeToTask", "GetTask"]
    assert stream.text == "abc"


# -- tasks that have ended meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [4, None], ids=["numbered", "unnumbered"])
@pytest.mark.parametrize("code", [-32004, -32601, -32602, -32001])
def test_a_task_that_has_ended_while_the_stream_was_cut_is_looked_at_once(number: int | None, code: int) -> None:
    first = streams_events((number and 2, STARTED), (number and 3, chunk("a", append=False)), (number, chunk("b")))
    table = {"SendStreamingMessage": first, "SubscribeToTask": says(code), "GetTask": results(DONE)}
    with talking(table) as (server, client):
        stream = client.stream("go")
        assert read(stream) == ["task working", "a", "b", "task completed abc*"]

    assert server.operations == ["SendStreamingMessage", "SubscribeToTask", "GetTask"]
    assert stream.task is not None
    assert stream.task.state is TaskState.COMPLETED


@pytest.mark.parametrize("number", [2, None], ids=["numbered", "unnumbered"])
def test_a_subscription_that_ends_without_a_word_has_its_task_looked_at(number: int | None) -> None:
    table = {
        "SendStreamingMessage": streams_events((number, STARTED)),
        "SubscribeToTask": streams_events(),
        "GetTask": results(DONE),
    }
    with talking(table) as (server, client):
        assert read(client.stream("go")) == ["task working", "task completed abc*"]

    # One such end may be a cut, and what is numbered is worth a second try.
    tries = 2 if number else 1
    assert server.operations == ["SendStreamingMessage", *["SubscribeToTask"] * tries, "GetTask"]


def breaks(asked: Asked, line: Line) -> None:
    """The beginning of a stream, and no end: so the official server of 0.3 refuses one over HTTP+JSON."""
    line.start_stream()
    line.hang_up()


def test_a_subscription_that_breaks_without_a_word_has_its_task_looked_at() -> None:
    table = {
        "SendStreamingMessage": streams_events((None, STARTED)),
        "SubscribeToTask": breaks,
        "GetTask": results(DONE),
    }
    with talking(table) as (server, client):
        assert read(client.stream("go")) == ["task working", "task completed abc*"]

    assert server.operations == ["SendStreamingMessage", "SubscribeToTask", "GetTask"]


def test_a_subscription_that_breaks_because_there_is_no_task_says_so() -> None:
    table = {"SubscribeToTask": breaks, "GetTask": says(-32001)}
    with talking(table) as (server, client), pytest.raises(TaskNotFoundError):
        read(client.subscribe("t-1"))

    assert server.operations == ["SubscribeToTask", "SubscribeToTask", "GetTask"]


def test_a_message_of_0_3_to_a_missing_task_fails_when_its_stream_breaks() -> None:
    table = {"message/stream": breaks, "tasks/get": says(-32001)}
    with peer(table) as server:
        card = server.card()
        interface = replace(card.supported_interfaces[0], protocol_version="0.3")
        with (
            Client(replace(card, supported_interfaces=(interface,)), retry=QUICK) as client,
            pytest.raises(TaskNotFoundError),
        ):
            client.send("go", task_id="t-1")

    assert server.operations == ["message/stream", "tasks/get"]


def test_a_task_that_waits_for_its_client_meanwhile_is_the_end() -> None:
    """The subscription would wait for the next run, which is another stream's story."""

    def waits(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event({"task": task("INPUT_REQUIRED")}, None)
        line.await_close()

    first = streams_events((None, STARTED))
    with talking({"SendStreamingMessage": first, "SubscribeToTask": waits}) as (_, client):
        assert read(client.stream("go")) == ["task working", "task input-required*"]


def test_a_stream_that_breaks_after_the_question_has_ended() -> None:
    with talking(streams_events((2, STARTED), (3, status("INPUT_REQUIRED", message=said("Which?"))), broken=True)) as (
        server,
        client,
    ):
        assert read(client.stream("go")) == ["task working", "input-required"]
    assert len(server.asked) == 1


@pytest.mark.parametrize("number", [3, None], ids=["numbered", "unnumbered"])
def test_a_stream_that_breaks_while_credentials_are_asked_for_may_go_on(number: int | None) -> None:
    first = streams_events(
        (number and 2, STARTED), (number, status("AUTH_REQUIRED", message=said("Log in"))), broken=True
    )
    rest = ((number and 4, status("WORKING")), (number and 5, status("COMPLETED")))
    table = {
        "SendStreamingMessage": first,
        "SubscribeToTask": streams_events(*rest),
        "GetTask": results(task() | {"status": {"state": "TASK_STATE_AUTH_REQUIRED", "message": said("Log in")}}),
    }
    with talking(table) as (server, client):
        seen = read(client.stream("go"))

    if number:
        assert seen == ["task working", "auth-required", "working", "completed"]
    else:
        # It cannot be distinguished from a task that waits, and a new subscription would wait with it.
        assert seen == ["task working", "auth-required"]
        assert server.operations == ["SendStreamingMessage", "GetTask"]


def test_an_agent_that_refuses_subscriptions_is_not_asked_twice() -> None:
    table = {"SendStreamingMessage": FIRST, "SubscribeToTask": says(-32004), "GetTask": results(task())}
    with (
        talking(table) as (server, client),
        pytest.raises(StreamInterruptedError, match="refuses a subscription") as caught,
    ):
        read(client.stream("go"))

    assert (caught.value.task_id, caught.value.last_event_id) == ("t-1", 4)
    assert len(server.asked) == 3


# -- patience -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "busy",
    [says(-32000, 429, Retry_After="1"), lambda a, line: line.answer(b"", 503, Retry_After="1")],
    ids=["a2a", "http"],
)
def test_a_server_that_asks_for_patience_gets_it(busy: Script) -> None:
    table = {"SendStreamingMessage": FIRST, "SubscribeToTask": steps(busy, streams_events(*REST))}
    with talking(table, retry=Retry(max_elapsed=5, initial_backoff=0.01, max_backoff=0.02)) as (_, client):
        watch = Stopwatch()
        assert read(client.stream("go")) == WHOLE

    assert watch.within(4, least=1.0)


def test_more_patience_than_there_is_is_not_begun() -> None:
    busy = says(-32000, 429, Retry_After="60")
    with talking({"SendStreamingMessage": FIRST, "SubscribeToTask": busy}) as (server, client):
        watch = Stopwatch()
        with pytest.raises(StreamInterruptedError, match="Retry-After: 60 s"):
            read(client.stream("go"))

    assert watch.within(QUICK.max_elapsed)
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "lasting",
    [hangs_up, lambda a, line: line.answer(b"", 502), says(-32000, 429)],
    ids=["broken", "bad gateway", "overloaded"],
)
def test_it_gives_up_when_the_budget_is_used_up_and_says_where_it_was(lasting: Script) -> None:
    with talking({"SendStreamingMessage": FIRST, "SubscribeToTask": lasting}) as (server, client):
        stream = client.stream("go")
        watch = Stopwatch()
        with pytest.raises(StreamInterruptedError, match="within 1 seconds") as caught:
            read(stream)

    assert watch.within(4, least=0.9)
    error = caught.value
    assert (error.task_id, error.last_event_id, error.agent) == ("t-1", 4, server.url + "/rpc")
    assert stream.closed
    assert list(stream) == []
    # How often depends on the load; without pauses it would be thousands.
    assert 2 < len(server.asked) < 100


def test_resuming_ends_also_when_the_server_is_gone() -> None:
    last = streams_events((2, STARTED), (3, chunk("a", append=False)), (4, chunk("b")), broken=True)
    with talking(last) as (server, client):
        stream = client.stream("go")
        server.refuse()
        with pytest.raises(StreamInterruptedError, match="could not connect") as caught:
            read(stream)

    assert (caught.value.task_id, caught.value.last_event_id) == ("t-1", 4)
    assert len(server.asked) == 1


def test_an_attempt_that_hangs_counts_too() -> None:
    def silent(asked: Asked, line: Line) -> None:
        line.await_close()

    with talking({"SendStreamingMessage": FIRST, "SubscribeToTask": silent}) as (_, client):
        watch = Stopwatch()
        with pytest.raises(StreamInterruptedError):
            read(client.stream("go"))

    assert watch.within(4)


def test_the_overall_limit_wins() -> None:
    table = {"SendStreamingMessage": FIRST, "SubscribeToTask": hangs_up}
    with talking(table, retry=Retry(max_elapsed=60, initial_backoff=0.05, max_backoff=60)) as (_, client):
        watch = Stopwatch()
        with pytest.raises(TransportTimeoutError) as caught:
            read(client.stream("go", timeout=0.5))

    assert watch.within(3, least=0.4)
    assert (caught.value.task_id, caught.value.last_event_id) == ("t-1", 4)


def test_news_renew_the_patience() -> None:
    """Each event is an interruption's end: together the cuts last longer than the budget."""
    last = 80
    parts = [streams_events((number, chunk("x", append=number > 3))) for number in range(3, last)]
    table = {
        "SendStreamingMessage": streams_events((2, STARTED)),
        "SubscribeToTask": steps(*parts, streams_events((last, status("COMPLETED")))),
    }
    with talking(table, retry=Retry(max_elapsed=1.0, initial_backoff=0.03, max_backoff=0.05)) as (_, client):
        started = time.monotonic()
        assert len(read(client.stream("go"))) == last - 1

    assert time.monotonic() - started > 1.0


def test_a_snapshot_without_news_does_not_renew_it() -> None:
    table = {
        "SendStreamingMessage": streams_events((None, STARTED)),
        "SubscribeToTask": streams_events((None, STARTED)),
        "GetTask": results(task()),
    }
    with talking(table) as (_, client), pytest.raises(StreamInterruptedError, match="within 1 seconds"):
        read(client.stream("go"))


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (lambda a, line: line.answer(b"", 403), HTTPStatusError),
        (says(-32603), InternalError),
        (says(-32001), TaskNotFoundError),
    ],
)
def test_an_answer_that_will_not_change_is_the_end(script: Script, error: type[Exception]) -> None:
    table = {"SendStreamingMessage": FIRST, "SubscribeToTask": script, "GetTask": says(-32001)}
    with talking(table) as (server, client):
        stream = client.stream("go")
        with pytest.raises(error):
            read(stream)

    assert stream.closed
    assert len(server.asked) <= 3


def test_an_error_that_the_agent_sends_is_no_cut() -> None:
    def fails(asked: Asked, line: Line) -> None:
        line.start_stream()
        line.event(STARTED, 2)
        line.piece(b'data: {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"it broke"}}\n\n')
        line.end_stream()

    with talking(fails) as (server, client), pytest.raises(InternalError, match="it broke"):
        read(client.stream("go"))
    assert len(server.asked) == 1


def test_an_overloaded_server_is_an_error_for_the_first_call() -> None:
    with talking(says(-32000, 429, Retry_After="1")) as (server, client), pytest.raises(OverloadedError) as caught:
        client.stream("go")

    assert caught.value.retry_after == 1
    assert len(server.asked) == 1


@pytest.mark.parametrize("by", ["stream", "client"])
def test_closing_ends_a_stream_that_waits_for_its_next_attempt(by: str) -> None:
    tried = threading.Event()

    def gone(asked: Asked, line: Line) -> None:
        tried.set()
        line.hang_up()

    outcome: list[Any] = []
    with talking(
        {"SendStreamingMessage": FIRST, "SubscribeToTask": gone},
        retry=Retry(max_elapsed=60, initial_backoff=0.01, max_backoff=60),
    ) as (_, client):
        stream = client.stream("go")
        thread = threading.Thread(target=lambda: outcome.append(read(stream)), daemon=True)
        thread.start()
        assert tried.wait(TIMEOUT)
        (stream if by == "stream" else client).close()
        thread.join(60)

    assert outcome == [["task working", "a", "b"]]


# -- sends --------------------------------------------------------------------------------------------------------------


def test_a_stream_cut_before_its_first_event_is_not_sent_again() -> None:
    with (
        talking(streams_events()) as (server, client),
        pytest.raises(StreamInterruptedError, match="before its first event"),
    ):
        read(client.stream("go", task_id="t-1"))
    assert len(server.asked) == 1


def test_a_server_that_does_not_end_its_stream_after_a_resumption_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "_END_GRACE", 0.05)

    def stays(asked: Asked, line: Line) -> None:
        line.start_stream()
        for number, event in REST:
            line.event(event, number)
        line.await_close()

    with talking({"SendStreamingMessage": FIRST, "SubscribeToTask": stays}) as (_, client):
        watch = Stopwatch()
        assert read(client.stream("go")) == WHOLE
        assert watch.within(2)


# -- the rules ----------------------------------------------------------------------------------------------------------


def test_pauses_double_with_jitter_up_to_the_longest() -> None:
    for _ in range(50):
        backoff = Backoff(Retry(max_elapsed=1000, initial_backoff=1, max_backoff=8))
        pauses = [backoff.next(Exception()) or 0 for _ in range(6)]
        assert all(low / 2 <= pause <= low * 1.5 for pause, low in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True))
    backoff.reset()
    assert (backoff.next(Exception()) or 9) <= 1.5


@pytest.mark.parametrize("member", ["max_elapsed", "initial_backoff", "max_backoff"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_times_that_make_no_sense_are_refused(member: str, value: float) -> None:
    with pytest.raises(ValueError, match=member):
        Retry(**{member: value})


def test_a_budget_of_nothing_is_off() -> None:
    assert not Retry.off
    assert not Retry(max_elapsed=0)
    assert Retry()


def test_a_limit_that_runs_out_after_a_cut_says_what_cut_the_stream() -> None:
    table = {"SendStreamingMessage": FIRST, "SubscribeToTask": lambda asked, line: line.hang_up()}
    with (
        talking(table, retry=Retry(max_elapsed=30, initial_backoff=0.05, max_backoff=0.1)) as (_, client),
        pytest.raises(TransportTimeoutError, match=r"(before|during) a retry \(.+\)"),
    ):
        read(client.stream("go", timeout=0.5))


def test_a_limit_that_runs_out_in_a_retry_says_what_cut_the_stream() -> None:
    gate = threading.Event()

    def never_answered(_: Asked, line: Line) -> None:
        gate.wait(TIMEOUT)
        line.hang_up()

    table = {"SendStreamingMessage": FIRST, "SubscribeToTask": never_answered}
    with talking(table, retry=Retry(max_elapsed=30, initial_backoff=0.05, max_backoff=0.1)) as (_, client):
        try:
            with pytest.raises(TransportTimeoutError, match=r"during a retry \(.+\)"):
                read(client.stream("go", timeout=1.0))
        finally:
            gate.set()
