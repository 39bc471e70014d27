"""Messages between processes: they reach all others, may be lost, and never block the sender."""

from __future__ import annotations

import errno
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Limits, MemoryStore, TaskState
from a2a_sync.stores.base import Owner, PubSub, TaskBatch
from a2a_sync.stores.inprocess import InProcessPubSub
from a2a_sync.stores.sqlite import pubsub as pubsub_module
from a2a_sync.stores.sqlite.pubsub import UnixSocketPubSub, sockets_folder
from tests.engine import TIMEOUT, Background, Gate, collect, in_child


def batch(task_id: str) -> TaskBatch:
    return TaskBatch(Owner(), task_id, ended=True)


def ignore(task_id: str, batch: TaskBatch | None) -> None:
    """Receives messages and does nothing."""


def no_gap() -> None:
    raise AssertionError("nothing was lost")


class Received:
    """The ids of the tasks that a `PubSub` got messages about."""

    def __init__(self, pubsub: PubSub) -> None:
        self._ids: queue.Queue[str] = queue.Queue()
        pubsub.start(lambda task_id, batch: self._ids.put(task_id), no_gap)

    def next(self) -> str:
        return self._ids.get(timeout=TIMEOUT)

    @property
    def none(self) -> bool:
        return self._ids.empty()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sockets"


@pytest.fixture
def received(folder: Path) -> Iterator[Received]:
    with closing(UnixSocketPubSub(folder)) as pubsub:
        received = Received(pubsub)
        for task_id in ("task-1", "task-2", "from-afar"):
            pubsub.subscribe(task_id)
        yield received
        assert pubsub.healthy


