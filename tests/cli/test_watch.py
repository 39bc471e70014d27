"""``a2a-sync watch``: a task that runs, ends, asks, or has ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from a2a_sync import Client, Task
from tests.servers.test_commands import TIMEOUT, finished, process, read_until

Run = Callable[..., Result]


def begin(url: str, word: str) -> Task:
    with Client(url) as client:
        return client.send(word, return_immediately=True, stream=False).task


@pytest.mark.parametrize("agent", ["url", "plain_url"])
@pytest.mark.parametrize(
    ("word", "code", "printed"), [("stream", 0, "one two three"), ("fail", 1, ""), ("ask", 4, "which one?")]
)
def test_a_task_is_followed_to_its_end_with_the_exit_code_of_send(
    run: Run, request: pytest.FixtureRequest, agent: str, word: str, code: int, printed: str
) -> None:
    url = request.getfixturevalue(agent)
    task = begin(url, word)
    for _ in range(2):  # while it runs, perhaps, and after its end
        watched = run("watch", url, task.id)
        assert watched.exit_code == code
        assert watched.stdout.startswith(printed)
        with Client(url) as client:
            client.wait(task.id, timeout=TIMEOUT)


def test_a_running_task_is_shown_from_its_beginning_and_goes_on_after_ctrl_c(url: str) -> None:
    task = begin(url, "slow")
    with process("watch", url, task.id) as watcher:
        seen = read_until(watcher, "artifact answer")
        watcher.send_signal(2)
        seen += finished(watcher)
    assert "Traceback" not in seen
    assert watcher.returncode == 130
    with Client(url) as client:
        assert client.get_task(task.id).state == "working"
        client.cancel_task(task.id)


def test_events_are_lines_of_json_and_artifacts_are_saved(run: Run, url: str, tmp_path: Path) -> None:
    task = begin(url, "stream")
    watched = run("watch", url, task.id, "--json", "--out", "out")
    assert watched.exit_code == 0
    for line in watched.stdout.splitlines():
        assert json.loads(line).keys() <= {"task", "statusUpdate", "artifactUpdate"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["numbers.json", "poem.txt"]


def test_an_unknown_task_is_refused(run: Run, url: str) -> None:
    assert run("watch", url, "no-task").exit_code == 1
