"""Killed and restarted servers, one or several: a client behind a proxy notices only a delay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from a2a_sync import Client, Retry, Task, TaskState, TransportError
from a2a_sync.errors import InvalidParamsError
from a2a_sync.types import StreamResponse, new_id
from tests.engine import Background, eventually
from tests.faults.conftest import Place
from tests.faults.proxy import Cut, Proxy, proxy
from tests.live import LiveServer, gunicorn

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

PATIENT = Retry(max_elapsed=40, initial_backoff=0.01, max_backoff=0.2)


class Site:
    """A store and the servers that run on it."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @contextmanager
    def server(self, workers: int = 1) -> Iterator[LiveServer]:
        options = ("-c", "python:a2a_sync.gunicorn")
        place = self.place
        with gunicorn(
            place.target, *options, threads=place.threads, workers=workers, environment=place.environment
        ) as server:
            yield server

    @property
    def runs(self) -> list[str]:
        """The recorded runs."""
        runs = self.place.runs
        return runs.read_text().splitlines() if runs.exists() else []


@pytest.fixture
def site(place: Place) -> Site:
    return Site(place)


def events_of(client: Client, text: str, key: str, **options: Any) -> list[StreamResponse]:
    events = []
    with client.stream(text, idempotency_key=key, timeout=60, **options) as stream:
        for event in stream:
            assert not stream.resynchronised
            events.append(event)
    return events


def states(events: list[StreamResponse]) -> list[TaskState]:
    return [event.status.state for event in events if hasattr(event, "status")]


@contextmanager
def through(between: Proxy) -> Iterator[Client]:
    with Client(between.url, retry=PATIENT) as client:
        client.card(timeout=60)
        yield client


@pytest.mark.parametrize("text", ["count 7", "ask 5"])
def test_a_cut_stream_is_resumed_at_another_server(site: Site, text: str) -> None:
    """The task ends (or asks) while its stream is cut and its server is killed; the next server has only the store."""
    key = new_id()
    with proxy(None, *[Cut(events=3)] * 3) as between, site.server() as first, Client(first.url) as direct:
        between.target = first.address
        with through(between) as client:
            reader = Background(lambda: events_of(client, text, key))
            eventually(lambda: len(between.cuts) < 3 and _refuse(between), "the first cut")
            uncut = events_of(direct, text, key)
            first.kill()
            with site.server() as second:
                between.target = second.address
                events = reader.result(60)
    assert events == uncut
    assert len(events) == (10 if text == "count 7" else 8) + site.place.queued
    assert site.runs == [text]
    assert states(events)[-1].paused


def _refuse(between: Proxy) -> bool:
    between.target = None
    return True


def test_the_stream_of_a_lost_run_ends_with_its_failure(site: Site) -> None:
    key = new_id()
    with proxy(None) as between, site.server() as first:
        between.target = first.address
        with through(between) as client:
            on_event = threading.Semaphore(0)
            reader = Background(lambda: _read(client, "hold 5", key, on_event.release))
            for _ in range(6):
                assert on_event.acquire(timeout=60)
            between.target = None
            first.kill()
            with site.server() as second:
                between.target = second.address
                events = reader.result(40)
    assert len(events) == 7
    assert states(events) == [TaskState.WORKING, TaskState.FAILED]
    assert events[-1].status.message.text == "worker lost"
    assert site.runs == ["hold 5"]


def _read(client: Client, text: str, key: str, on_event: Callable[[], object]) -> list[Any]:
    events = []
    with client.stream(text, idempotency_key=key, timeout=60) as stream:
        for event in stream:
            assert not stream.resynchronised
            events.append(event)
            on_event()
    return events


