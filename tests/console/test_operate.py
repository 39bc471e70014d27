"""What operators see of a run that hangs: it does not depend on the process that makes the page."""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import requests
from werkzeug.test import Client as Browser

from a2a_sync import A2AApp, Agent, Client, Limits, Message, RequestContext
from a2a_sync.auth import BearerAuth, Principal
from a2a_sync.console import ConsoleOptions
from a2a_sync.console.operate import answer
from a2a_sync.console.sessions import KEY_VARIABLE, Sessions
from a2a_sync.stores.base import STACK, STATE, Owner
from a2a_sync.testing import client_of
from tests.engine import TIMEOUT, eventually
from tests.live import gunicorn

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
    ),
]
KEY = "the key of these tests"  # of no other server
PEOPLE = {"a-token": Principal(id="ada"), "r-token": Principal(id="root")}


class Waiting(Agent):
    """Each run waits until the test sets `go`."""

    name = "waiting"
    description = "Waits"

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def handle_message(self, message: Message, context: RequestContext) -> str:
        context.state["seen"] = message.text
        return self.wait_for_the_walrus() if message.text == "doze" else self.wait_for_the_penguin()

    def wait_for_the_penguin(self) -> str:
        self.go.wait(TIMEOUT)
        return "It came."

    def wait_for_the_walrus(self) -> str:
        self.go.wait(TIMEOUT)
        return "It came too."


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tasks.db'}"