# -- every implementation -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["unix", "in process"])
def connect(request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
    made: list[Any] = []

    def connect() -> Any:
        made.append(UnixSocketPubSub(folder) if request.param == "unix" else InProcessPubSub(str(folder)))
        return made[-1]

    yield connect
    for pubsub in made:
        pubsub.close()


def test_a_message_reaches_all_others_that_subscribe_and_not_its_sender(connect: Any) -> None:
    pubsubs = [connect() for _ in range(3)]
    ends = [Received(pubsub) for pubsub in pubsubs]
    for pubsub in pubsubs:
        assert pubsub.healthy
        pubsub.subscribe("task-1")
        pubsub.subscribe("task-2")
    pubsubs[0].publish(batch("task-1"))
    assert [end.next() for end in ends[1:]] == ["task-1", "task-1"]
    pubsubs[1].publish(batch("task-2"))
    assert [ends[0].next(), ends[2].next()] == ["task-2", "task-2"]
    assert all(end.none for end in ends)


def test_a_task_is_subscribed_until_it_was_unsubscribed_as_often(connect: Any) -> None:
    sender, pubsub = connect(), connect()
    end = Received(pubsub)
    Received(sender)
    pubsub.subscribe("task-1")
    pubsub.subscribe("task-1")
    pubsub.unsubscribe("task-1")
    sender.publish(batch("task-1"))
    assert end.next() == "task-1"


def test_messages_about_tasks_without_a_subscription_are_not_sent(connect: Any) -> None:
    sender, pubsub = connect(), connect()
    end = Received(pubsub)
    Received(sender)
    for task_id in ("task-1", "task-2"):
        pubsub.subscribe(task_id)
    pubsub.unsubscribe("task-1")
    for task_id in ("task-1", "task-3", "task-2"):
        sender.publish(batch(task_id))
    assert end.next() == "task-2"
    assert end.none


def test_a_closed_one_gets_nothing_and_closing_twice_is_harmless(connect: Any) -> None:
    sender, closed, open_ = connect(), connect(), connect()
    ends = [Received(closed), Received(open_)]
    Received(sender)
    for pubsub in (closed, open_):
        pubsub.subscribe("task-1")
    closed.close()
    closed.close()
    sender.publish(batch("task-1"))
    assert ends[1].next() == "task-1"
    assert ends[0].none
    assert not closed.healthy


def test_a_forked_child_connects_again(connect: Any) -> None:
    sender, inherited = connect(), connect()
    Received(sender)
    Received(inherited)

    def child() -> None:
        end = Received(inherited)
        inherited.subscribe("task-1")
        other = connect()
        Received(other)
        other.publish(batch("task-1"))
        assert end.next() == "task-1"

    in_child(child)


# -- in one process -----------------------------------------------------------------------------------------------------


def test_apps_over_one_store_object_follow_each_others_tasks() -> None:
    gate, store = Gate(), MemoryStore()

    def make() -> A2AApp:
        agent = Agent("shared")

        @agent.message
        def handle(message, context):
            yield "one "
            gate.block()
            yield "two"

        return A2AApp(agent, store=store, pubsub=InProcessPubSub("follow"))

    with make() as first, make() as second, Client(first) as runs, Client(second) as follows:
        task = runs.send("go", return_immediately=True)
        gate.wait()
        with follows.subscribe(task.id) as stream:
            reader = Background(lambda: collect(stream))
            gate.open.set()
            events = reader.result()
        assert events
        assert stream.task.state is TaskState.COMPLETED
        assert stream.task.text == "one two"


class Recorded(InProcessPubSub):
    """Records what an app does with its pub/sub."""

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.subscriptions: list[int] = []
        self.published: list[TaskBatch] = []

    def publish(self, batch: TaskBatch) -> None:
        self.published.append(batch)
        super().publish(batch)

    def subscribe(self, task_id: str, *, soon: bool = False) -> None:
        self.subscriptions.append(+1)
        super().subscribe(task_id, soon=soon)

    def unsubscribe(self, task_id: str) -> None:
        self.subscriptions.append(-1)
        super().unsubscribe(task_id)


def test_a_task_that_is_stored_with_its_end_needs_no_message_and_no_subscription() -> None:
    agent, pubsub = Agent("short"), Recorded("short")
    agent.message(lambda message, context: message.text)
    limits = Limits(task_store_timeout=TIMEOUT)
    with A2AApp(agent, store=MemoryStore(), pubsub=pubsub, limits=limits) as app, Client(app) as client:
        assert client.send("hi").state is TaskState.COMPLETED
        assert (pubsub.subscriptions, pubsub.published) == ([], [])


def test_a_task_that_goes_on_is_subscribed_until_its_end_and_what_follows_its_start_is_published() -> None:
    gate, pubsub = Gate(), Recorded("long")
    agent = Agent("long")

    @agent.message
    def handle(message, context):
        assert context.task.state is TaskState.WORKING  # the task is stored with this
        gate.block()
        return "done"

    with A2AApp(agent, store=MemoryStore(), pubsub=pubsub) as app, Client(app) as client:
        sent = Background(lambda: client.send("hi"))
        gate.wait()
        assert sum(pubsub.subscriptions) > 0
        gate.open.set()
        assert sent.result().state is TaskState.COMPLETED
        numbers = [entry.number for batch in pubsub.published for entry in batch.entries]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] > 1
        assert pubsub.published[-1].ended
    assert sum(pubsub.subscriptions) == 0


def test_a_blocking_send_ends_when_another_app_cancels_its_task() -> None:
    gate, store = Gate(), MemoryStore()
    started: queue.Queue[str] = queue.Queue()

    def make() -> A2AApp:
        agent = Agent("shared")

        @agent.message
        def handle(message, context):
            assert context.task.state is TaskState.WORKING  # the task is stored with this
            started.put(context.task_id)
            gate.block()
            return "done"

        return A2AApp(agent, store=store, pubsub=InProcessPubSub("cancel"))

    with make() as first, make() as second, Client(first) as sends, Client(second) as cancels:
        sent = Background(lambda: sends.send("go"))
        assert cancels.cancel_task(started.get(timeout=TIMEOUT)).state is TaskState.CANCELED
        assert sent.result().state is TaskState.CANCELED
        gate.open.set()


# -- Unix sockets -------------------------------------------------------------------------------------------------------


