"""Streams over WSGI: what is on the wire, what a silent one says, and what is free again when one ends."""

from __future__ import annotations

import gc
import itertools
import logging
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    DataPart,
    Limits,
    MemoryStore,
    Message,
    RequestContext,
    Role,
    TextPart,
)
from a2a_sync.bindings.jsonrpc import EventEnvelope
from a2a_sync.codec import by_version
from a2a_sync.engine.hub import Subscription
from a2a_sync.errors import StoreError, UnsupportedOperationError
from a2a_sync.operations import StreamItem
from a2a_sync.stores.base import LogPage, Owner, TaskQuery
from a2a_sync.wsgi import streaming as module
from a2a_sync.wsgi.connection import Connection
from a2a_sync.wsgi.streaming import EventStreamBody
from tests.engine import eventually
from tests.scenarios.agent import ScenarioAgent
from tests.stopwatch import Stopwatch
from tests.wsgi import JSON_HEADERS, Frame, OpenAnswer, Peer, message, rpc

pytestmark = pytest.mark.timeout(60)

MakePeer = Callable[..., Peer]


@pytest.fixture
def make_peer() -> Iterator[MakePeer]:
    """Builds apps over the scenario agent, and closes them in the end."""
    apps: list[A2AApp] = []

    def make(agent: Any = None, store: Any = None, **limits: Any) -> Peer:
        app = A2AApp(
            agent or ScenarioAgent(), store=store, limits=Limits(**{"disconnect_check_interval": 0.02, **limits})
        )
        apps.append(app)
        return Peer(app)

    yield make
    for app in apps:
        app.close(0)


@pytest.fixture
def peer(make_peer: MakePeer) -> Peer:
    return make_peer()


def send(peer: Peer, text: str) -> OpenAnswer:
    return peer.stream("SendStreamingMessage", message(text), id="s-1")


def waiting(peer: Peer) -> str:
    """A task that goes on until it is cancelled, after its last event before that."""
    params = {**message("wait"), "configuration": {"returnImmediately": True}}
    task_id: str = peer.call("SendMessage", params).result["task"]["id"]
    eventually(lambda: "message" in peer.call("GetTask", {"id": task_id}).result["status"], "the update of the run")
    return task_id


def asked(peer: Peer) -> str:
    """A task that waits for its client."""
    task_id: str = peer.call("SendMessage", message("ask")).result["task"]["id"]
    return task_id


def finished(peer: Peer) -> str:
    task_id: str = peer.call("SendMessage", message("count 3")).result["task"]["id"]
    return task_id


def subscribe(peer: Peer, task_id: str, last: object = None) -> OpenAnswer:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    return peer.stream("SubscribeToTask", {"id": task_id}, headers=headers)


def all_frames(answer: OpenAnswer) -> list[Frame]:
    with answer:
        return list(answer.frames())


def members(frame: Frame) -> set[str]:
    return set(frame.json["result"])


def state(peer: Peer, task_id: str) -> str:
    found: str = peer.call("GetTask", {"id": task_id}).result["status"]["state"]
    return found


# -- on the wire --------------------------------------------------------------------------------------------------------


def test_a_stream_has_the_headers_that_proxies_and_clients_look_for(peer: Peer) -> None:
    with send(peer, "count 3") as answer:
        assert answer.status == 200
        assert dict(answer.headers) == {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-cache, no-transform",
            "X-Accel-Buffering": "no",
        }


