"""What the page "Operate" shows of runs, processes, streams, deliveries and rates, each with a real cause, and the webhooks of a task."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from a2a_sync import Client
from a2a_sync.console.sessions import KEY_VARIABLE
from tests.browser.conftest import KEY, Visit, serve, task_id, wait_until, words, workers_listed
from tests.live import gunicorn
from tests.push.receiver import receiving, refused

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]


@pytest.fixture(scope="module")
def single() -> Iterator[str]:
    """The storyteller, of which one run is executed at a time."""
    yield from serve("single")


@pytest.fixture(scope="module")
def patient() -> Iterator[str]:
    """The storyteller with webhooks, which it tries again after 3 s, 6 s, …"""
    yield from serve("patient")


def tile(window: Visit, title: str) -> tuple[str, str]:
    """The figure of a tile, and the text below it."""
    card = window.page.locator(f".tiles .card:has(dt:text-is('{title}'))")
    figure, text = card.locator("dd").all_inner_texts()
    return figure, text


def operate(window: Visit, until: Callable[[], object]) -> None:
    """Open the page, and read it again until something holds."""
    window.go("/console/operate")
    wait_until(window, lambda: until() or window.page.click("text=Read again"))


def test_running_and_queued_runs_have_their_age_and_reason(visit: Window, single: str) -> None:
    window = visit(single)
    window.log_in()
    window.send("hang")
    window.wait_state("working")
    running = task_id(window)
    window.go("/console/")
    window.send("wait 1")
    window.wait_state("submitted")
    queued = task_id(window)
    window.page.wait_for_selector(".why:has-text('1 runs are executed here, 1 wait')")
    row = "#runs tr:has(a[href*='{}'])"
    aged = f"{row.format(queued)} td:nth-child(5):not(:text-is('0 s'))"
    operate(window, lambda: window.page.locator(aged).count())
    assert tile(window, "Runs here") == ("2", "1 queued, 0 abandoned")
    cells = window.page.locator(f"{row.format(running)} td").all_inner_texts()
    assert cells[1:4] == ["working", "(anonymous)", "this one"]
    assert all(re.fullmatch(r"[1-9]\d* s", age) for age in cells[4:]), cells
    waiting = window.page.locator(f"{row.format(queued)} td").all_inner_texts()
    assert (waiting[1], waiting[5]) == ("submitted queued", "")
    assert re.fullmatch(r"[1-9]\d* s", waiting[4])
    window.check()
    window.check_access()
    window.shoot("runs-desktop")
    window.page.click(f"{row.format(running)} a")
    window.page.click("#cancel")
    window.wait_state("canceled")
    operate(window, lambda: tile(window, "Runs here") == ("0", "0 queued, 0 abandoned"))
    assert "No run is active." in window.page.inner_text("#runs")


def test_code_that_does_not_return_after_a_cancel_is_an_abandoned_run_until_it_does(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("stubborn")
    window.wait_state("working")
    task = task_id(window)
    window.page.click("#cancel")
    window.wait_state("canceled")
    row = f"#abandoned tr:has(a[href*='{task}']) td:last-child"
    operate(window, lambda: window.page.locator(row).count() and window.page.inner_text(row) != "0 s")
    assert re.fullmatch(r"[1-9]\d* s", window.page.inner_text(row))
    assert "1 abandoned" in tile(window, "Runs here")[1]
    window.check_access()
    window.check()
    window.shoot("abandoned-desktop")
    window.page.click(f"#abandoned a[href*='{task}']")
    assert "its code has not returned" in window.page.inner_text(".why")
    assert "agents.py" in window.page.inner_text(".why")
    window.go("/console/")
    window.send("let go")
    window.wait_state("completed")
    operate(window, lambda: window.page.locator("#abandoned").count() == 0)


def test_a_killed_process_is_lost_and_its_run_fails(visit: Window, tmp_path: Path) -> None:
    variables = {KEY_VARIABLE: KEY, "A2A_TEST_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    with gunicorn("tests.browser.agents:app", threads=32, workers=2, environment=variables) as server:
        window = visit(server.url)
        window.log_in()
        window.send("hang")
        window.wait_state("working")
        task = task_id(window)
        busy = "#workers tbody tr:has(.pill:text-is('busy'))"
        window.go("/console/operate")
        wait_until(window, lambda: workers_listed(window, server.url) == 2 and window.page.locator(busy).count() == 1)
        name, _, runs, beat, lease = window.page.locator(f"{busy} td").all_inner_texts()
        assert runs == "1"
        assert re.fullmatch(r"\d\.\d s ago", beat)
        assert re.fullmatch(r"in \d\.\d s", lease)
        assert tile(window, "Processes")[0] == "2"
        process = name.partition(" ")[0]
        os.kill(int(process.partition("-")[0]), signal.SIGKILL)
        lost = window.page.locator(f"#workers tr:has(code:text-is('{process}')):has(.pill:text-is('lost'))")
        operate(window, lost.count)
        assert lost.locator("td").all_inner_texts()[2::2] == ["1", ""]
        operate(window, lambda: window.page.locator(f"#runs a[href*='{task}']").count() == 0)
        window.go("/console/tasks?state=failed")
        window.page.click(f"td a[href*='{task}']")
        assert "worker lost" in window.page.inner_text("#live .talk")
        window.check()


def test_open_streams_of_pages_and_clients_are_counted(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    operate(window, lambda: tile(window, "Streams here")[0] == "0")
    page = Visit(window.page.context.new_page(), story)
    page.go("/console/")
    page.send("ask")
    page.wait_state("input-required")
    page.page.wait_for_selector("#link:text-is('live')")
    operate(window, lambda: tile(window, "Streams here")[0] == "1")
    with Client(story) as client, client.subscribe(task_id(page)) as stream:
        next(iter(stream))
        operate(window, lambda: tile(window, "Streams here")[0] == "2")
    page.page.close()
    operate(window, lambda: tile(window, "Streams here")[0] == "0")


#: As if another tab were in front: Chromium without a screen hides none.
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_hidden_page_gives_its_stream_up_and_continues_without_a_loss(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    operate(window, lambda: tile(window, "Streams here")[0] == "0")
    tab = Visit(window.page.context.new_page(), story)
    tab.page.clock.install()
    tab.go("/console/")
    tab.send("wait 400")
    tab.page.wait_for_selector("#live .talk:has-text('piece-2')")
    tab.page.evaluate(HIDE, True)
    tab.page.clock.fast_forward(29_000)
    assert tab.page.inner_text("#link") == "live"
    tab.page.clock.fast_forward(2_000)
    tab.page.wait_for_selector("#link:text-is('paused')")
    operate(window, lambda: tile(window, "Streams here")[0] == "0")
    numbers = tab.page.locator("#rows tr > td:first-child")
    held = numbers.count()
    with Client(story) as client, client.subscribe(task_id(tab)) as stream:
        events = iter(stream)
        for _ in range(20):
            next(events)
    # The task goes on without the page.
    assert numbers.count() == held
    tab.page.evaluate(HIDE, False)
    tab.page.wait_for_selector("#link:text-is('live')")
    tab.wait_state("completed")
    assert words(tab).split()[-400:] == [f"piece-{number}" for number in range(400)]
    shown = [int(text) for text in numbers.all_text_contents()]
    assert shown == list(range(1, len(shown) + 1))
    tab.check()


def test_rates_are_plots_of_the_last_minutes(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("fail")
    window.wait_state("failed")
    window.go("/console/")
    window.send("wait 30")
    window.wait_state("completed")
    window.go("/console/operate")
    plots = {
        plot.locator("h3").inner_text(): (
            [float(bar.get_attribute("height") or 0) for bar in plot.locator("rect").all()],
            plot.locator(".plot").get_attribute("aria-label") or "",
            plot.locator(".legend b").inner_text(),
        )
        for plot in window.page.locator(".plots > div").all()
    }
    assert list(plots) == ["Tasks a minute", "Failed", "Median time to the end"]
    for title, (heights, label, _) in plots.items():
        assert len(heights) == 30
        assert max(heights[-3:]) == 58
        assert label.startswith(f"{title}, minute by minute: ")
    assert int(plots["Tasks a minute"][2]) >= int(plots["Failed"][2]) >= 1
    assert re.fullmatch(r"\d+(\.\d+)? (ms|s|min)", plots["Median time to the end"][2])
    assert plots["Median time to the end"][2] != "0 ms"
    states = window.page.locator(".choice.dot").all_inner_texts()
    assert {"failed", "completed"} <= {state.split()[0] for state in states}
    window.check()


@contextmanager
def pushing(agent: str, task: str, url: str) -> Iterator[None]:
    """A webhook of a task; it is removed at the end, whatever it has not received."""
    with Client(agent) as client:
        config = client.create_push_config(task, url)
        try:
            yield
        finally:
            client.delete_push_config(task, config.id)


def test_a_failed_delivery_shows_its_state_last_error_and_next_try_until_it_succeeds(
    visit: Window, patient: str
) -> None:
    window = visit(patient)
    window.log_in()
    with receiving() as receiver:
        receiver.plan(refused(500), refused(502))
        window.send("ask")
        window.wait_state("input-required")
        task = window.page.url
        with pushing(patient, task_id(window), receiver.url):

            def facts() -> dict[str, str]:
                window.page.goto(task)
                names, values = (window.page.locator(f"#webhooks + dl {one}").all_inner_texts() for one in ("dt", "dd"))
                return dict(zip(names, values, strict=True))

            for tries, error in enumerate(("500", "502"), 1):
                receiver.await_count(tries, tried=True)
                state = "1 failed try" if tries == 1 else "2 failed tries"
                wait_until(window, lambda state=state: facts()["State"] == state)
                shown = facts()
                assert shown["State"] == state
                assert shown["URL"] == receiver.url
                assert shown["Delivered"].startswith("up to entry 0 of ")
                assert re.fullmatch(rf"HTTP {error}.*, \d s ago", shown["Last error"])
                assert re.fullmatch(r"in \d s", shown["Next try"])
                if tries == 1:
                    window.check_access()
                    window.shoot("retry-desktop")
                    window.go("/console/operate")
                    assert tile(window, "Entries to deliver")[0] > "0"
                    assert tile(window, "Entries to deliver")[1] == "to 1 webhook; 0 have stopped"
                    row = window.page.locator("#deliveries tbody td").all_inner_texts()
                    assert row[1] == "1 failed try"
                    assert f"HTTP {error}" in row[2]
                    assert re.fullmatch(r"in \d s", row[4])
            receiver.await_count(1)
            wait_until(window, lambda: facts()["State"] == "up to date")
            assert "Next try" not in facts()
            window.go("/console/operate")
            assert tile(window, "Entries to deliver") == ("0", "to 0 webhooks; 0 have stopped")
            window.check()
