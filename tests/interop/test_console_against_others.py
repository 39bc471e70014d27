"""The console for agents on other implementations: what a person does on its pages, as requests."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from a2a_sync.console.sessions import KEY_VARIABLE
from a2a_sync.types import TaskState
from tests.console.test_remote import KEY, Console
from tests.engine import eventually
from tests.peers.servers import python_agent

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
    ),
]


@pytest.fixture(scope="module", params=["a2a-sdk", "fasta2a"])
def peer(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The name and the URL of an agent on another implementation."""
    package, module = {"a2a-sdk": ("a2a", "sdk_agent"), "fasta2a": ("fasta2a", "fasta_agent")}[request.param]
    pytest.importorskip(package, reason=f"{request.param} is not installed (make interop installs it)")
    with python_agent(f"tests.interop.{module}") as url:
        yield request.param, url


@pytest.fixture
def console(peer: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    opened = Console(peer[1])
    yield opened
    opened.site.close(1.0)


def test_its_card_and_an_answer_are_shown(console: Console) -> None:
    page = console.page()
    assert "card is valid" in page or "the card breaks" in page
    task = console.send("hello there")
    console.wait(task, TaskState.COMPLETED)
    page = console.page(f"t/{task}")
    assert "hello there" in page
    assert "SendStreamingMessage" in page or "SendMessage" in page


def test_a_stream_is_repeated_in_order(console: Console) -> None:
    task = console.send("count 20")
    done = console.wait(task, TaskState.COMPLETED)
    assert [*map(int, done.text.split())] == list(range(1, 21))


def test_a_question_is_answered(console: Console) -> None:
    task = console.send("ask")
    console.wait(task, TaskState.INPUT_REQUIRED)
    assert "Which size?" in console.page(f"t/{task}")
    console.send("large", taskId=task)
    console.wait(task, TaskState.COMPLETED)
    assert "large" in console.page(f"t/{task}")


def test_a_reply_without_a_task_is_kept_as_one(console: Console) -> None:
    task = console.send("message")
    console.wait(task, TaskState.COMPLETED)


def test_a_failed_task_is_shown_as_such(console: Console) -> None:
    console.wait(console.send("fail"), TaskState.FAILED)


def test_files_go_both_ways(console: Console) -> None:
    raw = {"raw": base64.b64encode(b"\x01\x02").decode(), "filename": "a.bin", "mediaType": "application/x-test"}
    task = console.send("parts", parts=[{"text": "parts"}, raw])
    done = console.wait(task, TaskState.COMPLETED)
    assert b"\x01\x02" in [file.raw for artifact in done.artifacts for file in artifact.files]
    assert ">a.bin</a>" in console.page(f"t/{task}")


def test_a_task_is_cancelled(console: Console, peer: tuple[str, str]) -> None:
    task = console.send("wait")
    console.wait(task, TaskState.WORKING)
    eventually(lambda: "Task at the agent" in console.page(f"t/{task}"), "the id of the task at the agent")
    answer = console.browser.post(f"/console/a/{console.name}/api/tasks/{task}:cancel", json={})
    assert answer.status_code == 200, answer.text
    console.wait(task, TaskState.CANCELED)


def test_tasks_that_the_agent_lists_are_opened(console: Console, peer: tuple[str, str]) -> None:
    console.wait(console.send("hello"), TaskState.COMPLETED)
    page = console.browser.get(f"/console/tasks?agent={console.name}&at=agent").text
    if peer[0] == "fasta2a":
        assert "The agent lists no tasks" in page
        return
    known = page.partition('name="id" value="')[2].partition('"')[0]
    answer = console.browser.post(f"/console/a/{console.name}/open", data={"id": known})
    assert answer.status_code == 303, answer.text
    opened = answer.headers["Location"]
    eventually(lambda: "Task at the agent" in console.browser.get(opened).text, "the id of the task at the agent")
