"""Receivers that refuse and hang, workers that are killed, servers that restart: every event arrives, in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from a2a_sync import Client, SQLiteStore, Task
from a2a_sync.stores.base import Owner
from tests.engine import eventually
from tests.live import LiveServer, gunicorn
from tests.push.receiver import Post, Receiver, hanging, receiving, refused, state

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class Site:
    """One store, and the servers that come and go on it."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "tasks.db"

    @contextmanager
    def server(self, workers: int = 2) -> Iterator[LiveServer]:
        environment = {"FAULT_STORE": f"sqlite:///{self.store}"}
        options = ("-c", "python:a2a_sync.gunicorn")
        with gunicorn(
            "tests.faults.pushing:app", *options, threads=8, workers=workers, environment=environment
        ) as server:
            yield server

    def numbers(self, task_id: str) -> list[int]:
        """What a webhook of the task is to be told of, from its beginning."""
        with closing(SQLiteStore(self.store)) as store:
            return [entry.number for entry in store.log(Owner(), task_id).entries if entry.streamed]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


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


def told_once_each(posts: list[Post]) -> list[int]:
    """The numbers of what was taken. What comes again must be what came last: nothing is told out of order."""
    told: list[int] = []
    for post in posts:
        if not told or number(post) != told[-1]:
            told.append(number(post))
    return told


def teller(server: LiveServer, receiver: Receiver) -> int:
    """The worker that has a connection to the receiver."""
    port = int(receiver.url.split(":")[2].partition("/")[0])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if int(row[2].partition(":")[2], 16) == port}
    for children in Path(f"/proc/{server.pid}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            links = {_link(descriptor) for descriptor in Path(f"/proc/{pid}/fd").iterdir()}
            if links & sockets:
                return pid
    return 0


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_every_event_arrives_whatever_happens_to_receiver_workers_and_server(site: Site, receiver: Receiver) -> None:
    receiver.plan(refused(503), refused(503), refused(503), then=hanging)
    with site.server() as server:
        task_id = begin(server, "slowly 40", receiver)
        receiver.await_count(4, tried=True)
        worker = eventually(lambda: teller(server, receiver), "a worker that waits for the receiver")
        receiver.plan()
        os.kill(worker, signal.SIGKILL)
        # From here on it takes a few, and then refuses until the server has gone.
        receiver.await_count(5)
        receiver.plan(then=refused(503))
        server.terminate()
    assert not any(state(post.body) in ("completed", "failed") for post in receiver.posts)
    receiver.plan()
    with site.server():
        posts = receiver.await_end()
    assert told_once_each(posts) == site.numbers(task_id)


def test_a_server_that_dies_whole_leaves_what_is_to_be_told_to_the_next(site: Site, receiver: Receiver) -> None:
    receiver.plan(then=refused(503, Retry_After="1"))
    with site.server() as server:
        task_ids = [begin(server, f"count {5 + n}", receiver) for n in range(4)]
        with Client(server.url) as client:
            for task_id in task_ids:
                client.wait(task_id, timeout=20)
        receiver.await_count(4, tried=True)
        server.kill()
    receiver.plan()
    with site.server():
        receiver.await_posts(lambda posts: sum(state(post.body) == "completed" for post in posts) >= 4)
    for task_id in task_ids:
        posts = [post for post in receiver.posts if post.headers["x-a2a-notification-id"].startswith(task_id)]
        assert told_once_each(posts) == site.numbers(task_id)


def test_a_run_that_dies_with_its_worker_is_told_as_lost(site: Site, receiver: Receiver) -> None:
    with site.server(workers=1) as server:
        task_id = begin(server, "hold 3", receiver)
        receiver.await_count(5)
        server.kill()
    with site.server(workers=1):
        posts = receiver.await_end()
    assert state(posts[-1].body) == "failed"
    assert told_once_each(posts) == site.numbers(task_id)
