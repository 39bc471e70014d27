"""The pages of a store with 100,000 tasks, and of a log with 10,000 entries. ``python -m tests.faults.test_many_tasks`` prints what each page takes."""

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

from a2a_sync import A2AApp, Agent, Limits, Message, RequestContext
from a2a_sync.auth import BearerAuth
from a2a_sync.console.sessions import KEY_VARIABLE, Sessions
from tests.console.payloads import SECRET

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("jinja2", "markdown_it", "nh3"))), reason="the extra 'console' is not installed"
)
MANY, FEW = 100_000, 1_000
KEY = "the key of the tests with many tasks"  # of no other server
PAGES = {
    "all": "/console/tasks",
    "completed": "/console/tasks?state=completed",
    "failed, of which there are three": "/console/tasks?state=failed",
    "of an owner without tasks": "/console/tasks?owner=none",
    "of the last hour": "/console/tasks?period=hour",
    "of one context": "/console/tasks?context=c-7",
    "of a context without tasks": "/console/tasks?context=none",
    "of one owner": "/console/tasks?owner=ada",
    "failed ones of one owner in a context": "/console/tasks?owner=ada&state=failed&context=c-7",
    "the newest ones of an agent": "/console/a/agent/",
    "Operate": "/console/operate",
}


def make_store(path: Path, many: int = MANY) -> None:
    """A store whose `many` tasks are copies of one; three of them, the oldest ones, have failed."""
    agent = Agent("echo", description="Repeats")

    @agent.message
    def repeat(message: Message, context: RequestContext) -> str:
        return message.text

    with A2AApp(agent, store=f"sqlite:///{path}", console=True) as app:
        send(log_in(app))
    database = sqlite3.connect(path)
    with database:
        names = [name for _, name, *_ in database.execute("PRAGMA table_info(a2a_tasks)")]
        copied = {
            "key": "key + n",
            "id": "id || n",
            "state": "CASE WHEN n <= 3 THEN 'failed' ELSE state END",
            "context": "'c-' || (n % 1000)",
            "owner": "CASE WHEN n % 2 THEN 'ada' ELSE owner END",
        }
        columns = ", ".join(copied.get(name, name) for name in names)
        database.execute(
            f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {many - 1})"
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
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many") / "tasks.db"


@pytest.fixture(scope="module")
def browser(path: Path) -> Iterator[Browser]:
    with mock.patch.dict(os.environ, {KEY_VARIABLE: KEY}):
        make_store(path)
        with A2AApp(Agent("echo", description="Repeats"), store=f"sqlite:///{path}", console=True) as app:
            yield log_in(app)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The same pages over 1,000 tasks."""
    path = tmp_path_factory.mktemp("few") / "tasks.db"
    with mock.patch.dict(os.environ, {KEY_VARIABLE: KEY}):
        make_store(path, FEW)
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


@pytest.mark.parametrize("query", ["", "?state=failed", "?state=completed", "?context=c-7", "?context=none"])
def test_every_list_of_a_callers_own_50_000_tasks_takes_less_than_100_ms(
    browser: Browser, path: Path, query: str
) -> None:
    agent = Agent("echo", description="Repeats")
    with A2AApp(agent, store=f"sqlite:///{path}", console=True, auth=BearerAuth({SECRET: "ada"})) as app:
        own = Browser(app)
        assert own.post("/console/login", data={"scheme": "bearer", "secret": SECRET}).status_code == 303
        assert ("No task matches" in own.get(f"/console/tasks{query}").text) == (query == "?context=none")
        assert measure(own, f"/console/tasks{query}") < 0.1


def test_a_log_of_10_000_entries_comes_in_pages_of_200(tmp_path: Path) -> None:
    agent = Agent("long", description="Writes very much")

    @agent.message
    def write(message: Message, context: RequestContext) -> Iterator[str]:
        yield from (f"{number} " for number in range(10_000))

    limits = Limits(blocking_send_timeout=120)
    with (
        mock.patch.dict(os.environ, {KEY_VARIABLE: KEY}),
        A2AApp(agent, store=f"sqlite:///{tmp_path / 'log.db'}", console=True, limits=limits) as app,
    ):
        own = log_in(app)
        send(own)
        page: str | None = re.search(r"/console/a/agent/t/[^?\"]+", own.get("/console/tasks").text)[0]  # type: ignore[index]
        task, numbers, times = page, list[int](), list[float]()
        while page:
            begun = time.process_time()
            text = own.get(page).text
            times.append(time.process_time() - begun)
            rows = text[text.index('<tbody id="rows"') :]
            shown = [int(number) for number in re.findall(r'<tr><td class="number">(\d+)', rows)]
            assert len(shown) <= 200
            numbers += shown
            later = re.search(r'href="([^"]+after=\d+)">Later entries', text)
            page = later and later[1].replace("&amp;", "&")
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > 10_000
        assert measure(own, f"{task}/log?after=5000") < 0.1
        sys.stdout.write(
            f"{len(times)} pages of the log: {1000 * median(times):.0f} ms, at most {1000 * max(times):.0f} ms\n"
        )


def test_later_pages_take_no_longer(browser: Browser) -> None:
    path, first = PAGES["all"], measure(browser, PAGES["all"])
    for _ in range(20):
        older = re.search(r'href="\?([^"]*before=\d+)">Older', browser.get(path).text)
        assert older
        path = f"/console/tasks?{older[1].replace('&amp;', '&')}"
    assert measure(browser, path) < max(3 * first, 0.02)
    assert measure(browser, "/console/tasks?before=500") < max(3 * first, 0.02)


@pytest.mark.parametrize("name", ["all", "completed", "of the last hour", "the newest ones of an agent"])
def test_a_page_of_100_000_tasks_takes_no_longer_than_one_of_1_000(browser: Browser, few: Browser, name: str) -> None:
    shown = [len(re.findall(r"/console/a/agent/t/", one.get(PAGES[name]).text)) for one in (browser, few)]
    assert shown[0] == shown[1] > 5
    # In turn, so that both meet the same machine.
    ratios = [measure(browser, PAGES[name]) / measure(few, PAGES[name]) for _ in range(5)]
    sys.stdout.write(f"{name}: {' '.join(f'{ratio:.2f}' for ratio in ratios)}\n")
    assert median(ratios) < 1.5


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
