"""Every sentence of docs/howto/console.md that can be clicked, in Chromium."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, FilePart, Message, RequestContext
from a2a_sync.console.sessions import KEY_VARIABLE
from tests.browser.agents import Story
from tests.browser.conftest import (
    KEY,
    Visit,
    console_for,
    copied_commands,
    listening,
    run_command,
    served,
    task_id,
    wait_until,
    words,
    workers_listed,
)
from tests.console.payloads import ATTACKS, HOSTILE_PDFS, SECRET
from tests.live import free_port, gunicorn
from tests.push.receiver import receiving, refused

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

Window = Callable[..., Visit]
WINDOWS: dict[str, dict[str, Any]] = {
    "desktop": {},
    "dark": {"dark": True},
    "phone": {"phone": True},
    "phone-dark": {"phone": True, "dark": True},
}


# -- talking ------------------------------------------------------------------------------------------------------------


def test_a_message_begins_a_task_whose_page_streams_to_its_end(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    assert window.page.inner_text("h1") == "storyteller"
    window.page.click(".example")
    assert window.page.input_value("#text") == "A story about the clock"
    window.page.press("#text", "Enter")
    window.wait_state("completed")
    assert window.page.inner_text("h1") == "A story about the clock"
    assert window.page.inner_text("#live .prose h2") == "The penguin and the clock"
    assert window.page.locator("#live .prose table tbody tr").count() == 2
    window.check()


def test_streamed_text_appears_while_the_run_goes_on(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("wait 60")
    window.page.wait_for_selector("#live .talk:has-text('piece-5')")
    assert window.page.inner_text("#live .status .pill") == "working"
    window.wait_state("completed")
    assert words(window).split()[-60:] == [f"piece-{number}" for number in range(60)]
    assert "TASK_STATE_COMPLETED" in window.page.text_content("#json")
    assert window.page.inner_text("#artifacts") == "1"
    window.check()


def test_reloads_in_the_middle_of_a_stream_lose_and_repeat_nothing(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("wait 60")
    for piece in (5, 20):
        window.page.wait_for_selector(f"#live .talk:has-text('piece-{piece}')")
        window.page.reload()
        window.page.wait_for_selector("#live .tail")
        assert not re.search(r"piece-\d+piece", words(window))
    window.wait_state("completed")
    assert words(window).split()[-60:] == [f"piece-{number}" for number in range(60)]
    window.page.click("#log > summary")
    numbers = [int(text) for text in window.page.locator("#rows tr > td:first-child").all_inner_texts()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert window.page.inner_text("#log-count") == str(len(numbers))
    window.check()


def test_the_time_line_and_the_log_grow_while_text_streams(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("wait 500")
    window.page.wait_for_selector("#live .talk:has-text('piece-5')")
    window.page.click("#log > summary")

    def lengths() -> tuple[int, int]:
        return window.page.locator(".band:not(.clock) .tick").count(), window.page.locator("#rows > tr").count()

    ticks, rows = lengths()
    wait_until(window, lambda: lengths()[0] > ticks and lengths()[1] > rows)
    assert window.page.inner_text("#live .status .pill") == "working"
    window.check()


def test_what_scripts_build_is_what_the_server_renders(visit: Window, story: str, hostile: str) -> None:
    for url, text, state in (
        (story, "A story about the clock", "completed"),
        (story, "show", "completed"),
        (story, "files", "completed"),
        (hostile, "x", "input-required"),
    ):
        window = visit(url)
        window.log_in()
        window.send(text)
        window.wait_state(state)
        window.page.wait_for_selector("#live .turn.theirs")
        wait_until(window, lambda window=window: window.page.locator("#live .tail").count() == 0)
        built = window.page.evaluate("document.querySelector('#live').innerHTML")
        window.page.reload()
        assert built.strip() == window.page.evaluate("document.querySelector('#live').innerHTML").strip()


def test_a_task_is_cancelled(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("wait 500")
    window.page.wait_for_selector("#live .talk:has-text('piece-2')")
    window.page.click("#cancel")
    window.wait_state("canceled")
    window.page.wait_for_selector("#cancel", state="hidden")
    window.check()


def test_a_question_with_choices_is_answered_by_a_button(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("shirt")
    window.wait_state("input-required")
    window.page.click(".option:text-is('large')")
    window.wait_state("completed")
    assert "A large shirt, then." in words(window)
    window.check()


def test_a_question_is_answered_by_text_and_the_next_message_begins_another_task(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("ask")
    window.wait_state("input-required")
    first = task_id(window)
    window.send("Ada")
    window.wait_state("completed")
    assert "Hello, Ada." in words(window)
    context = window.page.locator("aside .facts a code").inner_text()
    window.send("ask again")
    window.page.wait_for_url(lambda url: first not in url)
    assert window.page.locator("aside .facts a code").inner_text() == context
    window.check()


def test_files_go_both_ways(visit: Window, story: str, tmp_path: Path) -> None:
    window = visit(story)
    window.log_in()
    (tmp_path / "notes.txt").write_text("hello")
    window.page.set_input_files("#files", str(tmp_path / "notes.txt"))
    assert "notes.txt" in window.page.inner_text("#attached")
    window.send("for you")
    window.wait_state("completed")
    assert "I got 1 file: notes.txt" in words(window)
    with window.page.expect_download() as download:
        window.page.click(".turn.mine .file a")
    assert Path(download.value.path()).read_text() == "hello"
    window.check()


def test_a_dropped_file_is_attached(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["dropped"], "dropped.txt", {type: "text/plain"}));
            document.getElementById("composer").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
        }"""
    )
    assert "dropped.txt" in window.page.inner_text("#attached")
    window.page.click("#attached button")
    assert window.page.inner_text("#attached") == ""
    window.check()


