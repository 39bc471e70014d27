"""Streams through a proxy that cuts them: the client sees the events of an uncut stream, once and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from werkzeug.serving import WSGIRequestHandler, make_server

from a2a_sync import A2AApp, Client, Retry, Task, TaskState, Timeout
from a2a_sync.stores.base import Expiry
from a2a_sync.types import StreamResponse, new_id
from tests.faults.agent import make_app
from tests.faults.proxy import Cut, proxy

QUICK = Retry(max_elapsed=10, initial_backoff=0.002, max_backoff=0.05)


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def serving(app: A2AApp) -> Iterator[tuple[str, int]]:
    """Serve `app` on threads of this process; yield its address."""
    with app:
        server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield "127.0.0.1", server.server_port
        finally:
            server.shutdown()
            thread.join(60)
            server.server_close()


def shown(client: Client, text: str, key: str, **options: Any) -> list[StreamResponse]:
    """The events of one send; fails if one of them is a snapshot after compaction."""
    events = []
    with client.stream(text, idempotency_key=key, **options) as stream:
        for event in stream:
            assert not stream.resynchronised
            events.append(event)
    return events


@pytest.fixture(params=["memory", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    store = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/t.db"
    with serving(make_app(store=store)) as address:
        yield address


def url(address: tuple[str, int]) -> str:
    return f"http://{address[0]}:{address[1]}"


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("text", ["count 7", "slowly 7"])
def test_a_stream_cut_three_times_has_every_event_once(
    address: tuple[str, int], how: Literal["close", "reset", "half"], text: str
) -> None:
    key = new_id()
    with (
        proxy(address, *[Cut(events=3, how=how)] * 3) as between,
        Client(between.url, retry=QUICK) as client,
        Client(url(address)) as uncut,
    ):
        events = shown(client, text, key)
        assert len(events) == 10
        assert events == shown(uncut, text, key)
        assert between.matched == 4
        assert not between.cuts


@pytest.mark.parametrize(
    "options", [{"protocol_binding": "HTTP+JSON"}, {"protocol_version": "0.3"}], ids=["HTTP+JSON", "0.3"]
)
def test_cut_streams_resume_over_every_binding_and_version(address: tuple[str, int], options: dict[str, str]) -> None:
    key = new_id()
    cuts = [Cut(octets=0), Cut(events=3), Cut(events=3, how="reset"), Cut(octets=300, how="half")]
    with (
        proxy(address, *cuts) as between,
        Client(between.url, retry=QUICK, **options) as client,  # type: ignore[arg-type]
        Client(url(address), **options) as uncut,  # type: ignore[arg-type]
    ):
        events = shown(client, "slowly 7", key)
        assert len(events) == 10
        assert events == shown(uncut, "slowly 7", key)
        assert not between.cuts


def test_a_compacted_log_is_replaced_by_one_marked_snapshot() -> None:
    app = make_app()
    key = new_id()
    with (
        serving(app) as address,
        proxy(address, Cut(events=3)) as between,
        Client(between.url, retry=QUICK) as client,
        Client(url(address)) as direct,
    ):
        with client.stream("count 100", idempotency_key=key) as stream:
            events = [next(stream) for _ in range(3)]
            between.target = None
            ended = direct.wait(stream.task_id)
            app.store.sweep(Expiry(replay=time.time_ns() // 1_000_000 + 60_000))
            between.target = address
            last = next(stream)
            assert stream.resynchronised
            assert (last.status, last.artifacts) == (ended.status, ended.artifacts)  # type: ignore[union-attr]
            assert list(stream) == []
            assert stream.task is not None
            assert stream.task.text == ended.text
        assert len(events) == 3
        # A repeated send gets no replay either, but the task.
        assert client.send("count 100", idempotency_key=key).text == ended.text


def test_a_send_through_cuts_returns_the_stored_task(address: tuple[str, int]) -> None:
    cuts = [Cut(octets=0), Cut(events=0), Cut(events=1), Cut(octets=700), Cut(events=2, how="reset")]
    with proxy(address, *cuts) as between, Client(between.url, retry=QUICK) as client:
        task = client.send("slowly 12", history_length=10)
        assert isinstance(task, Task)
        assert task == client.get_task(task.id, history_length=10)
        assert task.text == "".join(f"{number} " for number in range(12))
        assert not between.cuts


def test_waiting_continues_through_cuts(address: tuple[str, int]) -> None:
    cuts = [Cut(events=1), Cut(octets=0), Cut(events=2, how="half"), Cut(octets=500, how="reset")]
    with proxy(address, *cuts) as between, Client(between.url, retry=QUICK) as client:
        begun = client.send("slowly 20", return_immediately=True)
        assert isinstance(begun, Task)
        task = client.wait(begun.id, timeout=60)
        assert task.state is TaskState.COMPLETED
        assert task.text == "".join(f"{number} " for number in range(20))


def test_a_stalled_connection_counts_as_cut_after_the_idle_limit(address: tuple[str, int]) -> None:
    key = new_id()
    with (
        proxy(address, *[Cut(events=3, how="stall")] * 2) as between,
        Client(between.url, retry=QUICK, timeout=Timeout(read=0.3)) as client,
        Client(url(address)) as uncut,
    ):
        assert shown(client, "count 7", key) == shown(uncut, "count 7", key)


@pytest.mark.parametrize("text", ["ask 3", "ask"])
def test_a_question_ends_a_stream_cut_before_it(address: tuple[str, int], text: str) -> None:
    key = new_id()
    with (
        proxy(address, Cut(events=1), Cut(octets=0)) as between,
        Client(between.url, retry=QUICK) as client,
        Client(url(address)) as uncut,
    ):
        with client.stream(text, idempotency_key=key) as stream:
            events = list(stream)
            assert stream.state is TaskState.INPUT_REQUIRED
        assert events == shown(uncut, text, key)
        again = new_id()
        between.cuts.extend([Cut(events=1), Cut(events=1)])
        answered = shown(client, "more", again, task_id=stream.task_id)
        assert answered == shown(uncut, "more", again, task_id=stream.task_id)


def test_the_client_resumes_streams_that_the_server_ends_early() -> None:
    key = new_id()
    with (
        serving(make_app(max_stream_age=0.1)) as address,
        proxy(address) as between,
        Client(between.url, retry=QUICK) as client,
    ):
        events = shown(client, "slowly 30", key)
        assert between.matched > 3
        # A finished run is sent as one snapshot, so this one keeps running.
        assert events == shown(client, "slowly 30", key)
        assert len(events) == 33


@pytest.mark.parametrize("queue", [1, 2])
def test_a_full_queue_loses_nothing(queue: int) -> None:
    key = new_id()
    with (
        serving(make_app(max_buffered_batches=queue)) as address,
        proxy(address, Cut(events=100), Cut(octets=9000, how="reset"), Cut(events=333)) as between,
        Client(between.url, retry=QUICK) as client,
        Client(url(address)) as uncut,
    ):
        events = shown(client, "count 1500", key)
        assert len(events) == 1503
        assert events == shown(uncut, "count 1500", key)
        assert not between.cuts


places = st.one_of(
    st.builds(Cut, events=st.integers(0, 12), how=st.sampled_from(["close", "reset", "half"])),
    st.builds(Cut, octets=st.integers(0, 4000), how=st.sampled_from(["close", "reset", "half"])),
)


@pytest.fixture(scope="module")
def beating() -> Iterator[tuple[str, int]]:
    """A server that sends keepalive comments between events."""
    with serving(make_app(disconnect_check_interval=0.002, stream_keepalive_interval=0.004)) as address:
        yield address


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(places, max_size=6), st.sampled_from(["count 7", "slowly 4", "ask 5"]))
@example([Cut(octets=0)] * 5, "count 7")
@example([Cut(events=9)], "count 7")
def test_a_stream_cut_anywhere_is_complete(beating: tuple[str, int], cuts: list[Cut], text: str) -> None:
    key = new_id()
    with (
        proxy(beating, *cuts) as between,
        Client(between.url, retry=QUICK) as client,
        Client(url(beating)) as uncut,
    ):
        received: list[StreamResponse] = []
        with client.stream(text, idempotency_key=key, timeout=60) as stream:
            for event in stream:
                assert not stream.resynchronised
                received.append(event)
            assert stream.state.paused
            assert stream.task is not None
            assert stream.task.artifacts == uncut.get_task(stream.task_id).artifacts
        assert received == shown(uncut, text, key)