def test_a_send_to_a_server_killed_before_its_response_is_run_once(site: Site) -> None:
    with proxy(None, Cut(octets=0)) as between, site.server() as first:
        between.target = first.address
        with through(between) as client:
            sender = Background(lambda: client.send("count 4", timeout=60))
            eventually(lambda: not between.cuts and _refuse(between), "the lost answer")
            with Client(first.url) as direct:
                eventually(lambda: _ended(direct), "the run's end")
            first.kill()
            with site.server() as second:
                between.target = second.address
                task = sender.result(40)
                assert client.list_tasks().total_size == 1
    assert (task.state, task.text) == (TaskState.COMPLETED, "0 1 2 3 ")
    assert site.runs == ["count 4"]


def _ended(client: Client) -> bool:
    tasks = client.list_tasks().tasks
    return bool(tasks) and tasks[0].state is TaskState.COMPLETED


def test_a_send_is_retried_across_restarts(site: Site) -> None:
    """The client retries until a server is available."""
    with proxy(None) as between, site.server() as first:
        between.target = first.address
        with through(between) as client:
            sender = Background(lambda: client.send("ask 3", timeout=60))
            eventually(lambda: between.matched, "the request")
            first.kill()
            with pytest.raises(TransportError), Client(first.url, retry=None) as direct:
                direct.list_tasks()
            with site.server() as second:
                between.target = second.address
                task = sender.result(40)
    # The first server may or may not have started the run; no run is repeated.
    assert task.state in (TaskState.INPUT_REQUIRED, TaskState.FAILED)
    assert site.runs in ([], ["ask 3"])


# -- several workers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("return_immediately", [False, True], ids=["stream", "plain"])
def test_a_lost_response_is_repeated_by_any_worker(site: Site, return_immediately: bool) -> None:
    match = b'"SendMessage"' if return_immediately else b'"SendStreamingMessage"'
    with site.server(workers=3) as server, proxy(server.address, match=match) as between:
        ids = []
        for number in range(12):
            # New connections each time, so that the kernel selects a worker.
            between.cuts.extend([Cut(octets=0)] * 2)
            with through(between) as client:
                task = client.send(f"slowly {number}", return_immediately=return_immediately, timeout=60)
                assert isinstance(task, Task)
                assert client.wait(task.id, timeout=60).text == "".join(f"{n} " for n in range(number))
                ids.append(task.id)
            assert not between.cuts
        with Client(server.url) as direct:
            assert {task.id for task in direct.list_tasks().tasks} == set(ids)
    assert len(ids) == 12
    assert sorted(site.runs) == sorted(f"slowly {number}" for number in range(12))


def test_concurrent_sends_with_one_key_at_many_workers_are_one_run(site: Site) -> None:
    def send(start: threading.Barrier, key: str) -> str:
        with Client(server.url, timeout=60) as client:
            client.card()
            start.wait(60)
            task = client.send("slowly 5", idempotency_key=key)
            assert isinstance(task, Task)
            assert (task.state, task.text) == (TaskState.COMPLETED, "0 1 2 3 4 ")
            return task.id

    with site.server(workers=3) as server:
        for _ in range(3):
            key, start = new_id(), threading.Barrier(8)
            senders = [Background(lambda start=start, key=key: send(start, key)) for _ in range(8)]  # type: ignore[misc]
            assert len({sender.result(40) for sender in senders}) == 1
        with Client(server.url) as client, pytest.raises(InvalidParamsError, match="Idempotency-Key"):
            client.send("slowly 6", idempotency_key=key)
    assert site.runs == ["slowly 5"] * 3


def test_cut_streams_are_resumed_at_another_worker(site: Site) -> None:
    def read(number: int) -> None:
        key = new_id()
        cuts = [Cut(events=1 + number % 3), Cut(octets=40 * number), Cut(events=2, how="reset")]
        with proxy(server.address, *cuts) as between, through(between) as client:
            events = events_of(client, "slowly 10", key)
        with Client(server.url) as direct:
            assert events == events_of(direct, "slowly 10", key)
        assert len(events) == 13 + site.place.queued

    with site.server(workers=3) as server:
        readers = [Background(lambda number=number: read(number)) for number in range(8)]  # type: ignore[misc]
        for reader in readers:
            reader.result(60)
    assert len(site.runs) == 8