def test_images_tables_and_values_are_shown_as_such(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("show")
    window.wait_state("completed")
    window.page.reload()
    image = window.page.locator("#live .file img")
    assert image.evaluate("one => one.naturalWidth") == 8
    assert window.page.locator("#live table tbody tr").count() == 2
    assert window.page.locator("#live .json details").count() == 3
    assert window.page.get_attribute("#live .file a[href^='https://example.com']", "rel") == (
        "noopener noreferrer nofollow"
    )
    window.check()


def test_audio_is_played(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("listen")
    window.wait_state("completed")
    window.page.wait_for_selector("#live audio")
    window.page.reload()
    player = window.page.locator("#live audio")
    player.evaluate("one => one.play()")
    wait_until(window, lambda: player.evaluate("one => one.ended"))
    assert player.evaluate("one => one.duration") == 0.1
    window.check()
    window.check_access()


#: A film of a changing colour, which the browser records, in base64; ``""`` if it cannot record the type.
RECORD = """async (type) => {
    if (!MediaRecorder.isTypeSupported(type)) return "";
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [320, 180];
    const pen = canvas.getContext("2d");
    const recorder = new MediaRecorder(canvas.captureStream(), {mimeType: type});
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    const stopped = new Promise((resolve) => (recorder.onstop = resolve));
    recorder.start();
    for (let number = 0; number < 15; number++) {
        pen.fillStyle = `hsl(${24 * number} 80% 50%)`;
        pen.fillRect(0, 0, 320, 180);
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    recorder.stop();
    await stopped;
    return btoa(String.fromCharCode(...new Uint8Array(await new Blob(parts).arrayBuffer())));
}"""
AWAIT_METADATA = """one => one.readyState || new Promise((resolve, reject) => {
    one.onloadedmetadata = () => resolve(1);
    one.onerror = () => reject(one.error.message);
})"""


@pytest.mark.parametrize("kind", ["video/webm;codecs=vp8", "video/mp4;codecs=vp9"])
def test_a_video_is_played_with_the_keyboard(visit: Window, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    recorded: list[FilePart] = []

    @(agent := Agent("film", description="Shows a film")).message
    def show(message: Message, context: RequestContext) -> Any:
        return recorded

    with served(A2AApp(agent, console=True)) as url:
        window = visit(url)
        window.log_in()
        raw = b64decode(window.page.evaluate(RECORD, kind))
        assert raw
        recorded.append(FilePart(raw=raw, filename="film", media_type=kind.partition(";")[0]))
        window.send("show")
        window.wait_state("completed")
        window.page.wait_for_selector("#live video")
        player = window.page.locator("#live video")
        assert player.evaluate(AWAIT_METADATA)
        assert player.evaluate("one => [one.videoWidth, one.videoHeight, one.clientWidth]") == [320, 180, 320]
        length = player.evaluate("one => one.duration")
        assert 0.5 < length < 10
        assert player.get_attribute("aria-label") == "Video film"
        window.page.focus("#live video")
        window.page.keyboard.press("Space")
        wait_until(window, lambda: player.evaluate("one => one.ended"))
        # To a place that it has not got by then: it asks for a part of the file.
        player.evaluate("one => (one.currentTime = 0.3)")
        wait_until(window, lambda: not player.evaluate("one => one.seeking"))
        assert player.evaluate("one => one.currentTime") == 0.3
        window.page.keyboard.press("Home")
        wait_until(window, lambda: player.evaluate("one => one.currentTime") == 0)
        window.shoot("video-desktop")
        window.check_access()
        window.check()


def test_a_failed_task_is_shown_as_such(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("fail")
    window.wait_state("failed")
    window.check()


def test_two_tasks_run_side_by_side_in_two_tabs(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    other = Visit(window.page.context.new_page(), story)
    other.go("/console/")
    for one in (window, other):
        one.send("wait 40")
    for one in (window, other):
        one.wait_state("completed")
        assert words(one).split()[-40:] == [f"piece-{number}" for number in range(40)]
        one.check()


def test_seven_tabs_follow_at_once(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("wait 100")
    window.page.wait_for_selector("#live .talk:has-text('piece-1')")
    tabs = [Visit(window.page.context.new_page(), story) for _ in range(6)]
    for tab in tabs:
        tab.page.goto(window.page.url)
    for tab in [window, *tabs]:
        tab.wait_state("completed")
        assert words(tab).split()[-1] == "piece-99"


def test_two_workers_serve_one_page_through_reloads(visit: Window, shared: str) -> None:
    window = visit(shared)
    window.log_in()
    window.send("wait 60")
    for piece in (5, 15, 30):
        window.page.wait_for_selector(f"#live .talk:has-text('piece-{piece}')")
        window.page.reload()
    window.wait_state("completed")
    assert words(window).split()[-60:] == [f"piece-{number}" for number in range(60)]
    window.go("/console/operate")
    assert window.page.locator("text=(this one)").count() <= 1
    window.check_access()
    window.check()


def test_a_page_outlives_the_worker_that_served_it(visit: Window, tmp_path: Path) -> None:
    variables = {KEY_VARIABLE: KEY, "A2A_TEST_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    with gunicorn("tests.browser.agents:app", threads=32, workers=2, environment=variables) as server:
        window = visit(server.url)
        window.log_in()
        window.send("wait 400")
        window.page.wait_for_selector("#live .talk:has-text('piece-10')")
        children = Path(f"/proc/{server.pid}/task").glob("*/children")
        workers = [int(one) for file in children for one in file.read_text().split()]
        assert len(workers) == 2
        # One of the two runs the task, and one serves the page: both are replaced.
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        window.wait_state("failed")
        numbers = [int(text) for text in window.page.locator("#rows tr > td:first-child").all_text_contents()]
        assert numbers == list(range(1, len(numbers) + 1))
        assert "worker lost" in words(window)
        assert window.errors == []


def test_without_a_place_for_a_stream_the_log_is_polled(visit: Window, narrow: str) -> None:
    window = visit(narrow)
    window.log_in()
    window.send("ask")
    window.wait_state("input-required")
    window.page.wait_for_selector("#link:text-is('live')")
    other = Visit(window.page.context.new_page(), narrow)
    other.go("/console/")
    other.send("wait 30")
    other.page.wait_for_selector("#link:text-is('polling')")
    other.wait_state("completed")
    assert words(other).split()[-30:] == [f"piece-{number}" for number in range(30)]


# -- looking ------------------------------------------------------------------------------------------------------------


def test_the_list_of_tasks_is_filtered_by_state(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("fail")
    window.wait_state("failed")
    failed = task_id(window)
    window.go("/console/tasks")
    window.page.click(".choice:has-text('failed')")
    assert set(window.page.locator("tbody .pill").all_inner_texts()) == {"failed"}
    window.page.click(f"tbody a[href*='{failed}']")
    assert window.page.inner_text("#live .status .pill") == "failed"
    window.check()


def test_the_page_of_a_task_has_its_time_line_log_and_commands(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("A story about the clock")
    window.wait_state("completed")
    window.page.reload()
    for axis in (".band:not(.clock)", ".band.clock"):
        assert window.page.locator(f"{axis} rect.fill-working").count() == 1
        assert window.page.locator(f"{axis} rect.fill-completed").count() == 1
    window.page.click("#log > summary")
    window.page.click("#rows tr:first-child summary")
    assert '"role": "ROLE_USER"' in window.page.inner_text("#rows tr:first-child pre")
    window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    last = "#rows > tr:last-child"
    window.page.click(f"{last} summary")
    for row, method in (("#rows > tr:first-child", "SendMessage"), (last, "GetTask")):
        for label, program in (("curl", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
            window.page.click(f"{row} >> text=Copy as {label}")
            window.page.wait_for_selector(f"{row} >> text=Copied")
            command = window.page.evaluate("navigator.clipboard.readText()")
            assert method in command
            done = subprocess.run([*program, command], capture_output=True, text=True, timeout=60, check=True)
            assert "A story about the clock" in done.stdout
    window.page.click("summary:has-text('Send the first message again')")
    assert window.page.inner_text("#curl").startswith("curl -sS ")
    assert "client.send('A story about the clock')" in window.page.inner_text("#python")
    window.page.click("[data-copy=curl]")
    window.page.wait_for_selector("[data-copy=curl] >> text=Copied")
    assert window.page.evaluate("navigator.clipboard.readText()").startswith("curl -sS ")
    window.check()


def log_in_with(window: Visit, scheme: str, fields: dict[str, str]) -> None:
    """Log in with the form of a scheme."""
    window.go("/console/")
    form = window.page.locator(f"form:has(input[value='{scheme}'])")
    for name, value in fields.items():
        form.locator(f"[name={name}]").fill(value)
    form.locator("button").click()
    window.page.wait_for_selector("h1:text-is('storyteller')")


@pytest.mark.parametrize(
    ("agent", "scheme", "fields", "variable"),
    [
        ("secured", "bearer", {"secret": SECRET}, SECRET),
        ("secured", "apiKey", {"secret": "key-of-root"}, "key-of-root"),
        ("secured", "basic", {"user": "bob", "secret": "pass-of-bob"}, "bob:pass-of-bob"),
        ("rest", "basic", {"user": "bob", "secret": "pass-of-bob"}, "bob:pass-of-bob"),
    ],
)
def test_copied_commands_work_with_the_credentials_of_the_card(
    visit: Window, request: pytest.FixtureRequest, agent: str, scheme: str, fields: dict[str, str], variable: str
) -> None:
    window = visit(request.getfixturevalue(agent))
    log_in_with(window, scheme, fields)
    window.send("ask")
    window.wait_state("input-required")
    window.page.reload()
    window.page.click("#log > summary")
    copied = copied_commands(window, "#rows > tr:is(:first-child, :last-child)")
    assert len(copied) == 6
    for label, command in copied:
        assert fields["secret"] not in command
        assert "What is your name?" in run_command(label, command, A2A_SYNC_AUTH=variable)
    window.check()


def test_the_console_of_a_host_has_all_agents(visit: Window, host: str) -> None:
    window = visit(host)
    window.log_in()
    assert window.page.locator("nav li a").all_inner_texts() == [
        *("storyteller\nstory", "storyteller\nother", "Side by side"),
        *("Tasks", "Operate"),
    ]
    window.check_access()
    window.page.click("nav a:has-text('Side by side')")
    assert window.page.locator("#add a").all_inner_texts() == ["Add storyteller (story)", "Add storyteller (other)"]
    window.go("/console/a/other/")
    window.send("A story about the clock")
    window.wait_state("completed")
    window.page.click("summary:has-text('Send the first message again')")
    assert f"{host}/other/" in window.page.inner_text("#curl")
    window.go("/console/tasks?agent=story")
    assert "No task matches." in window.page.inner_text("tbody")
    window.check()


# -- operating ----------------------------------------------------------------------------------------------------------


def test_why_a_webhook_is_not_delivered_is_found_in_two_clicks(visit: Window, hooked: str) -> None:
    window = visit(hooked)
    window.log_in()
    with receiving() as receiver:
        receiver.plan(then=refused(500))
        window.send("ask")
        window.wait_state("input-required")
        task = task_id(window)
        with Client(hooked) as client:
            client.create_push_config(task, receiver.url)
        receiver.await_count(2, tried=True)
        window.page.click("nav >> text=Operate")
        wait_until(window, lambda: window.page.reload() and window.page.locator("#deliveries .pill.bad").count())
        row = window.page.inner_text("#deliveries tbody tr")
        assert "500" in row
        assert receiver.url.rpartition("/")[0] in row
        window.check_access()
        window.check()
        window.shoot("webhooks-desktop")
        window.page.click("#deliveries tbody a")
        assert "500" in window.page.inner_text("aside")
        window.page.go_back()
        receiver.plan()
        window.page.click("text=Deliver again")
        window.page.wait_for_selector("h1:text-is('Operate')")
        receiver.await_count(1)
        wait_until(window, lambda: window.page.reload() and "None." in window.page.inner_text("#deliveries tbody"))
    window.check()


def test_why_a_receiver_cannot_be_reached_is_found_in_two_clicks(visit: Window, hooked: str) -> None:
    window = visit(hooked)
    window.log_in()
    window.send("ask")
    window.wait_state("input-required")
    task = task_id(window)
    with Client(hooked) as client:
        config = client.create_push_config(task, f"http://127.0.0.1:{free_port()}/hook")
        window.page.click("nav >> text=Operate")
        row = f"#deliveries tr:has(a[href*='{task}'])"
        wait_until(window, lambda: window.page.reload() and window.page.locator(f"{row} .pill.bad").count())
        assert "no answer: could not connect: Connection refused" in window.page.inner_text(row)
        window.page.click(f"{row} a")
        assert "no answer: could not connect: Connection refused" in window.page.inner_text("aside")
        # Callers of the agent learn no more than before.
        assert client.get_push_config(task, config.id).disabled == "no answer (2 tries)"
        client.delete_push_config(task, config.id)
    window.check()


@pytest.mark.parametrize("kind", ["desktop", "phone"])
def test_why_a_task_hangs_is_found_in_two_clicks(visit: Window, story: str, kind: str) -> None:
    window = visit(story, **WINDOWS[kind])
    window.log_in()
    window.send("hang")
    window.wait_state("working")
    task = task_id(window)
    window.page.click("nav >> text=Operate")
    window.page.click(f"#runs a[href*='{task}']")
    # The page says so when the task has been silent for a while.
    window.page.wait_for_selector(".why:has-text('has sent nothing for')")
    assert "agents.py" in window.page.inner_text(".why")
    window.page.click(".why summary")
    assert "in wait_for_the_penguin: context.sleep(600)" in window.page.inner_text(".why pre")
    window.check_access()
    window.check()
    window.shoot(f"hangs-{kind}")
    window.page.click("#cancel")
    window.wait_state("canceled")
    assert window.page.locator(".why").count() == 0


def test_operate_shows_the_processes_and_which_of_them_a_task_waits_for(visit: Window, shared: str) -> None:
    window = visit(shared)
    window.log_in()
    window.send("hang")
    window.wait_state("working")
    task = window.page.url
    # Either of the two processes may make the page.
    for _ in range(6):
        window.page.wait_for_selector(".why:has-text('sent nothing for')")
        assert "in wait_for_the_penguin: context.sleep(600)" in window.page.inner_text(".why")
        window.page.reload()
    window.go("/console/operate")
    wait_until(window, lambda: workers_listed(window, shared) == 2)
    assert "busy" in window.page.locator("#workers .pill").all_inner_texts()
    assert window.page.locator("#workers tr:has-text('(this one)')").count() == 1
    window.check_access()
    window.check()
    window.shoot("processes-desktop")
    window.page.goto(task)
    window.page.click("#cancel")
    window.wait_state("canceled")


# -- logging in ---------------------------------------------------------------------------------------------------------


def test_a_login_link_leaves_the_address_bar_and_works_once(visit: Window, story: str) -> None:
    from a2a_sync.console.sessions import Sessions

    link = f"/console/login#{Sessions(KEY.encode()).token()}"
    first, second = visit(story), visit(story)
    first.go(link)
    first.page.wait_for_selector("h1:text-is('storyteller')")
    assert "#" not in first.page.url
    second.go(link)
    second.page.wait_for_selector("[role=alert]:visible")
    second.go("/console/tasks")
    assert second.page.url.endswith("/console/login")


@pytest.mark.parametrize(
    ("scheme", "fields"),
    [
        ("bearer", {"secret": SECRET}),
        ("apiKey", {"secret": "key-of-root"}),
        ("basic", {"user": "bob", "secret": "pass-of-bob"}),
    ],
)
def test_credentials_log_in_talk_and_log_out(visit: Window, secured: str, scheme: str, fields: dict[str, str]) -> None:
    window = visit(secured)
    log_in_with(window, scheme, fields)
    window.send("ask")
    window.wait_state("input-required")
    page = window.page.url
    window.page.click("text=Log out")
    window.page.wait_for_selector("h1:has-text('Log in')")
    window.page.goto(page)
    assert window.page.url.endswith("/console/login")
    window.check()


# -- hostile texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window_kind", ["desktop", "phone"])
def test_nothing_of_an_agent_is_html(visit: Window, hostile: str, window_kind: str) -> None:
    window = visit(hostile, **WINDOWS[window_kind])
    window.log_in()
    window.check()
    assert window.page.locator("main script, main iframe, main meta, main form:not(#composer), main style").count() == 0
    window.page.click(".example")
    window.page.press("#text", "Enter")
    window.wait_state("input-required")
    window.check()
    for _ in range(2):
        text = window.page.inner_text("#live")
        assert all(attack.split()[0][:12] in text for attack in ATTACKS[:2])
        assert "\u202e" not in text
        assert window.page.locator("main script, main iframe, main meta, main object, main style").count() == 0
        assert window.page.locator("main a[href^='javascript'], main a[href^='data']").count() == 0
        assert window.page.locator("main [onerror], main [onload], main [onclick], main [style]").count() == 0
        window.check()
        window.page.reload()
    window.page.click("#log > summary")
    for summary in window.page.locator("#rows summary").all():
        summary.click()
    window.check()
    window.go("/console/tasks")
    window.check()


@pytest.mark.parametrize(("text", "shown"), [("hi", "#replies .theirs .body"), ("fail", "#problem")])
def test_a_reply_without_a_task_is_text_in_reading_order(visit: Window, replying: str, text: str, shown: str) -> None:
    window = visit(replying)
    window.log_in()
    window.send(text)
    window.page.wait_for_selector(shown)
    seen = window.page.inner_text(shown)
    assert "gnp.exe" in seen
    assert not {"\u202e", "\u2066", "\x1b"} & set(seen)
    window.check()


def test_files_of_an_agent_run_nothing(visit: Window, hostile: str) -> None:
    window = visit(hostile)
    window.log_in()
    window.send("x")
    window.wait_state("input-required")
    window.page.reload()
    files = [one.get_attribute("href") or "" for one in window.page.locator("#live .file a").all()]
    assert len(files) >= 3
    for file in files:
        answer = window.page.request.get(hostile + file.replace("&download=1", ""))
        assert answer.status == 200
        assert "sandbox" in answer.headers["content-security-policy"]
        kind = answer.headers["content-type"]
        assert kind in ("application/octet-stream", "image/svg+xml")
        assert (kind == "application/octet-stream") == answer.headers["content-disposition"].startswith("attachment")
    picture = next(file for file in files if "svg" in (window.page.locator(f"a[href='{file}']").inner_text()))
    window.go(picture.replace("&download=1", ""))
    assert window.page.evaluate("window.hacked") is None
    assert window.page.evaluate("self.origin") == "null"


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_message_of_a_user_is_text(visit: Window, story: str, attack: str) -> None:
    window = visit(story)
    window.log_in()
    window.send(f"fail {attack}")
    window.wait_state("failed")
    window.page.reload()
    assert window.page.locator("#live .turn.mine .plain > *").count() == 0
    window.check()


def test_the_policy_of_pages_and_trees_without_the_sanitiser_hold_alone(
    visit: Window, story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = visit(story)
    window.log_in()
    # The scripts build only what is on their list, whatever a tree has.
    window.page.evaluate(
        """async () => {
            const { build } = await import(document.querySelector("script").src.replace(/[^/]+$/, "tree.js"));
            const evil = ["div", {onclick: "window.hacked=1"}, ["script", {}, "window.hacked=1"],
                ["img", {src: "http://evil.test/", onerror: "window.hacked=1"}], ["a", {href: "javascript:window.hacked=1"}, "x"],
                ["meta", {"http-equiv": "refresh", content: "0;url=http://evil.test/"}]];
            document.querySelector("main").append(build(evil));
        }"""
    )
    assert (
        window.page.locator("main script, main meta, main [onclick], main [onerror], main a[href^=java]").count() == 0
    )
    # The policy forbids strings as HTML altogether.
    refused = window.page.evaluate(
        """() => { try { document.querySelector("main").innerHTML = "<b>x</b>"; return ""; } catch (e) { return e.name; } }"""
    )
    assert refused == "TypeError"
    assert window.foreign == []


# -- everyone can use it --------------------------------------------------------------------------------------------------


def test_the_checks_of_pages_find_what_is_wrong(visit: Window, story: str) -> None:
    """Controls: without the walls a hostile text leads elsewhere, and axe reports an area that the keyboard cannot scroll."""
    window = visit(story)
    window.page.route("http://evil.test/**", lambda route: route.fulfill(body="<h1>hijacked</h1>"))
    hijack = "<!doctype html><title>x</title><meta http-equiv=refresh content='0;url=http://evil.test/'>"
    window.page.route("**/hijacked", lambda route: route.fulfill(body=hijack, content_type="text/html"))
    window.go("/hijacked")
    window.page.wait_for_selector("h1:text-is('hijacked')")
    assert window.foreign
    other = visit(story)
    other.log_in()
    other.page.evaluate(
        """() => {
            const area = document.createElement("pre");
            area.textContent = "wide ".repeat(400);
            document.querySelector("main").append(area);
        }"""
    )
    with pytest.raises(AssertionError, match="scrollable-region-focusable"):
        other.check_access()


@pytest.mark.parametrize("kind", WINDOWS)
def test_axe_has_no_finding_on_any_page(visit: Window, story: str, kind: str) -> None:
    window = visit(story, **WINDOWS[kind])
    window.go("/console/login")
    window.check_access()
    window.shoot(f"login-{kind}")
    window.log_in()
    window.check_access()
    window.check()
    window.shoot(f"agent-{kind}")
    window.send("shirt")
    window.wait_state("input-required")
    window.check_access()
    window.shoot(f"question-{kind}")
    window.go("/console/")
    window.send("A story about the clock")
    window.wait_state("completed")
    window.page.reload()
    window.check_access()
    window.shoot(f"task-{kind}")
    window.page.click("#log > summary")
    window.page.click("#rows tr:first-child summary")
    window.check_access()
    window.check()
    window.shoot(f"log-{kind}", whole=False)
    window.go("/console/")
    window.send("show")
    window.wait_state("completed")
    window.check_access()
    window.check()
    window.shoot(f"parts-{kind}")
    window.go("/console/tasks")
    window.check_access()
    window.check()
    window.shoot(f"tasks-{kind}", whole=False)
    window.page.click("text=Operate")
    window.page.wait_for_selector("h1:text-is('Operate')")
    window.check_access()
    window.check()
    window.shoot(f"operate-{kind}")


def test_the_keyboard_is_enough(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.className") == "skip"
    window.page.keyboard.press("Enter")
    for _ in range(10):
        window.page.keyboard.press("Tab")
        if window.page.evaluate("document.activeElement.id") == "text":
            break
    window.page.keyboard.type("shirt")
    window.page.keyboard.press("Enter")
    window.wait_state("input-required")
    window.page.focus(".option")
    window.page.keyboard.press("Enter")
    window.wait_state("completed")


def test_the_page_at_the_agents_own_address_is_for_people(visit: Window, story: str) -> None:
    window = visit(story)
    window.go("/")
    assert window.page.inner_text("h1") == "storyteller"
    window.check_access()
    window.shoot("address-desktop")
    window.page.click("text=Open the console")
    window.page.wait_for_selector("h1:has-text('Log in')")
    window.check()


def test_the_page_of_a_hostile_card_is_text(visit: Window, hostile: str) -> None:
    window = visit(hostile)
    window.go("/")
    assert window.page.locator("main script, main img, main iframe, main style, main form").count() == 0
    window.check()


# -- agents elsewhere ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(secured: str, story: str) -> Iterator[str]:
    """The address of ``a2a-sync console`` for two agents: one without and one with credentials."""
    yield from console_for(story, secured)


def test_an_agent_elsewhere_streams_through_reloads(visit: Window, elsewhere: str, story: str) -> None:
    window = visit(elsewhere)
    window.log_in()
    assert window.page.inner_text("h1") == "storyteller"
    window.send("wait 60")
    for piece in (5, 20):
        window.page.wait_for_selector(f"#live .talk:has-text('piece-{piece}')")
        window.page.reload()
    window.wait_state("completed")
    assert words(window).split()[-60:] == [f"piece-{number}" for number in range(60)]
    window.page.click("#wire > summary")
    window.page.click("#frames tr:first-child summary")
    assert '"method": "SendStreamingMessage"' in window.page.inner_text("#frames tr:first-child pre")
    window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    window.page.click("#frames tr:first-child >> text=Copy as curl")
    window.page.wait_for_selector("#frames >> text=Copied")
    command = window.page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert "piece-59" in done.stdout
    # The browser talked to the console only.
    window.check()
    window.check_access()
    window.shoot("elsewhere-desktop")


def test_the_ids_of_a_task_at_its_agent_are_shown_once_an_event_names_them(visit: Window) -> None:
    answers = threading.Event()
    with A2AApp(Story()) as agent:

        def waiting(environ: Any, start_response: Any) -> Any:
            if environ["REQUEST_METHOD"] == "POST":
                answers.wait(60)
            return agent(environ, start_response)

        with listening(waiting) as url:
            for address in console_for(url):
                window = visit(address)
                window.log_in()
                window.send("ask")
                window.wait_state("working")
                window.page.evaluate("window.made = true")
                assert window.page.locator("#remote-ids").is_hidden()
                window.page.click("#log > summary")
                window.page.click("#rows tr:first-child summary")
                window.page.wait_for_selector("#rows >> text=The agent has not named a task yet.")
                answers.set()
                window.page.wait_for_selector("#remote-ids")
                window.wait_state("input-required")
                with Client(url) as client:
                    (task,) = client.list_tasks().tasks
                assert window.page.inner_text("#remote-task") == task.id
                assert window.page.inner_text("#remote-context") == task.context_id
                for _ in range(2):
                    window.page.click("#rows tr:first-child summary")
                window.page.wait_for_selector("#rows tr:first-child >> text=Copy as curl")
                window.shoot("ids-desktop")
                assert window.page.evaluate("window.made")
                window.check_access()
                window.check()


def test_an_agent_elsewhere_asks_for_credentials_in_the_task(visit: Window, elsewhere: str) -> None:
    window = visit(elsewhere)
    window.log_in()
    window.page.click("nav li:nth-child(2) a")
    window.send("ask")
    window.wait_state("auth-required")
    window.page.wait_for_selector("#credentials")
    window.check_access()
    form = window.page.locator("#credentials form:has(input[value='basic'])")
    form.locator("[name=user]").fill("bob")
    form.locator("[name=secret]").fill("pass-of-bob")
    window.shoot("credentials-desktop")
    form.locator("button").click()
    window.wait_state("input-required")
    window.send("Ada")
    window.wait_state("completed")
    assert "Hello, Ada." in words(window)
    window.page.click("#wire > summary")
    assert "pass-of-bob" not in window.page.content()
    window.check()


@pytest.mark.parametrize("kind", ["desktop", "phone"])
def test_agents_elsewhere_of_one_name_are_distinguished_by_their_addresses(
    visit: Window, elsewhere: str, story: str, secured: str, kind: str
) -> None:
    window = visit(elsewhere, **WINDOWS[kind])
    window.log_in()
    hosts = [url.removeprefix("http://") for url in (story, secured)]
    for place, host in enumerate(hosts, 1):
        window.page.click(f"nav a:has-text('{host}')")
        assert window.page.inner_text("nav a[aria-current]").split() == ["storyteller", host]
        assert f"http://{host}" in window.page.inner_text("main dl.facts")
        window.page.click("nav >> text=Tasks")
        options = window.page.locator("#agent option").all_inner_texts()
        assert options == [f"storyteller ({one})" for one in hosts]
        window.page.goto(f"{window.url}/console/")
        window.page.click("nav >> text=Side by side")
        added = window.page.locator("#add a").nth(place - 1)
        assert added.inner_text() == f"Add storyteller ({host})"
        added.click()
        pane = window.page.frame_locator(".pane:last-child iframe")
        assert f"http://{host}" in pane.locator("main dl.facts").inner_text()
        window.page.wait_for_selector(f".pane:last-child[aria-label='storyteller · {host} (3)']")
    window.check_access()
    window.check()
    window.shoot(f"agents-{kind}")


def test_a_task_of_an_agent_elsewhere_is_cancelled(visit: Window, elsewhere: str) -> None:
    window = visit(elsewhere)
    window.log_in()
    window.send("wait 500")
    window.page.wait_for_selector("#live .talk:has-text('piece-2')")
    window.page.click("#cancel")
    window.wait_state("canceled")
    window.check()


def test_hostile_agents_elsewhere_are_text(visit: Window, hostile: str) -> None:
    for address in console_for(hostile):
        window = visit(address)
        window.log_in()
        window.check()
        window.page.click(".example")
        window.page.press("#text", "Enter")
        window.wait_state("input-required")
        window.page.reload()
        for part in ("#wire", "#log"):
            window.page.click(f"{part} > summary")
        for summary in window.page.locator("#frames summary, #rows summary").all():
            summary.click()
        window.check()
        window.go("/console/tasks")
        window.page.click("text=that the agent lists")
        window.check()


def test_text_files_are_shown_as_what_they_contain(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.send("files")
    window.wait_state("completed")
    for _ in range(2):
        window.page.wait_for_selector("#live .file table")
        assert window.page.locator("#live .file td").all_inner_texts() == ["1", "1", "wound; slowly", "2", "2", ""]
        assert window.page.inner_text("#live .file .prose h2") == "Notes"
        assert window.page.locator("#live .file .json details").count() == 3
        assert window.page.inner_text("#live .file pre") == "12:00 tick *once*\n"
        window.check()
        window.page.reload()


def test_the_pages_of_a_document_are_shown_when_they_are_asked_for(
    visit_with_viewer: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    reached: list[str] = []
    with A2AApp(Story(), console=True) as app:

        def counting(environ: Any, start_response: Any) -> Any:
            if environ["PATH_INFO"].endswith("/file"):
                reached.append(environ["QUERY_STRING"])
            return app(environ, start_response)

        with listening(counting) as url:
            window = visit_with_viewer(url)
            window.log_in()
            asked: list[Any] = []
            window.page.on("request", lambda request: asked.append(request) if "/file?" in request.url else None)
            window.send("files")
            window.wait_state("completed")
            window.page.wait_for_selector("#live .document")
            assert asked == []
            window.page.click(".document summary")
            # The viewer of Chromium is a frame in that of the page; it opens the document in a third one.
            wait_until(window, lambda: len(asked) == 2)
            assert asked[0].frame.parent_frame == window.page.main_frame
            assert asked[1].frame.parent_frame.url.startswith("chrome-extension:")
            wait_until(window, lambda: asked[1].frame.url == asked[0].url)
            window.shoot("document-desktop")
            window.check()
            window.check_access()
            # It got the bytes of the first request.
            assert len(asked) == 2
            assert len(reached) == 1


def test_documents_of_an_agent_lead_nowhere(visit_with_viewer: Window, story: str) -> None:
    window = visit_with_viewer(story)
    window.log_in()
    window.send("hostile documents")
    window.wait_state("completed")
    here = window.page.url
    for summary in window.page.locator(".document summary").all():
        summary.click()
    # Whatever a viewer does of itself, it does while it opens the document.
    wait_until(window, lambda: len(window.page.frames) >= 1 + 2 * len(HOSTILE_PDFS))
    window.page.wait_for_timeout(2000)
    assert window.page.url == here
    assert len(window.page.context.pages) == 1
    window.check()


def test_conversations_are_held_side_by_side(visit: Window, story: str) -> None:
    window = visit(story)
    window.log_in()
    window.page.click("nav >> text=Side by side")
    panes = [window.page.frame_locator(f".pane:nth-child({place}) iframe") for place in (1, 2, 3)]
    for place, pane in enumerate(panes[:2]):
        pane.locator("#text").fill(f"wait {40 + place}")
        pane.locator("#send").click()
    window.page.click("text=Add storyteller")
    panes[2].locator("#text").fill("shirt")
    panes[2].locator("#send").click()
    panes[2].locator(".option:text-is('large')").click()
    for place, pane in enumerate(panes):
        pane.locator("#live .status .pill:text-is('completed')").wait_for()
        assert pane.locator(".side").is_hidden()
        assert window.page.locator(".pane").nth(place).is_visible()
    for place, pane in enumerate(panes[:2]):
        assert pane.locator("#live .talk").inner_text().split()[-1] == f"piece-{39 + place}"
    window.check_access()
    window.check()
    window.shoot("side-desktop")
    window.page.reload()
    for pane in panes:
        pane.locator("#live .status .pill:text-is('completed')").wait_for()
    window.page.click(".pane:nth-child(1) .pane-close")
    assert window.page.locator(".pane").count() == 2
    assert "large shirt" in panes[1].locator("#live .talk").inner_text()


def test_conversations_side_by_side_are_tabs_on_a_phone(visit: Window, story: str) -> None:
    window = visit(story, phone=True)
    window.log_in()
    window.send("shirt")
    window.wait_state("input-required")
    window.page.click("text=Side by side with another")
    window.page.wait_for_selector("#tabs button:text-is('shirt')")
    assert window.page.locator(".pane:visible").count() == 1
    window.page.click("#tabs button:text-is('storyteller')")
    other = window.page.frame_locator(".pane.shown iframe")
    other.locator("#text").fill("wait 5")
    other.locator("#send").click()
    other.locator("#live .status .pill:text-is('completed')").wait_for()
    window.page.click("#tabs button:text-is('shirt')")
    window.page.frame_locator(".pane.shown iframe").locator(".option:text-is('small')").click()
    window.page.frame_locator(".pane.shown iframe").locator("#live .status .pill:text-is('completed')").wait_for()
    window.check_access()
    window.check()
    window.shoot("side-phone")
