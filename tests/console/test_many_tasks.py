"""The pages of a store with 100,000 tasks. ``python -m tests.console.test_many_tasks`` prints what each page takes."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from unittest import mock

import pytest
from werkzeug.test import Client as Browser

from a2a_sync import A2AApp, Agent, Message, RequestContext
from a2a_sync.console.sessions import KEY_VARIABLE, Sessions

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
)
MANY = 100_000
KEY = "the key of the tests with many tasks"  # of no other server
PAGES = {
    "all": "/console/tasks",
    "completed": "/console/tasks?state=completed",
    "failed, of which there are three": "/console/tasks?state=failed",
    "of an owner without tasks": "/console/tasks?owner=none",
    "of the last hour": "/console/tasks?period=hour",
    "Operate": "/console/operate",
}


def make_store(path: Path) -> None:
    """A store whose tasks are copies of one; three of them, the oldest ones, have failed."""
    agent = Agent("echo", description="Repeats")

    @agent.message
    def repeat(message: Message, context: RequestContext) -> str:
        return message.text

    with A2AApp(agent, store=f"sqlite:///{path}", console=True) as app:
        send(log_in(app))
    database = sqlite3.connect(path)
    with database:
        names = [name for _, name, *_ in database.execute("PRAGMA table_info(a2a_tasks)")]
        copied = {"key": "key + n", "id": "id || n", "state": "CASE WHEN n <= 3 THEN 'failed' ELSE state END"}
        columns = ", ".join(copied.get(name, name) for name in names)
        database.execute(
            f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY - 1})"
            f" INSERT INTO a2a_tasks SELECT {columns} FROM a2a_tasks, numbers"
        )
    database.close()


def log_in(app: A2AApp) -> Browser:
    browser = Browser(app)
    assert browser.post("/console/login", data={"token": Sessions(KEY.encode()).token()}).status_code == 303
    return browser


def send(browser: Browser) -> None:
    message = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
    assert browser.post("/console/a/agent/api/message:send", json=message).status_code == 200


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = tmp_path_factory.mktemp("many") / "tasks.db"
    with mock.patch.dict(os.environ, {KEY_VARIABLE: KEY}):
        make_store(path)
        with A2AApp(Agent("echo", description="Repeats"), store=f"sqlite:///{path}", console=True) as app:
            yield log_in(app)


def measure(browser: Browser, path: str) -> float:
    """The seconds of processor time that a page takes: the median of five."""
    took = []
    for _ in range(5):
        begun = time.process_time()
        assert browser.get(path).status_code == 200
        took.append(time.process_time() - begun)
    return median(took)


@pytest.mark.parametrize("name", [name for name in PAGES if name != "Operate"])
def test_every_list_of_100_000_tasks_takes_less_than_100_ms(browser: Browser, name: str) -> None:
    assert measure(browser, PAGES[name]) < 0.1


def test_later_pages_take_no_longer(browser: Browser) -> None:
    path, first = PAGES["all"], measure(browser, PAGES["all"])
    for _ in range(20):
        older = re.search(r'href="\?([^"]*before=\d+)">Older', browser.get(path).text)
        assert older
        path = f"/console/tasks?{older[1].replace('&amp;', '&')}"
    assert measure(browser, path) < max(3 * first, 0.02)
    assert measure(browser, "/console/tasks?before=500") < max(3 * first, 0.02)


def test_the_three_failed_tasks_are_found_behind_all_others(browser: Browser) -> None:
    page = browser.get(PAGES["failed, of which there are three"]).text
    assert page.count("/console/a/agent/t/") == 3
    assert f"{MANY} kept" in page


def test_operate_counts_them(browser: Browser) -> None:
    assert f"Tasks kept</dt><dd>{MANY}<" in browser.get(PAGES["Operate"]).text


if __name__ == "__main__":
    os.environ[KEY_VARIABLE] = KEY
    with tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder, "tasks.db"))
        url = f"sqlite:///{folder}/tasks.db"
        with A2AApp(Agent("echo", description="Repeats"), store=url, console=True) as served:
            opened = log_in(served)
            for title, address in {**PAGES, "the last page": "/console/tasks?before=60"}.items():
                sys.stdout.write(f"{title:35} {1000 * measure(opened, address):6.1f} ms\n")
