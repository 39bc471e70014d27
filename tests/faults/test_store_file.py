"""A database file that is deleted or replaced under a working server, and readiness if the file cannot be used."""

from __future__ import annotations

import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client
from a2a_sync.errors import InternalError, StoreError
from a2a_sync.stores.base import Owner, TaskQuery
from a2a_sync.stores.sqlite import SQLiteStore
from a2a_sync.testing import wsgi_session
from tests.engine import Served, eventually, in_child

BUSY = 0.2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    served = Served(
        lambda message, context: "done", store=SQLiteStore(path, busy_timeout=BUSY), worker_heartbeat_interval=0.05
    )
    yield served
    served.close()
    served.store.close()


def readiness(app: A2AApp) -> tuple[int, str]:
    """The status and body of ``/readyz``."""
    answer = wsgi_session(app).get("http://agent.test/readyz", timeout=60)
    return answer.status_code, answer.json()["status"]


def becomes(app: A2AApp, status: int, *messages: str) -> None:
    """Wait until readiness has this status and one of these messages."""
    eventually(lambda: readiness(app) in [(status, message) for message in messages], f"readiness: {messages}")


def delete_the_file(path: Path) -> None:
    path.unlink()


def delete_all_files(path: Path) -> None:
    for name in ("", "-wal", "-shm"):
        Path(f"{path}{name}").unlink()


def replace_by_a_copy(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.replace(path)


def replace_by_an_empty_one(path: Path) -> None:
    delete_all_files(path)
    with closing(SQLiteStore(path)) as other:
        other.workers.beat(60)


#: Changes of the file, and the log message of each.
ACCIDENTS: list[tuple[Callable[[Path], None], str]] = [
    (delete_the_file, "was deleted"),
    (delete_all_files, "was deleted"),
    (replace_by_a_copy, "was replaced"),
    (replace_by_an_empty_one, "was replaced"),
]


@pytest.mark.parametrize(("accident", "message"), ACCIDENTS, ids=[accident.__name__ for accident, _ in ACCIDENTS])
def test_nothing_is_acknowledged_after_the_file_is_deleted_or_replaced(
    served: Served, path: Path, accident: Callable[[Path], None], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = served.send()
    becomes(served.app, 200, "ok")
    accident(path)
    there = path.exists()
    for call in (served.send, served.begin, lambda: served.get(task.id), lambda: served.cancel(task.id), served.list):
        with pytest.raises(InternalError):
            call()
    assert message in caplog.text
    becomes(served.app, 503, "the store cannot be read")
    # The store does not create an empty file in its place.
    assert path.exists() is there


def test_an_idle_worker_detects_it_at_its_next_heartbeat(
    served: Served, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.send()
    path.unlink()
    eventually(lambda: "was deleted" in caplog.text, "the log")
    assert not path.exists()


def test_a_restored_file_is_used_again(served: Served, path: Path) -> None:
    task = served.send()
    path.rename(path.with_suffix(".away"))
    with pytest.raises(InternalError):
        served.send()
    path.with_suffix(".away").rename(path)
    assert served.get(task.id) == task
    served.send()
    becomes(served.app, 200, "ok")


def test_a_forked_child_does_not_create_a_new_file(served: Served, path: Path) -> None:
    served.send()
    path.unlink()

    def child() -> None:
        with pytest.raises(StoreError, match="was deleted"):
            served.store.workers.has_others()

    in_child(child)
    assert not path.exists()


@pytest.mark.parametrize("name", ["a?b.db", "100%.db", "a#b c.db", "é.db"])
def test_filenames_with_uri_syntax_are_paths(tmp_path: Path, name: str) -> None:
    with closing(SQLiteStore(tmp_path / name)) as store:
        for _ in range(2):
            store.workers.beat(60)
        assert len(store.inspection.workers()) == 1
    assert [one.name for one in tmp_path.iterdir() if one.suffix == ".db"] == [name]


def test_a_closed_store_may_create_a_new_file(path: Path) -> None:
    store = SQLiteStore(path)
    store.workers.beat(60)
    store.close()
    path.unlink()
    assert store.inspection.workers() == ()
    store.close()


# -- readiness ----------------------------------------------------------------------------------------------------------


def locked(path: Path) -> Callable[[], None]:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def release() -> None:
        other.execute("ROLLBACK")
        other.close()

    return release


def read_only(path: Path) -> Callable[[], None]:
    connect = sqlite3.connect

    def connecting(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.execute("PRAGMA query_only = ON")
        return connection

    patch = pytest.MonkeyPatch()
    patch.setattr("a2a_sync.stores.sqlite.database.sqlite3.connect", connecting)
    return patch.undo


def damaged(path: Path) -> Callable[[], None]:
    with path.open("r+b") as file:
        before = file.read(4096)
        file.seek(0)
        file.write(b"Dear diary, " * 8)

    def repair() -> None:
        with path.open("r+b") as file:
            file.write(before)

    return repair


@pytest.mark.parametrize(
    ("fault", "messages"),
    [
        (locked, ["the store cannot be written"]),
        (read_only, ["the store cannot be written"]),
        # A connection that has the damaged page in its cache can still read.
        (damaged, ["the store cannot be read", "the store cannot be written"]),
    ],
    ids=["locked", "read-only", "damaged"],
)
def test_a_store_that_cannot_be_written_is_not_ready(
    served: Served, path: Path, fault: Callable[[Path], Callable[[], None]], messages: list[str]
) -> None:
    served.send()
    becomes(served.app, 200, "ok")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    end = fault(path)
    try:
        becomes(served.app, 503, *messages)
    finally:
        end()
    becomes(served.app, 200, "ok")


def test_a_server_with_a_full_disk_is_not_ready(path: Path) -> None:
    """In a process with a limited file size, as on a full disk."""

    def child() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        served = Served(lambda message, context: "done", store=SQLiteStore(path, busy_timeout=BUSY))
        served.send()
        becomes(served.app, 200, "ok")
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        becomes(served.app, 503, "the store cannot be written")
        assert served.store.list(Owner(), TaskQuery(size=1)).total == 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        becomes(served.app, 200, "ok")
        served.close()

    in_child(child)


def test_many_readiness_probes_write_little(served: Served, path: Path) -> None:
    """Readiness probes are not authenticated."""
    writes = []
    beat = served.store.workers.beat
    served.store.workers.beat = lambda lease: (writes.append(1), beat(lease))[1]
    for _ in range(200):
        assert readiness(served.app) == (200, "ok")
    assert 1 <= len(writes) < 100


def test_readiness_probes_do_not_affect_service(path: Path) -> None:
    agent = Agent("echo")
    agent.message(lambda message, context: message.text)
    with A2AApp(agent, store=SQLiteStore(path)) as app:
        assert readiness(app) == (200, "ok")
        assert Client(app).send("hi").text == "hi"