@pytest.fixture
def make_app(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., A2AApp]]:
    """Makes apps over one store, each a process of its own as far as the store knows."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with ExitStack() as stack:
        agent = Waiting()

        def make(**options: Any) -> A2AApp:
            console = ConsoleOptions(operator=lambda principal: principal.id == "root")
            app = A2AApp(agent, store=store_url, auth=BearerAuth(PEOPLE), **{"console": console, **options})
            return stack.enter_context(app)

        stack.callback(agent.go.set)
        yield make
        agent.go.set()


def begin(app: A2AApp, context_id: str = "c", text: str = "hang") -> str:
    """Begin a run; returns the id of its task."""
    with client_of(app, "wsgi", auth="a-token") as client:
        return client.send(text, context_id=context_id, return_immediately=True).task.id


def page_of(app: A2AApp, token: str, path: str) -> str:
    answer = Browser(app).get(f"/console/a/agent/t/{path}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    return answer.text


def why(page: str) -> str:
    """The explanation of a page, as text; ``""`` where it has none."""
    found = re.search(r'<div class="note why">(.*?)</div>', page, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", found[1])).strip() if found else ""


def check_that_another_process_explains(runner: A2AApp, other: A2AApp) -> None:
    """The console of `other` shows where a run of `runner` hangs, and nothing else does."""
    task = begin(runner)
    # On a loaded machine an answer may come too late for a page.
    text = eventually(
        lambda: (read := why(page_of(other, "r-token", f"{task}?owner=ada"))).startswith("In process ") and read,
        "the explanation",
    )
    assert re.match(
        rf"In process (.*:)?{os.getpid()}\S*: The code has run for \d+ s and has sent nothing for \d+ s\.", text
    )
    assert "in wait_for_the_penguin: self.go.wait(TIMEOUT)" in text
    # It is a value of the context that agents do not see, and small.
    contexts = other.store.contexts
    assert contexts is not None
    assert len(contexts.state(Owner(id="ada"), "c", STACK).body) < 10_000
    assert contexts.state(Owner(id="ada"), "c", STATE).body == b'{"seen":"hang"}'
    # Nothing of it is in what the owner reads.
    with client_of(other, "wsgi", auth="a-token") as client:
        assert "penguin" not in repr(client.get_task(task).to_dict())


def test_a_process_shows_where_a_run_of_another_one_hangs(make_app: Callable[..., A2AApp]) -> None:
    check_that_another_process_explains(make_app(), make_app())


def test_a_run_that_waits_for_a_thread_of_another_process_is_explained(make_app: Callable[..., A2AApp]) -> None:
    runner, other = make_app(limits=Limits(max_concurrent_runs=1)), make_app()
    begin(runner)
    queued = begin(runner, "other")
    text = eventually(lambda: why(page_of(other, "r-token", f"{queued}?owner=ada")), "the explanation")
    assert "The run waits for a thread: 1 runs are executed here, 1 wait." in text


def test_only_pages_of_operators_ask(make_app: Callable[..., A2AApp]) -> None:
    runner, other = make_app(), make_app()
    task = begin(runner)
    contexts = other.store.contexts
    assert contexts is not None
    eventually(lambda: why(page_of(runner, "r-token", f"{task}?owner=ada")), "silence")
    assert why(page_of(other, "a-token", task)) == ""
    assert contexts.state(Owner(id="ada"), "c", STACK).version == 0
    assert "penguin" in why(page_of(other, "r-token", f"{task}?owner=ada"))
    assert contexts.state(Owner(id="ada"), "c", STACK).version == 1


def test_a_process_that_does_not_answer_holds_no_page_up(make_app: Callable[..., A2AApp]) -> None:
    runner, other = make_app(console=False), make_app()
    task = begin(runner)
    text = eventually(lambda: why(page_of(other, "r-token", f"{task}?owner=ada")), "the explanation")
    assert text.endswith("The process has not answered where the code stands.")
    begun = time.monotonic()
    page_of(other, "r-token", f"{task}?owner=ada")
    assert time.monotonic() - begun < 30


def test_tasks_of_one_context_that_hang_are_explained_at_the_same_time(make_app: Callable[..., A2AApp]) -> None:
    runner, other = make_app(), make_app()
    tasks = {begin(runner): "penguin", begin(runner, text="doze"): "walrus"}
    for task in tasks:
        eventually(lambda task=task: why(page_of(runner, "r-token", f"{task}?owner=ada")), "silence")
    asked = [*tasks] * 4
    with ThreadPoolExecutor(8) as pool:

        def each_has_its_own() -> bool:
            texts = list(pool.map(lambda task: why(page_of(other, "r-token", f"{task}?owner=ada")), asked))
            stacks = [set(re.findall(r"in wait_for_the_(\w+)", text)) for text in texts]
            # On a loaded machine an answer may come too late for a page.
            assert all(stack <= {tasks[task]} for task, stack in zip(asked, stacks, strict=True))
            return all(stacks)

        eventually(each_has_its_own, "each stack on each page")


def test_no_answer_for_a_task_replaces_that_for_another_one_and_few_are_kept(make_app: Callable[..., A2AApp]) -> None:
    app = make_app()
    tasks = [begin(app) for _ in range(10)]
    for task in tasks:
        eventually(lambda task=task: why(page_of(app, "r-token", f"{task}?owner=ada")), "silence")
    engine, contexts = app.service.engine, app.store.contexts
    assert contexts is not None
    runs = {run.request.task_id: run for run in engine.runs._active}

    def kept() -> list[str]:
        return list(json.loads(contexts.state(Owner(id="ada"), "c", STACK).body))

    both = threading.Barrier(2)

    def answer_at_once(task: str) -> None:
        both.wait(TIMEOUT)
        answer(engine, runs[task])

    # The value of one of two processes is refused, and it tries again.
    with ThreadPoolExecutor(2) as pool:
        for pair in itertools.pairwise(tasks):
            list(pool.map(answer_at_once, pair))
            assert set(kept()[-2:]) == set(pair)
    for task in tasks:
        answer(engine, runs[task])
    assert kept() == tasks[-8:]


def test_two_workers_of_a_server_show_the_same_and_a_stopped_one_is_named(store_url: str) -> None:
    environment = {KEY_VARIABLE: KEY, "A2A_TEST_STORE": store_url}
    with (
        gunicorn("tests.browser.agents:app", threads=8, workers=2, environment=environment) as server,
        Client(server.url, timeout=TIMEOUT) as client,
        requests.Session() as session,
        ThreadPoolExecutor(6) as pool,
    ):
        hanging = client.send("hang", return_immediately=True).task
        dozing = client.send("doze", context_id=hanging.context_id, return_immediately=True).task
        tasks = {hanging.id: "penguin", dozing.id: "walrus"}
        login = session.post(f"{server.url}/console/login", {"token": Sessions(KEY.encode()).token()}, timeout=60)
        assert login.status_code == 200
        seen: dict[tuple[str, bool], str] = {}

        def read(task: str) -> str:
            # A connection of its own, which either worker may accept.
            answer = requests.get(f"{server.url}/console/a/agent/t/{task}", cookies=session.cookies.copy(), timeout=60)
            return why(answer.text)

        for task in tasks:
            eventually(lambda task=task: read(task), "silence")

        def read_both() -> bool:
            asked = [*tasks] * 3
            for task, text in zip(asked, pool.map(read, asked), strict=True):
                assert f"in wait_for_the_{tasks[task]}: context.sleep(600)" in text
                seen[task, text.startswith("In process ")] = text
            return len(seen) == 4

        eventually(read_both, "pages of both workers for both tasks")
        pid = int(re.match(r"In process (?:.*:)?(\d+)", seen[hanging.id, True])[1])  # type: ignore[index]
        os.kill(pid, signal.SIGSTOP)
        try:
            assert "The process has not answered where the code stands." in read(hanging.id)
        finally:
            os.kill(pid, signal.SIGCONT)