def test_members_of_a_channel_come_and_go_while_another_one_publishes() -> None:
    sender = InProcessPubSub("busy")

    def come_and_go() -> None:
        for _ in range(3_000):
            with closing(InProcessPubSub("busy")) as member:
                member.start(ignore, no_gap)

    members = [Background(come_and_go) for _ in range(3)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10_000):
            sender.publish(batch("t1"))
    finally:
        sys.setswitchinterval(before)
        for member in members:
            member.result()


def test_another_process_is_received(folder: Path, received: Received) -> None:
    code = (
        "import sys, pathlib; from a2a_sync.stores.sqlite.pubsub import UnixSocketPubSub;"
        "from a2a_sync.stores.base import Owner, TaskBatch;"
        "UnixSocketPubSub(pathlib.Path(sys.argv[1])).publish(TaskBatch(Owner(), 'from-afar'))"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=60)
    assert received.next() == "from-afar"


def test_the_socket_of_a_dead_process_is_removed_and_costs_no_message(folder: Path, received: Received) -> None:
    dead = folder / "1-dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
        left_behind.bind(str(dead))
    with closing(UnixSocketPubSub(folder)) as sender:
        sender.publish(batch("task-1"))
        assert received.next() == "task-1"
        assert not dead.exists()


def test_a_socket_that_is_removed_while_the_folder_is_read_costs_no_message(
    folder: Path, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = [folder / f"1-leaving-{number}" for number in range(3)]
    is_socket = pubsub_module._is_socket

    def leave_first(entry: os.DirEntry[str]) -> bool:
        for path in leaving:
            path.unlink(missing_ok=True)
        return is_socket(entry)

    with closing(UnixSocketPubSub(folder)) as sender:
        sender.publish(batch("task-1"))
        assert received.next() == "task-1"
        for path in leaving:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
                other.bind(str(path))
        monkeypatch.setattr(pubsub_module, "_is_socket", leave_first)
        sender.publish(batch("task-2"))
        assert received.next() == "task-2"
    assert not any(path.exists() for path in leaving)


def test_a_folder_that_the_last_other_process_removes_meanwhile_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removals = [folder.rmdir, folder.rmdir]

    def check(found: Path) -> None:
        assert found.is_dir()
        if removals:
            removals.pop()()

    monkeypatch.setattr(pubsub_module, "_check_private", check)
    with closing(UnixSocketPubSub(folder)) as one:
        one.start(ignore, no_gap)
        assert one.healthy
    assert not removals


def test_a_process_that_reads_no_messages_blocks_no_sender(folder: Path) -> None:
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf, closing(UnixSocketPubSub(folder)) as sender:
        deaf.bind(str(folder / "1-deaf"))
        sent = threading.Thread(target=lambda: [sender.publish(batch("x" * 900)) for _ in range(5000)], daemon=True)
        sent.start()
        sent.join(60)
        assert not sent.is_alive()


def test_a_callback_that_fails_does_not_end_the_receiving(folder: Path) -> None:
    received: queue.Queue[str] = queue.Queue()

    def fail_once(task_id: str, batch: TaskBatch | None) -> None:
        received.put(task_id)
        if task_id == "bad":
            raise ValueError("no")

    with closing(UnixSocketPubSub(folder)) as pubsub, closing(UnixSocketPubSub(folder)) as sender:
        pubsub.start(fail_once, no_gap)
        pubsub.subscribe("bad")
        pubsub.subscribe("good")
        for task_id in ("bad", "good"):
            sender.publish(batch(task_id))
            assert received.get(timeout=60) == task_id


def test_where_no_folder_can_be_made_there_are_no_messages_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with closing(UnixSocketPubSub(tmp_path / "file" / "sockets")) as pubsub:
        pubsub.start(ignore, no_gap)
        assert not pubsub.healthy
        pubsub.publish(batch("task-1"))


def test_closing_removes_the_socket(folder: Path) -> None:
    pubsub = UnixSocketPubSub(folder)
    pubsub.start(ignore, no_gap)
    assert len(list(folder.iterdir())) == 2
    pubsub.close()
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["missing", "of another size"])
def test_a_process_without_readable_subscriptions_gets_all_messages(kind: str, folder: Path) -> None:
    with closing(UnixSocketPubSub(folder)) as pubsub, closing(UnixSocketPubSub(folder)) as sender:
        received = Received(pubsub)
        (counters,) = folder.glob("*.tasks")
        counters.unlink()
        if kind != "missing":
            counters.write_bytes(b"\0")
        sender.publish(batch("task-1"))
        assert received.next() == "task-1"