def test_every_event_is_a_number_and_one_line_with_a_whole_answer(peer: Peer) -> None:
    frames = all_frames(send(peer, "count 3"))

    assert [[line.partition(":")[0] for line in frame.lines] for frame in frames] == [["id", "data"]] * len(frames)
    assert {(frame.json["jsonrpc"], frame.json["id"]) for frame in frames} == {("2.0", "s-1")}
    numbers = [frame.id for frame in frames]
    assert numbers == sorted(set(numbers), key=lambda number: number or 0)
    assert all(len(members(frame)) == 1 for frame in frames)
    assert members(frames[0]) == {"task"}
    assert members(frames[-1]) == {"statusUpdate"}
    assert frames[-1].json["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("text", ["a\nb\r\nc\rd", "\u2028\u2029\x85", "data: x\n\nid: 9\n\n", "\0é😀"])
def test_no_text_can_break_a_frame(text: str, peer: Peer) -> None:
    with peer.stream("SendStreamingMessage", message("echo " + text)) as answer:
        events = list(answer.events())

    (artifact,) = [event["artifactUpdate"]["artifact"] for event in events if "artifactUpdate" in event]
    assert artifact["parts"] == [{"text": "echo: " + text}]


def test_the_stream_ends_where_the_agent_asks(peer: Peer) -> None:
    frames = all_frames(send(peer, "ask"))

    assert frames[-1].json["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


def test_a_message_without_a_task_is_one_event_without_a_number(make_peer: MakePeer) -> None:
    agent = Agent("direct", description="Answers at once", direct=True)
    agent.message(lambda message, context: context.agent_message("no task was needed"))
    (frame,) = all_frames(send(make_peer(agent, direct_reply_timeout=20.0), "x"))

    assert (frame.id, members(frame)) == (None, {"message"})
    assert frame.json["result"]["message"]["parts"] == [{"text": "no task was needed"}]


def test_a_long_stream_loses_nothing_when_its_client_is_slow(make_peer: MakePeer) -> None:
    peer = make_peer(max_buffered_batches=2)
    with send(peer, "count 500") as answer:
        events = []
        for number, event in enumerate(answer.events()):
            events.append(event)
            if number == 0:
                # The client takes the rest only when the run has ended long ago.
                assert_ends(peer, event["task"]["id"])

    chunks = [event["artifactUpdate"]["artifact"]["parts"] for event in events if "artifactUpdate" in event]
    *pieces, whole = ["".join(part["text"] for part in parts) for parts in chunks]
    assert pieces == [f"{number} " for number in range(1, 501)]
    assert whole == "".join(pieces)


def assert_ends(peer: Peer, task_id: str) -> None:
    with subscribe(peer, task_id, 0) as rest:
        events = list(rest.events())
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


# -- subscribing and resuming -------------------------------------------------------------------------------------------


def test_a_subscriber_gets_the_task_first_and_then_what_follows(peer: Peer) -> None:
    task_id = waiting(peer)
    with subscribe(peer, task_id) as answer:
        frames = answer.frames()
        first = next(frames)
        peer.call("CancelTask", {"id": task_id})
        rest = list(frames)

    assert members(first) == {"task"}
    assert rest[-1].json["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert all(frame.id is not None and first.id is not None and frame.id > first.id for frame in rest)


def test_a_resumed_stream_goes_on_after_the_number_it_names(peer: Peer) -> None:
    frames = all_frames(send(peer, "count 5"))
    task_id = frames[0].json["result"]["task"]["id"]

    for place, frame in enumerate(frames[:-1]):
        assert [rest.id for rest in all_frames(subscribe(peer, task_id, frame.id))] == [
            later.id for later in frames[place + 1 :]
        ]
    with subscribe(peer, task_id, frames[-1].id) as answer:
        assert list(answer.events()) == []


@pytest.mark.parametrize("junk", ["", "x", "-1", "1.0", "999", "0x1", "٣", "9" * 30, "1 2", "null"])
def test_a_number_that_means_nothing_counts_as_none(junk: str, peer: Peer) -> None:
    task_id = asked(peer)
    with subscribe(peer, task_id, junk) as answer:
        assert members(next(answer.frames())) == {"task"}

    with subscribe(peer, finished(peer), junk) as answer:
        assert answer.headers["Content-Type"] == "application/json"


def test_every_subscriber_hears_the_same_and_none_disturbs_another(peer: Peer) -> None:
    task_id = asked(peer)
    streams = [subscribe(peer, task_id) for _ in range(3)]
    for stream in streams:
        next(stream.frames())
    streams[1].close()

    peer.call("SendMessage", message("large", taskId=task_id))

    first, last = all_frames(streams[0]), all_frames(streams[2])
    assert [frame.lines for frame in first] == [frame.lines for frame in last]
    assert first[-1].json["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


# -- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("SubscribeToTask", {"id": "nope"}, -32001),
        ("SubscribeToTask", {"id": "{finished}"}, -32004),
        ("SubscribeToTask", {}, -32602),
        ("SendStreamingMessage", {}, -32602),
        ("SendStreamingMessage", message(taskId="nope"), -32001),
        ("SendStreamingMessage", message(taskId="{finished}"), -32004),
        ("SendStreamingMessage", message(taskId="{asked}", contextId="other"), -32602),
        ("SendStreamingMessage", {**message(), "configuration": {"historyLength": -1}}, -32602),
    ],
)
def test_an_error_before_the_stream_is_a_plain_answer(
    method: str, params: dict[str, Any], expected: int, peer: Peer
) -> None:
    ids = {"{finished}": finished, "{asked}": asked}
    for holder in (params, params.get("message", {})):
        for key, value in list(holder.items()):
            if isinstance(value, str) and value in ids:
                holder = {**holder, key: ids[value](peer)}
                params = {**params, "message": holder} if "message" in params else holder

    answer = peer.call(method, params, id="e")

    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert (answer.error["code"], answer.json["id"]) == (expected, "e")


class Failing(MemoryStore):
    """A store whose entries of logs cannot be read while `error` is set."""

    error: Exception | None = None

    def log(self, owner: Owner, task_id: str, *, limit: int = 1000, **bounds: Any) -> LogPage:
        if self.error is not None and limit:
            raise self.error
        return super().log(owner, task_id, limit=limit, **bounds)


def assert_shows_only_an_id(frame: Frame, log: str) -> None:
    error = frame.json["error"]
    incident = re.fullmatch(r"internal error \(id (\w+)\)", error["message"])
    assert (error["code"], frame.id) == (-32603, None)
    assert incident
    assert incident.group(1) in log


@pytest.mark.parametrize("error", [RuntimeError("secret"), StoreError("secret")])
def test_a_fault_within_a_stream_is_its_last_event_and_says_nothing_but_an_id(
    error: Exception, make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    store = Failing()
    peer = make_peer(store=store, max_buffered_batches=1)
    with send(peer, "count 100") as answer, caplog.at_level(logging.ERROR, logger="a2a_sync"):
        frames = answer.frames()
        first = next(frames)
        # The run has ended and the queue could not hold it: the rest must come from the log.
        assert_ends(peer, first.json["result"]["task"]["id"])
        store.error = error
        *_, last = frames

    assert last.json["id"] == "s-1"
    assert_shows_only_an_id(last, caplog.text)
    assert "secret" in caplog.text
    assert "secret" not in str(last)


def test_an_error_of_the_protocol_within_a_stream_is_sent_as_it_is(make_peer: MakePeer) -> None:
    store = Failing()
    peer = make_peer(store=store)
    task_id = asked(peer)
    store.error = UnsupportedOperationError("the log is closed")

    (frame,) = all_frames(subscribe(peer, task_id, 1))

    assert (frame.id, frame.json["error"]["code"]) == (None, -32004)
    assert frame.json["error"]["message"] == "the log is closed"


def test_what_a_run_sends_that_json_cannot_say_fails_the_task_and_says_nothing_but_an_id(
    make_peer: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent("nan", description="Not a number")

    @agent.message
    def answer_nan(message: Message, context: RequestContext) -> Iterator[DataPart]:
        yield DataPart({"secret": float("nan")})

    with caplog.at_level(logging.ERROR, logger="a2a_sync"), send(make_peer(agent), "x") as answer:
        *_, last = answer.events()

    status = last["statusUpdate"]["status"]
    assert status["state"] == "TASK_STATE_FAILED"
    assert re.fullmatch(r"internal error \(id \w+\)", status["message"]["parts"][0]["text"])


# -- silence ------------------------------------------------------------------------------------------------------------


def test_a_stream_with_nothing_to_say_begins_at_once(make_peer: MakePeer) -> None:
    peer = make_peer(disconnect_check_interval=30, stream_keepalive_interval=60)
    task_id = asked(peer)
    version = all_versions(peer, task_id)

    with subscribe(peer, task_id, version) as answer:
        watch = Stopwatch()
        assert answer.chunk().startswith(b":")

    assert watch.within(5)


def all_versions(peer: Peer, task_id: str) -> int:
    """The number of a task's newest entry."""
    with subscribe(peer, task_id) as answer:
        number = next(answer.frames()).id
    assert number is not None
    return number


def test_a_silent_stream_gives_signs_of_life(make_peer: MakePeer) -> None:
    peer = make_peer(disconnect_check_interval=0.01, stream_keepalive_interval=0.05)
    task_id = asked(peer)
    with subscribe(peer, task_id) as answer:
        frames = answer.frames()
        assert members(next(frames)) == {"task"}
        started = time.monotonic()
        beats = [next(frames) for _ in range(4)]
        took = time.monotonic() - started

    assert took >= 0.2
    assert [beat.lines for beat in beats] == [(": heartbeat",)] * 4


def test_a_stream_that_speaks_needs_no_signs_of_life(make_peer: MakePeer) -> None:
    frames = all_frames(send(make_peer(stream_keepalive_interval=30), "count 200"))

    assert all(frame.field("data") is not None for frame in frames)


def test_a_stream_ends_cleanly_at_the_end_of_its_life_and_the_task_goes_on(make_peer: MakePeer) -> None:
    peer = make_peer(max_stream_age=0.1)
    task_id = waiting(peer)
    watch = Stopwatch()

    frames = all_frames(subscribe(peer, task_id))

    assert watch.within(5)
    assert members(frames[0]) == {"task"}
    assert all("error" not in frame.json for frame in frames if frame.field("data") is not None)
    assert state(peer, task_id) == "TASK_STATE_WORKING"


class Endless:
    """A stream that always has one event more."""

    def poll(self, timeout: float) -> list[StreamItem]:
        return [StreamItem(ANSWER)]

    def notify(self, callback: Callable[[], None]) -> None: ...

    def __iter__(self) -> Iterator[StreamItem]:
        return iter(())

    def close(self) -> None: ...


ANSWER = Message(role=Role.AGENT, parts=(TextPart("x"),))


def test_even_a_stream_that_never_falls_silent_ends() -> None:
    limits = Limits(max_stream_age=0.2)
    body = EventStreamBody(Endless(), EventEnvelope(1), by_version("1.0"), Connection({}, lambda: False), limits)
    watch = Stopwatch()

    pieces = sum(1 for _ in itertools.takewhile(lambda _: watch.within(5), body))

    assert pieces > 10
    assert watch.within(5, least=0.15)


# -- pauses, where the server continues streams -------------------------------------------------------------------------


@contextmanager
def paused(
    peer: Peer, task_id: str, environ: dict[str, Any] | None = None
) -> Iterator[tuple[EventStreamBody, Iterator[bytes]]]:
    """The stream of a task, paused after its first event."""
    body = rpc("SubscribeToTask", {"id": task_id})
    with Peer(peer.served, valid=False).open("POST", "/", body, JSON_HEADERS, environ) as answer:
        stream = answer.iterable
        assert isinstance(stream, EventStreamBody)
        stream.allow_pauses(lambda: False)
        assert b'"task"' in answer.chunk()
        assert answer.chunk() == b""
        yield stream, answer.chunks


def test_a_paused_stream_continues_at_its_next_event_on_any_thread(peer: Peer) -> None:
    task_id = waiting(peer)
    with paused(peer, task_id) as (stream, chunks):
        resumed = threading.Event()
        stream.resume_when_woken(resumed.set)
        assert not resumed.is_set()

        peer.call("CancelTask", {"id": task_id})

        assert resumed.wait(10)
        with ThreadPoolExecutor(1) as another:
            assert b"TASK_STATE_CANCELED" in another.submit(b"".join, chunks).result(30)


def test_an_event_that_came_before_a_stream_was_waited_for_continues_it_at_once(peer: Peer) -> None:
    task_id = waiting(peer)
    with paused(peer, task_id) as (stream, chunks):
        peer.call("CancelTask", {"id": task_id})
        resumed = threading.Event()
        stream.resume_when_woken(resumed.set)

        assert resumed.is_set()
        assert b"TASK_STATE_CANCELED" in b"".join(chunks)


def test_a_paused_stream_is_due_when_its_client_left(peer: Peer) -> None:
    left = threading.Event()
    with paused(peer, waiting(peer), {"waitress.client_disconnected": left.is_set}) as (stream, chunks):
        assert not stream.is_due(time.monotonic())
        left.set()
        eventually(lambda: stream.is_due(time.monotonic()), "the next check of the connection")
        assert list(chunks) == []


def test_a_paused_stream_is_due_for_its_next_heartbeat(make_peer: MakePeer) -> None:
    peer = make_peer(stream_keepalive_interval=0.2)
    with paused(peer, waiting(peer)) as (stream, chunks):
        eventually(lambda: stream.is_due(time.monotonic()), "the time of the heartbeat")
        assert next(chunks) == b": heartbeat\n\n"
        assert next(chunks) == b""


def test_a_paused_stream_is_due_when_its_store_is_read_again(make_peer: MakePeer) -> None:
    peer = make_peer(store_poll_interval=0.2)
    with paused(peer, waiting(peer)) as (stream, chunks):
        eventually(lambda: stream.is_due(time.monotonic()), "the time of the next attempt")
        assert next(chunks) == b""


def test_a_stream_that_may_not_pause_any_more_waits_for_its_end(peer: Peer) -> None:
    task_id = waiting(peer)
    with paused(peer, task_id) as (stream, chunks):
        stream.forbid_pauses()
        with ThreadPoolExecutor(1) as another:
            rest = another.submit(list, chunks)
            peer.call("CancelTask", {"id": task_id})
            assert b"" not in rest.result(30)


def endless(limits: Limits, contended: Callable[[], bool]) -> EventStreamBody:
    """A stream that always has an event."""
    body = EventStreamBody(Endless(), EventEnvelope(1), by_version("1.0"), Connection({}, lambda: False), limits)
    body.allow_pauses(contended)
    return body


def test_a_stream_of_many_events_pauses_while_others_wait_for_its_thread() -> None:
    body = endless(Limits(max_stream_age=60), lambda: True)
    watch, pieces = Stopwatch(), iter(body)
    written = sum(1 for _ in itertools.takewhile(bool, pieces))
    assert written
    assert watch.within(5)

    resumed = threading.Event()
    body.resume_when_woken(resumed.set)

    assert resumed.is_set()
    assert next(pieces)


def test_a_stream_of_many_events_does_not_pause_for_itself() -> None:
    pieces = list(endless(Limits(max_stream_age=0.1), lambda: False))
    assert pieces
    assert all(pieces)


def test_a_stream_without_an_event_pauses_at_once_while_others_wait_for_its_thread(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 60.0)
    body = rpc("SubscribeToTask", {"id": waiting(peer)})
    with Peer(peer.served, valid=False).open("POST", "/", body, JSON_HEADERS) as answer:
        assert isinstance(answer.iterable, EventStreamBody)
        answer.iterable.allow_pauses(lambda: True)
        watch = Stopwatch()
        assert b'"task"' in answer.chunk()
        assert answer.chunk() == b""
        assert watch.within(5)


# -- the end ------------------------------------------------------------------------------------------------------------


def opened(peer: Peer, environ: dict[str, Any]) -> OpenAnswer:
    return peer.open("POST", "/", rpc("SubscribeToTask", {"id": asked(peer)}), JSON_HEADERS, environ)


def test_a_client_that_left_ends_its_stream_and_not_the_task(peer: Peer) -> None:
    left = threading.Event()
    body = rpc("SendStreamingMessage", message("wait"))
    with peer.open("POST", "/", body, JSON_HEADERS, {"waitress.client_disconnected": left.is_set}) as answer:
        frames = answer.frames()
        task_id = next(frames).json["result"]["task"]["id"]
        left.set()
        assert all("error" not in frame.json for frame in frames if frame.field("data") is not None)

    assert state(peer, task_id) == "TASK_STATE_WORKING"


def test_a_stopping_server_ends_its_streams() -> None:
    app = A2AApp(ScenarioAgent(), limits=Limits(disconnect_check_interval=0.02))
    peer = Peer(app)
    with subscribe(peer, asked(peer)) as answer:
        frames = answer.frames()
        next(frames)
        app.close(0)
        assert [frame for frame in frames if frame.field("data") is not None] == []


@pytest.mark.parametrize("method", ["SendStreamingMessage", "SubscribeToTask"])
def test_a_stream_too_many_is_refused_and_leaves_no_trace(method: str, make_peer: MakePeer) -> None:
    store = MemoryStore()
    peer = make_peer(store=store, max_open_streams=1)
    task_id = asked(peer)
    params = message() if method == "SendStreamingMessage" else {"id": task_id}
    with subscribe(peer, task_id):
        answer = peer.call(method, params, id="busy")

        assert (answer.status, answer.error["code"], answer.json["id"]) == (429, -32000, "busy")
        assert answer.headers["Content-Type"] == "application/json"
        assert int(answer.headers["Retry-After"]) >= 1
        assert store.list(Owner(), TaskQuery()).total == 1
        assert state(peer, task_id) == "TASK_STATE_INPUT_REQUIRED"

    assert all_frames(peer.stream("SendStreamingMessage", message()))


def test_a_refused_stream_gives_its_place_back(make_peer: MakePeer) -> None:
    peer = make_peer(max_open_streams=1)
    for _ in range(5):
        assert peer.call("SubscribeToTask", {"id": "nope"}).error["code"] == -32001
        assert peer.call("SendStreamingMessage", message(taskId="nope")).error["code"] == -32001


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_a_closed_stream_frees_its_place_once_and_its_subscription(frames: int, make_peer: MakePeer) -> None:
    peer = make_peer(max_open_streams=1, stream_keepalive_interval=0.02)
    task_id = asked(peer)
    before = subscriptions()
    for _ in range(3):
        answer = subscribe(peer, task_id)
        taken = answer.frames()
        for _ in range(frames):
            next(taken)
        answer.close()
        answer.iterable.original_iterator.close()  # a server may close twice
    with subscribe(peer, task_id):
        assert peer.call("SubscribeToTask", {"id": task_id}).status == 429

    del answer, taken
    assert subscriptions() == before


def subscriptions() -> int:
    """How many are held."""
    gc.collect()
    return sum(type(item) is Subscription for item in gc.get_objects())


@pytest.mark.parametrize("iterate", [True, False])
def test_the_socket_is_lent_with_a_write_limit_and_given_back_without(iterate: bool, make_peer: MakePeer) -> None:
    peer = make_peer(write_timeout=4.5)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(99)
        answer = opened(peer, {"gunicorn.socket": ours})
        if iterate:
            answer.chunk()
            assert ours.gettimeout() == 4.5
        answer.close()
        assert ours.gettimeout() == 99


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_does_not_read_is_cut_off_where_a_polite_server_would_wait_for_it(
    reads: bool, make_peer: MakePeer
) -> None:
    peer = make_peer(write_timeout=0.05 if not reads else 60)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answer = opened(peer, {"gunicorn.socket": ours})
        answer.chunk()
        # What a server does with a chunk that is larger than all buffers; its client reads only this far.
        ours.settimeout(0.06)
        with pytest.raises(TimeoutError):
            ours.sendall(b"x" * 50_000_000)
        answer.close()
        theirs.settimeout(5)
        while len(data := theirs.recv(1 << 20)) > 0 and not reads:
            pass
        assert (data == b"") is not reads


def test_a_body_is_read_within_its_own_limit(make_peer: MakePeer) -> None:
    peer = make_peer(body_idle_timeout=0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as body:
        theirs.sendall(rpc("ListTasks")[:20])
        answer = peer.post(b"", environ={"gunicorn.socket": ours, "wsgi.input": body, "CONTENT_LENGTH": "60"})

        assert answer.error["code"] == -32700
        assert ours.gettimeout() is None


def test_a_stream_keeps_no_event_that_it_has_written() -> None:
    """Where its client reads slowly, the bytes that wait for it are the only ones in memory."""
    large = Message(role=Role.AGENT, parts=(TextPart("x" * 5_000_000),))

    class Large(Endless):
        def poll(self, timeout: float) -> list[StreamItem]:
            return [StreamItem(large)]

    body = EventStreamBody(Large(), EventEnvelope(1), by_version("1.0"), Connection({}, lambda: False), Limits())
    tracemalloc.start()
    try:
        frames = iter(body)
        assert len(next(frames)) > 5_000_000
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
