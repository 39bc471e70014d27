"""The list of tasks: each of its filters, its pages, and the list that an agent elsewhere gives."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

import pytest

from a2a_sync import A2AApp, Agent, Client
from a2a_sync.auth import BearerAuth, Principal
from a2a_sync.console import ConsoleOptions
from a2a_sync.console.sessions import KEY_VARIABLE
from a2a_sync.console.tasks import PAGE
from tests.browser.agents import Story
from tests.browser.conftest import KEY, Visit, console_for, served, words
from tests.faults.test_many_tasks import FEW, MANY, make_store
from tests.faults.test_many_tasks import KEY as MANY_KEY

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]
PEOPLE = {name: Principal(id=name) for name in ("ada", "bob", "root")}


def listed(window: Visit) -> list[str]:
    """The paths of the tasks that the page lists."""
    links = window.page.locator("tbody td:first-child a").all()
    return [(link.get_attribute("href") or "").partition("?")[0].rpartition("/")[2] for link in links]


def test_the_list_of_tasks_is_filtered_by_context_owner_and_time_and_paged(visit: Window, tmp_path: Path) -> None:
    operators = ConsoleOptions(operator=lambda principal: principal.id == "root")
    app = A2AApp(Story(), auth=BearerAuth(PEOPLE), console=operators, store=f"sqlite:///{tmp_path / 'tasks.db'}")
    with served(app) as url:
        made: dict[str, list[str]] = {}
        for owner, count in (("ada", 120), ("bob", 2)):
            with Client(url, auth=owner) as client:
                made[owner] = [client.send("show").task.id for _ in range(count)]
        with closing(sqlite3.connect(tmp_path / "tasks.db")) as database, database:
            # Two hours ago.
            moved = database.execute(
                "UPDATE a2a_tasks SET created_ms = created_ms - 7200000 WHERE id = ?", made["bob"][:1]
            )
            assert moved.rowcount == 1
        newest = [*reversed(made["bob"]), *reversed(made["ada"])]
        window = visit(url)
        window.go("/console/")
        window.page.fill("[name=secret]", "root")
        window.page.press("[name=secret]", "Enter")
        window.follow("nav >> text=Tasks")
        pages = [listed(window)]
        while window.page.locator("text=Older").count():
            window.follow("text=Older")
            pages.append(listed(window))
        assert [one for page in pages for one in page] == newest
        assert len(pages) == 3
        window.follow("text=Newest")
        assert listed(window) == pages[0]
        window.page.fill("#owner", "bob")
        window.follow("text=Filter")
        assert listed(window) == newest[:2]
        window.page.select_option("#period", "hour")
        window.follow("text=Filter")
        assert listed(window) == made["bob"][1:]
        window.page.select_option("#period", "day")
        window.follow("text=Filter")
        assert listed(window) == newest[:2]
        window.follow("tbody tr:last-child a")
        window.page.wait_for_selector("#live")
        window.follow("aside.card a")
        assert listed(window) == made["bob"][:1]
        assert window.page.input_value("#context")
        window.page.fill("#context", "no such context")
        window.follow("text=Filter")
        assert window.page.inner_text("tbody") == "No task matches."
        window.check_access()
        window.check()


def took(window: Visit) -> float:
    """Milliseconds from the request of the page to the first byte of its response, as the browser measured them."""
    milliseconds: float = window.page.evaluate(
        "(({requestStart, responseStart}) => responseStart - requestStart)(performance.getEntriesByType('navigation')[0])"
    )
    return milliseconds


def test_100_000_tasks_are_paged_forward_and_back_as_fast_as_1_000(
    visit: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("echo", description="Repeats")
    with ExitStack() as servers:
        windows = []
        for many in (MANY, FEW):
            store = tmp_path / f"{many}.db"
            monkeypatch.setenv(KEY_VARIABLE, MANY_KEY)
            make_store(store, many)
            monkeypatch.setenv(KEY_VARIABLE, KEY)
            url = servers.enter_context(served(A2AApp(agent, store=f"sqlite:///{store}", console=True)))
            window = visit(url)
            window.log_in()
            window.follow("nav >> text=Tasks")
            windows.append(window)
        times: dict[Visit, list[float]] = {window: [] for window in windows}
        # In turn, so that both meet the same machine.
        for filtered in (False, True):
            pages: dict[Visit, list[list[str]]] = {window: [listed(window)] for window in windows}
            for _ in range(5):
                for window in windows:
                    window.follow("text=Older")
                    pages[window].append(listed(window))
                    times[window].append(took(window))
            for window in windows:
                seen = [task for page in pages[window] for task in page]
                assert len(seen) == len(set(seen)) == 6 * PAGE
            for place in reversed(range(5)):
                for window in windows:
                    window.page.go_back()
                    assert listed(window) == pages[window][place]
                    times[window].append(took(window))
            if not filtered:
                for window in windows:
                    window.page.select_option("#state", "completed")
                    window.page.fill("#owner", "ada")
                    window.follow("text=Filter")
                    assert set(window.page.locator("tbody td:nth-child(4)").all_inner_texts()) == {"ada"}
        ratio = median(times[windows[0]]) / median(times[windows[1]])
        sys.stdout.write(f"100,000 tasks to 1,000: {ratio:.2f}, {median(times[windows[0]]):.1f} ms\n")
        assert ratio < 2
        # Two of the three oldest tasks, behind all others.
        windows[0].follow(".choice:has-text('failed')")
        assert windows[0].page.locator("tbody .pill").all_inner_texts() == ["failed"] * 2
        assert windows[0].page.inner_text(".choice:has-text('all')") == f"all {MANY}"
        windows[0].check_access()
        windows[0].check()


def test_a_task_that_an_agent_elsewhere_lists_is_opened_and_followed(visit: Window, story: str) -> None:
    with Client(story) as client:
        task = client.send("ask").task
    for address in console_for(story):
        window = visit(address)
        window.log_in()
        window.page.click("text=Tasks that the agent lists")
        window.page.select_option("#state", "input-required")
        window.follow("text=Filter")
        window.check_access()
        window.page.click(f"[aria-label='Open {task.id}']")
        window.wait_state("input-required")
        assert "What is your name?" in words(window)
        window.page.reload()
        assert task.id in window.page.inner_text("aside.card")
        window.send("Ada")
        window.wait_state("completed")
        assert "Hello, Ada." in words(window)
        window.check()
    with Client(story) as client:
        assert client.get_task(task.id).artifacts[0].text == "Hello, Ada."
