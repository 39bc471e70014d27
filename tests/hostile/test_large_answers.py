"""Limits of the size of responses, and of the memory that they use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Client, Limits, Message, Role, SQLiteStore, Task, TextPart
from a2a_sync.stores.base import Owner
from a2a_sync.testing import wsgi_session
from a2a_sync.testing.storecontract.making import begin, message, status
from a2a_sync.types import TaskState
from tests.agents.shared import agent
from tests.live import ROOT

MEGABYTE = 1024 * 1024


def fill(store: Any, tasks: int, messages: int, size: int) -> list[str]:
    """Create interrupted tasks with `messages` messages of `size` bytes."""
    made = []
    for _ in range(tasks):
        run = begin(store, owner=Owner(), text="x" * size)
        for _ in range(messages - 1):
            store.append(run.token, [message(run.head.id, "x" * size)])
        store.append(run.token, [status(run.head.id, TaskState.INPUT_REQUIRED)])
        made.append(run.head.id)
    return made


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_every_response_with_a_task_is_limited(version: str, binding: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    (task_id,) = fill(store, 1, 8, 200_000)
    limits = Limits(max_response_bytes=MEGABYTE, max_task_bytes=None)
    with (
        A2AApp(agent, store=store, limits=limits) as app,
        Client(
            "http://agent.test", session=wsgi_session(app), protocol_version=version, protocol_binding=binding
        ) as client,
    ):

        def check(task: Any) -> None:
            assert isinstance(task, Task)
            assert 600_000 < sum(len(one.text) for one in task.history) < MEGABYTE

        check(client.get_task(task_id))
        if version == "1.0":
            (listed,) = client.list_tasks().tasks
            check(listed)
        with client.subscribe(task_id, timeout=60) as stream:
            check(next(iter(stream)))
        question = Message(role=Role.USER, parts=(TextPart("ask"),), task_id=task_id)
        with client.stream(question) as stream:
            check(next(iter(stream)))
        check(client.send(question, history_length=100))
        check(client.cancel_task(task_id))
    store.close()


@pytest.mark.timeout(120)
def test_memory_of_large_responses_is_limited(tmp_path: Path) -> None:
    """Four concurrent calls list 8 tasks of 10 MB each, in a separate process whose memory is measured."""
    store = SQLiteStore(tmp_path / "tasks.db")
    fill(store, 8, 1, 10 * MEGABYTE)
    store.close()
    command = [sys.executable, "-m", "tests.hostile.test_large_answers", str(tmp_path / "tasks.db")]
    # Freed memory goes back to the system at once, so that the peak shows what is in use.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_MMAP_THRESHOLD_": str(MEGABYTE)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=True)
    grown = int(done.stdout)
    # Measured: 231 MB. Without the limit it grows with the number of calls, by about 190 MB each.
    assert grown < 10 * Limits().max_pending_response_bytes


def peak() -> int:
    """The peak memory of this process in bytes."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def main(path: str) -> None:
    from tests.wsgi import Peer

    with A2AApp(agent, store=SQLiteStore(path)) as app:

        def pages() -> int:
            count, token = 0, ""
            while True:
                answer = Peer(app).call("ListTasks", {"pageSize": 100, "pageToken": token})
                assert len(answer.body) < 1.1 * Limits().max_response_bytes  # type: ignore[operator]
                # Parsing the response would use more memory than serving it.
                count += answer.body.count(b'"contextId":"c","status"')
                found = re.search(rb'"nextPageToken":"([^"]+)"', answer.body[-1000:] + answer.body[:1000])
                if found is None:
                    return count
                token = found[1].decode()

        Peer(app).call("ListTasks", {"pageSize": 1, "historyLength": 0})
        before = peak()
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: pages(), range(4))) == [8] * 4
        print(peak() - before)


if __name__ == "__main__":
    main(sys.argv[1])
