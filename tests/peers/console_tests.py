"""Tests of the console for an agent on another implementation: what a person does on its pages, as requests."""

from __future__ import annotations

import base64
import html
import json
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import requests

from a2a_sync.console.sessions import KEY_VARIABLE
from a2a_sync.types import TaskState
from tests.console.test_remote import KEY, Console
from tests.engine import eventually

needs_console = pytest.mark.skipif(
    not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
)


class ConsoleTests:
    """Subclassed by a module with a fixture `peer`: the name and the URL of an agent."""

    @pytest.fixture
    def console(self, peer: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
        monkeypatch.setenv(KEY_VARIABLE, KEY)
        opened = Console(peer[1])
        yield opened
        opened.site.close(1.0)

    def test_its_card_and_an_answer_are_shown(self, console: Console) -> None:
        page = console.page()
        assert "card is valid" in page or "the card breaks" in page
        task = console.send("hello there")
        console.wait(task, TaskState.COMPLETED)
        page = console.page(f"t/{task}")
        assert "hello there" in page
        command = html.unescape(page.partition('id="curl">')[2].partition("</pre>")[0])
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
        assert '"result"' in done.stdout
        commands = json.loads(html.unescape(page.partition("data-commands='")[2].partition("'")[0]))
        answer = requests.request(**commands["read"], timeout=60)
        assert "hello there" in json.dumps(answer.json()["result"])

    def test_a_stream_is_repeated_in_order(self, console: Console) -> None:
        task = console.send("count 20")
        done = console.wait(task, TaskState.COMPLETED)
        assert [*map(int, done.text.split())] == list(range(1, 21))

    def test_a_question_is_answered(self, console: Console) -> None:
        task = console.send("ask")
        console.wait(task, TaskState.INPUT_REQUIRED)
        assert "Which size?" in console.page(f"t/{task}")
        console.send("large", taskId=task)
        console.wait(task, TaskState.COMPLETED)
        assert "large" in console.page(f"t/{task}")

    def test_a_reply_without_a_task_is_kept_as_one(self, console: Console) -> None:
        task = console.send("message")
        console.wait(task, TaskState.COMPLETED)

    def test_a_failed_task_is_shown_as_such(self, console: Console) -> None:
        console.wait(console.send("fail"), TaskState.FAILED)

    def test_files_go_both_ways(self, console: Console) -> None:
        raw = {"raw": base64.b64encode(b"\x01\x02").decode(), "filename": "a.bin", "mediaType": "application/x-test"}
        task = console.send("parts", parts=[{"text": "parts"}, raw])
        done = console.wait(task, TaskState.COMPLETED)
        assert b"\x01\x02" in [file.raw for artifact in done.artifacts for file in artifact.files]
        assert ">a.bin</a>" in console.page(f"t/{task}")

    def test_a_task_is_cancelled(self, console: Console, peer: tuple[str, str]) -> None:
        task = console.send("wait")
        console.wait(task, TaskState.WORKING)
        eventually(lambda: "Task at the agent" in console.page(f"t/{task}"), "the id of the task at the agent")
        answer = console.browser.post(f"/console/a/{console.name}/api/tasks/{task}:cancel", json={})
        assert answer.status_code == 200, answer.text
        console.wait(task, TaskState.CANCELED)

    def test_tasks_that_the_agent_lists_are_opened(self, console: Console, peer: tuple[str, str]) -> None:
        console.wait(console.send("hello"), TaskState.COMPLETED)
        page = console.browser.get(f"/console/tasks?agent={console.name}&at=agent").text
        if peer[0] != "a2a-sdk":
            assert "The agent lists no tasks" in page
            return
        known = page.partition('name="id" value="')[2].partition('"')[0]
        answer = console.browser.post(f"/console/a/{console.name}/open", data={"id": known})
        assert answer.status_code == 303, answer.text
        opened = answer.headers["Location"]
        eventually(lambda: "Task at the agent" in console.browser.get(opened).text, "the id of the task at the agent")
