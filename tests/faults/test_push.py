"""Receivers that refuse and hang, workers that are killed, servers that restart: every event is delivered in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from a2a_sync import Client, Task
from a2a_sync.stores import open_store
from a2a_sync.stores.base import Owner
from tests.engine import eventually
from tests.faults.conftest import Place
from tests.live import LiveServer
from tests.push.receiver import Post, Receiver, hanging, receiving, refused, state
from tests.soak.watch import children

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class Site:
    """A store and the servers that run on it."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @contextmanager
    def server(self, workers: int = 2) -> Iterator[LiveServer]:
        place = self._place
        with place.server("tests.faults.pushing:make_app()", workers=workers, environment=place.environment) as server:
            yield server

    def delivering_process(self, server: LiveServer, receiver: Receiver) -> int:
        """The process that has a connection to the receiver; 0: none."""
        port = int(receiver.url.split(":")[2].partition("/")[0])
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if int(row[2].partition(":")[2], 16) == port}
        for parent in self._place.parents(server):
            for pid in children(parent):
                links = {_link(descriptor) for descriptor in Path(f"/proc/{pid}/fd").iterdir()}
                if links & sockets:
                    return pid
        return 0

    def numbers(self, task_id: str) -> list[int]:
        """The numbers of the events for a webhook of the task, from its start."""
        with closing(open_store(self._place.store)) as store:
            return [entry.number for entry in store.log(Owner(), task_id).entries if entry.streamed]


@pytest.fixture
def site(place: Place) -> Site:
    return Site(place)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def begin(server: LiveServer, text: str, receiver: Receiver) -> str:
    with Client(server.url) as client:
        task = client.send(text, push_config=receiver.config(), return_immediately=True)
        assert isinstance(task, Task)
        return task.id


def number(post: Post) -> int:
    return int(post.headers["x-a2a-notification-id"].rpartition("/")[2])


def numbers_without_repetitions(posts: list[Post]) -> list[int]:
    """The numbers of accepted notifications without repetitions; only the latest may be repeated, so that the order holds."""
    numbers: list[int] = []
    for post in posts:
        if not numbers or number(post) != numbers[-1]:
            numbers.append(number(post))
    return numbers


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_notifications_survive_failing_receivers_workers_and_servers(site: Site, receiver: Receiver) -> None:
    receiver.plan(refused(503), refused(503), refused(503), then=hanging)
    with site.server() as server:
        task_id = begin(server, "slowly 40", receiver)
        receiver.await_count(4, tried=True)
        worker = eventually(lambda: site.delivering_process(server, receiver), "a process that waits for the receiver")
        receiver.plan()
        os.kill(worker, signal.SIGKILL)
        # The receiver accepts a few notifications from here on, and then refuses until the server has been stopped.
        receiver.await_count(5)
        receiver.plan(then=refused(503))
        server.terminate()
    assert not any(state(post.body) in ("completed", "failed") for post in receiver.posts)
    receiver.plan()
    with site.server():
        posts = receiver.await_end()
    assert numbers_without_repetitions(posts) == site.numbers(task_id)


def test_a_restarted_server_delivers_the_notifications_of_a_killed_one(site: Site, receiver: Receiver) -> None:
    receiver.plan(then=refused(503, Retry_After="1"))
    with site.server() as server:
        task_ids = [begin(server, f"count {5 + n}", receiver) for n in range(4)]
        with Client(server.url) as client:
            for task_id in task_ids:
                client.wait(task_id, timeout=60)
        receiver.await_count(4, tried=True)
        server.kill()
    receiver.plan()
    with site.server():
        receiver.await_posts(lambda posts: sum(state(post.body) == "completed" for post in posts) >= 4)
    for task_id in task_ids:
        posts = [post for post in receiver.posts if post.headers["x-a2a-notification-id"].startswith(task_id)]
        assert numbers_without_repetitions(posts) == site.numbers(task_id)


def test_the_failure_of_a_lost_run_is_delivered(site: Site, receiver: Receiver) -> None:
    with site.server(workers=1) as server:
        task_id = begin(server, "hold 3", receiver)
        receiver.await_count(5)
        server.kill()
    with site.server(workers=1):
        posts = receiver.await_end()
    assert state(posts[-1].body) == "failed"
    assert numbers_without_repetitions(posts) == site.numbers(task_id)
