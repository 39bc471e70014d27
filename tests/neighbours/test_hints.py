"""Hints between processes: heard by all others, lossy, never in the way."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from a2a_sync.engine.pubsub import ChangePoll, Hints, hints_folder


def ignore(task_id: str) -> None:
    """Somebody who listens and does nothing."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "hints"


@pytest.fixture
def listener(folder: Path) -> Iterator[queue.Queue[str]]:
    heard: queue.Queue[str] = queue.Queue()
    with closing(Hints(folder, heard.put)) as hints:
        assert hints.listen()
        yield heard


def test_what_one_tells_all_others_hear(folder: Path, listener: queue.Queue[str]) -> None:
    second: queue.Queue[str] = queue.Queue()
    with closing(Hints(folder, second.put)) as other, closing(Hints(folder, ignore)) as teller:
        other.listen()
        teller.tell("task-1")
        assert listener.get(timeout=5) == "task-1"
        assert second.get(timeout=5) == "task-1"


def test_nobody_hears_himself(folder: Path) -> None:
    own: queue.Queue[str] = queue.Queue()
    witness: queue.Queue[str] = queue.Queue()
    with closing(Hints(folder, own.put)) as hints, closing(Hints(folder, witness.put)) as other:
        other.listen()
        hints.tell("task-1")
        assert witness.get(timeout=5) == "task-1"
        assert own.empty()


def test_another_process_is_heard(folder: Path, listener: queue.Queue[str]) -> None:
    code = (
        "import sys, pathlib; from a2a_sync.engine.pubsub import Hints;"
        "Hints(pathlib.Path(sys.argv[1]), print).tell('from-afar')"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=30)
    assert listener.get(timeout=5) == "from-afar"


def test_a_dead_process_is_cleared_away_and_costs_nobody_a_hint(folder: Path, listener: queue.Queue[str]) -> None:
    dead = folder / "1-dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
        left_behind.bind(str(dead))
    with closing(Hints(folder, ignore)) as teller:
        teller.tell("task-1")
        assert listener.get(timeout=5) == "task-1"
        assert not dead.exists()


def test_a_listener_that_does_not_listen_blocks_nobody(folder: Path) -> None:
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf, closing(Hints(folder, ignore)) as teller:
        deaf.bind(str(folder / "1-deaf"))
        told = threading.Thread(target=lambda: [teller.tell("x" * 900) for _ in range(5000)], daemon=True)
        told.start()
        told.join(20)
        assert not told.is_alive()


def test_a_callback_that_fails_does_not_end_the_hearing(folder: Path) -> None:
    heard: queue.Queue[str] = queue.Queue()

    def fail_once(task_id: str) -> None:
        heard.put(task_id)
        if task_id == "bad":
            raise ValueError("no")

    with closing(Hints(folder, fail_once)) as hints, closing(Hints(folder, ignore)) as teller:
        hints.listen()
        for task_id in ("bad", "good"):
            teller.tell(task_id)
            assert heard.get(timeout=5) == task_id


def test_where_no_folder_can_be_made_there_are_no_hints_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with closing(Hints(tmp_path / "file" / "hints", ignore)) as hints:
        assert not hints.listen()
        assert not hints.available
        hints.tell("task-1")


def test_closing_takes_the_socket_away(folder: Path) -> None:
    hints = Hints(folder, ignore)
    hints.listen()
    assert len(list(folder.iterdir())) == 1
    hints.close()
    hints.close()
    assert not folder.exists()


def test_a_long_path_meets_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60) / "tasks.db"
    assert len(os.fsencode(hints_folder(str(deep)))) < 80
    assert hints_folder(str(deep)) == hints_folder(str(deep))
    assert hints_folder("/srv/tasks.db") == Path("/srv/tasks.db-hints")


def test_the_poll_tells_of_a_change_and_only_while_somebody_waits() -> None:
    changed = threading.Event()
    looked = threading.Semaphore(0)
    waited_for = threading.Event()
    mark = ["before"]

    def look() -> object:
        looked.release()
        return mark[0]

    with closing(ChangePoll(look, changed.set, waited_for.is_set, seconds=0.005)) as poll:
        poll.watch()
        poll.watch()
        assert not looked.acquire(timeout=0.1)
        waited_for.set()
        assert changed.wait(5)
        changed.clear()
        assert looked.acquire(timeout=5)
        assert looked.acquire(timeout=5)
        assert not changed.is_set()
        mark[0] = "after"
        assert changed.wait(5)
