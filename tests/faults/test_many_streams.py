"""Thousands of streams at one worker: all are open at the same time, idle for a while, and end correctly."""

from __future__ import annotations

import json
import resource
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path

import pytest

from a2a_sync import Client, Task, TaskState
from tests.engine import eventually
from tests.live import LiveServer, gunicorn, gunicorn_gevent
from tests.soak.watch import children

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

APP = "tests.faults.many:app"
TASKS = 20
HOOK = ("-c", "python:a2a_sync.gunicorn", "--worker-connections", "6000")


class Streams:
    """Raw subscriptions, read by one thread."""

    def __init__(self, server: LiveServer, task_ids: list[str]) -> None:
        self._selector = selectors.DefaultSelector()
        self._address = server.address
        self._received: dict[socket.socket, bytearray] = {}
        self._task_ids: dict[socket.socket, str] = {}
        try:
            # Some at a time: a server that reads a database refuses what would wait for a connection too long.
            for number, task_id in enumerate(task_ids, 1):
                self._open(task_id)
                if number % 200 == 0:
                    self.read(b'"task":', 120)
        except BaseException:
            self.close()
            raise

    def _open(self, task_id: str) -> socket.socket:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: {self._address[0]}\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        one = socket.create_connection(self._address, timeout=60)
        one.sendall(head.encode() + body)
        one.setblocking(False)
        self._received[one] = bytearray()
        self._task_ids[one] = task_id
        self._selector.register(one, selectors.EVENT_READ)
        return one

    def _open_again(self, one: socket.socket) -> socket.socket:
        """Open a stream that a busy server has refused, as a client does."""
        one.close()
        del self._received[one]
        return self._open(self._task_ids.pop(one))

    def read(self, enough: bytes, seconds: float) -> float:
        """Read until every stream has received `enough`, or has ended if it is empty; return the seconds it took."""
        began = time.monotonic()
        left = {one for one in self._received if not enough or enough not in self._received[one]}
        while left:
            assert time.monotonic() - began < seconds, f"{len(left)} of {len(self._received)} streams are left"
            for key, _ in self._selector.select(1.0):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                data = one.recv(65536)
                self._received[one] += data
                if not data:
                    self._selector.unregister(one)
                    if enough and self._received[one].startswith(b"HTTP/1.1 503"):
                        left.remove(one)
                        left.add(self._open_again(one))
                        continue
                    assert not enough, bytes(self._received[one])
                if not data or (enough and enough in self._received[one]):
                    left.discard(one)
        return time.monotonic() - began

    def ends(self) -> list[bytes]:
        """The last bytes of each stream."""
        return [bytes(received) for received in self._received.values()]

    def close(self) -> None:
        for one in self._received:
            one.close()
        self._selector.close()


@pytest.mark.parametrize(
    ("streams", "kind", "serve"),
    [
        (1000, "gthread", partial(gunicorn, APP, *HOOK, worker="gthread", threads=1200)),
        (5000, "gevent", partial(gunicorn_gevent, APP, "--worker-connections", "6000")),
    ],
    ids=["gthread", "gevent"],
)
def test_thousands_of_concurrent_streams_end_correctly(
    streams: int,
    kind: str,
    serve: Callable[[], AbstractContextManager[LiveServer]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A worker has connections for three quarters of its files.
    allow_files(2 * streams)
    with serve() as server, Client(server.url, timeout=60) as client:
        tasks = [client.send("wait", return_immediately=True) for _ in range(TASKS)]
        ids = [task.id for task in tasks if isinstance(task, Task)]
        before = memory(server.pid)
        open_streams = Streams(server, [ids[number % TASKS] for number in range(streams)])
        try:
            opened = open_streams.read(b'"task":', 120)
            with capsys.disabled():
                print(f"\n{streams} streams, {kind}: {memory(server.pid) - before:.0f} MB for them")
            # All streams are open, and the server answers other calls.
            began = time.monotonic()
            assert client.get_task(ids[0]).state is TaskState.WORKING
            asked = time.monotonic() - began
            for task_id in ids:
                assert client.cancel_task(task_id).state is TaskState.CANCELED
            ended = open_streams.read(b"", 120)
            for said in open_streams.ends():
                assert said.startswith(b"HTTP/1.1 200")
                assert said.count(b"TASK_STATE_CANCELED") == 1
                assert said.rstrip().endswith(b"0")
        finally:
            open_streams.close()
        with capsys.disabled():
            print(
                f"opened after {opened:.1f} s, a call beside them {asked * 1000:.0f} ms, all ended after {ended:.1f} s"
            )
        assert "Traceback" not in server.log


def test_ten_thousand_streams_that_are_cut_at_once_leave_space_for_others(tmp_path: Path) -> None:
    cut_at_once(f"sqlite:///{tmp_path}/tasks.db")


def cut_at_once(store: str) -> None:
    """Cut 10,000 streams at one worker over `store`, then open a quarter of them again."""
    count = 10_000
    allow_files(count + 500)
    options = (*HOOK[:2], "--worker-connections", str(count + 100), "--worker-class", "gevent")
    # As many again do not fit in, unless what the first ones held is free.
    environment = {"MANY_STREAMS": str(count + count // 8), "MANY_STORE": store}
    with (
        gunicorn(APP, *options, threads=8, environment=environment) as server,
        Client(server.url, timeout=60) as client,
    ):
        tasks = [client.send("wait", return_immediately=True) for _ in range(TASKS)]
        ids = [task.id for task in tasks if isinstance(task, Task)]
        cut = Streams(server, [ids[number % TASKS] for number in range(count)])
        with closing(cut):
            cut.read(b'"task":', 120)
        (worker,) = children(server.pid)
        eventually(lambda: len(list(Path(f"/proc/{worker}/fd").iterdir())) < count / 10, "the end of the connections")
        with closing(Streams(server, [ids[number % TASKS] for number in range(count // 4)])) as again:
            again.read(b'"task":', 120)
            for task_id in ids:
                assert client.cancel_task(task_id).state is TaskState.CANCELED
            again.read(b"", 120)
            assert all(received.count(b"TASK_STATE_CANCELED") == 1 for received in again.ends())
        assert "Traceback" not in server.log


def allow_files(count: int) -> None:
    """Raise the limit of open files for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= count, f"this test opens {count} sockets; the system allows {hard}"
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def memory(pid: int) -> float:
    """The memory of a server and its workers in megabytes."""
    total = 0
    for one in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1000