def test_a_process_that_cannot_store_its_subscriptions_gets_all_messages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with closing(UnixSocketPubSub(folder)) as pubsub, closing(UnixSocketPubSub(folder)) as sender:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fail)
            received = Received(pubsub)
        assert len(list(folder.iterdir())) == 1
        pubsub.subscribe("task-2")
        pubsub.unsubscribe("task-2")
        sender.publish(batch("task-1"))
        assert received.next() == "task-1"


def test_a_process_whose_subscriptions_are_cut_gets_all_messages_and_lives(folder: Path) -> None:
    def child() -> None:
        with closing(UnixSocketPubSub(folder)) as pubsub, closing(UnixSocketPubSub(folder)) as sender:
            received = Received(pubsub)
            pubsub.subscribe("task-1")
            sender.publish(batch("task-1"))
            assert received.next() == "task-1"
            for counters in folder.glob("*.tasks"):
                os.truncate(counters, 0)
            for task_id in ("task-2", "task-3"):
                sender.publish(batch(task_id))
                assert received.next() == task_id
                # The byte of this one is written behind the end of the file.
                pubsub.subscribe("task-4")
                pubsub.unsubscribe("task-4")

    in_child(child)


def test_a_process_that_cannot_show_a_subscription_any_more_gets_all_messages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with closing(UnixSocketPubSub(folder)) as pubsub, closing(UnixSocketPubSub(folder)) as sender:
        received = Received(pubsub)
        sender.publish(batch("task-1"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fail)
            pubsub.subscribe("task-2")
        for task_id in ("task-2", "task-3"):
            sender.publish(batch(task_id))
            assert received.next() == task_id


def test_the_subscriptions_of_a_dead_process_are_removed_with_its_socket(folder: Path, received: Received) -> None:
    code = (
        "import os, sys, pathlib; from a2a_sync.stores.sqlite.pubsub import UnixSocketPubSub;"
        "UnixSocketPubSub(pathlib.Path(sys.argv[1])).start(print, print); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=60)
    assert len(list(folder.iterdir())) == 4
    with closing(UnixSocketPubSub(folder)) as sender:
        sender.start(ignore, no_gap)
        assert len(list(folder.iterdir())) == 4


def test_the_sockets_for_a_long_path_are_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60) / "tasks.db"
    assert len(os.fsencode(sockets_folder(str(deep)))) < 80
    assert sockets_folder(str(deep)) == sockets_folder(str(deep))
    assert sockets_folder("/srv/tasks.db") == Path("/srv/tasks.db-hints")


@pytest.mark.parametrize("kind", ["link", "writable by others"])
def test_a_folder_that_another_user_may_have_made_is_not_used(kind: str, tmp_path: Path) -> None:
    """A link at the predictable path had every file in its target deleted."""
    target, folder = tmp_path / "target", tmp_path / "sockets"
    target.mkdir()
    (target / "file").write_text("precious")
    if kind == "link":
        folder.symlink_to(target)
    else:
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "file").write_text("precious")
    with closing(UnixSocketPubSub(folder)) as pubsub:
        Received(pubsub)
        pubsub.publish(batch("t"))
        assert not pubsub.healthy
    assert (folder / "file").read_text() == "precious"


def test_only_sockets_are_deleted(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "file").write_text("precious")
    (folder / "link").symlink_to(folder / "file")
    with closing(UnixSocketPubSub(folder)) as pubsub:
        Received(pubsub)
        pubsub.publish(batch("t"))
        assert pubsub.healthy
    assert (folder / "link").read_text() == "precious"
