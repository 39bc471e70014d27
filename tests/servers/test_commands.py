"""The command line as processes: gunicorn, SQLite, signals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from a2a_sync import A2AApp, Client
from tests.cli.agents import Actor
from tests.cli.conftest import served
from tests.live import ROOT
from tests.servers.test_gunicorn import begin, worker_infos
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.live

CLI = [sys.executable, "-m", "a2a_sync"]
TIMEOUT = 60.0


@contextmanager
def process(*arguments: str, cwd: Path = ROOT) -> Iterator[subprocess.Popen[str]]:
    """The command as a child with its output joined into one pipe; gone at the end."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        [*CLI, *arguments],
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(TIMEOUT)
        assert child.stdout is not None
        child.stdout.close()


def read_until(child: subprocess.Popen[str], marker: str) -> str:
    """All the child prints up to a line with `marker`; it is killed when that takes too long."""
    assert child.stdout is not None
    alarm = threading.Timer(TIMEOUT, child.kill)
    alarm.start()
    try:
        seen = ""
        for line in child.stdout:
            seen += line
            if marker in line:
                return seen
    finally:
        alarm.cancel()
    raise AssertionError(f"{marker!r} was not printed:\n{seen}")


@contextmanager
def serve(*arguments: str, cwd: Path = ROOT) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``a2a-sync serve`` on a free port, and its URL."""
    with process("serve", "--port", "0", *arguments, cwd=cwd) as server:
        printed = read_until(server, "Agent card: ")
        found = re.search(r"Agent card: (http://(?:127\.0\.0\.1|\[::1\]):\d+)/\.well-known/agent-card\.json", printed)
        assert found, printed
        yield server, found[1]


def finished(child: subprocess.Popen[str]) -> str:
    """The rest of the child's output, when it has ended."""
    output, _ = child.communicate(timeout=TIMEOUT)
    return output


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    with serve("tests.cli.agents:agent", "--store", f"sqlite:///{folder}/tasks.db", "--threads", "8") as (_, url):
        yield url


@pytest.mark.parametrize("options", [[], ["--gevent"], ["--gevent", "--", "--preload"]])
def test_several_workers_serve_one_agent(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_STORE", f"sqlite:///{tmp_path}/tasks.db")
    with serve("tests.agents.worker:app", "--workers", "2", *options) as (server, url):
        infos = worker_infos(SimpleNamespace(url=url), 2)  # type: ignore[arg-type]
        with Client(url) as client, Client(url) as another:
            task_id, process = begin(client, "wait")
            assert process in infos
            assert another.cancel_task(task_id).state == "canceled"
            assert client.send("tls").text == "SSLContext"
        server.terminate()
        printed = finished(server)
    assert server.returncode == 0, printed
    assert "Traceback" not in printed


def test_a_served_agent_answers_and_keeps_its_tasks_in_the_file(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    with serve("tests.cli.agents:agent", "--store", f"sqlite:///{database}") as (server, url):
        with process("send", url, "hello") as client:
            assert "you said hello" in finished(client)
        assert client.returncode == 0
        server.terminate()
        finished(server)
    assert server.returncode == 0
    with serve("tests.cli.agents:agent", "--store", f"sqlite:///{database}") as (_, url), Client(url) as again:
        assert [task.state for task in again.list_tasks().tasks] == ["completed"]


def test_a_stopped_server_leaves_one_whole_database_file(tmp_path: Path) -> None:
    with serve("tests.cli.agents:agent", "--store", f"sqlite:///{tmp_path}/tasks.db") as (server, url):
        with Client(url) as client:
            client.send("hello")
        server.terminate()
        finished(server)
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.db"]
    connection = sqlite3.connect(tmp_path / "tasks.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_the_current_folder_is_on_the_path_of_serve(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from a2a_sync import Agent\n"
        "agent = Agent('mine', description='From this folder')\n"
        "@agent.message\n"
        "def answer(message, context):\n"
        "    return 'from here'\n"
    )
    with serve("mine:agent", cwd=tmp_path) as (_, url), Client(url) as client:
        assert client.card().name == "mine"
        assert client.send("hi").text == "from here"


def test_arguments_after_two_dashes_go_to_gunicorn(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with process("serve", "tests.cli.agents:agent", "--port", "0", "--", "--access-logfile", str(log)) as server:
        url = read_until(server, "Agent card: ").rpartition("Agent card: ")[2].strip()
        with Client(url.partition("/.well-known")[0]) as client:
            client.send("hello")
        server.terminate()
        finished(server)
    assert "POST / HTTP/1.1" in log.read_text()


def test_the_public_address_stands_in_the_card() -> None:
    address = "https://agents.example/actor"
    with serve("tests.cli.agents:agent", "--url", address) as (_, url), process("card", url) as client:
        assert f"{address}/ (JSONRPC, protocol 1.0)" in finished(client)


@pytest.mark.parametrize(
    ("arguments", "host", "status"),
    [
        ([], "evil.example", 400),
        ([], "localhost", 200),
        (["--host", "::1"], "evil.example", 400),
        (["--host", "::1"], "localhost", 200),
        (["--host", "LOCALHOST"], "evil.example", 400),
        (["--url", "https://agents.example/actor"], "agents.example", 200),
        (["--url", "https://agents.example/actor"], "evil.example", 400),
        (["--", "--bind", "127.0.0.1:0"], "agents.example", 200),
    ],
)
def test_an_agent_for_this_machine_only_has_the_names_of_this_machine(
    arguments: list[str], host: str, status: int
) -> None:
    """A web page whose name resolves to this machine would be of the same site as the agent, for a browser."""
    with serve("tests.cli.agents:agent", *arguments) as (_, url):
        port = urlsplit(url).port
        card = f"{url}/.well-known/agent-card.json"
        assert requests.get(card, headers={"Host": f"{host}:{port}"}, timeout=TIMEOUT).status_code == status
        assert requests.get(card, timeout=TIMEOUT).status_code == 200


def test_what_a_run_raises_stands_in_the_servers_log(tmp_path: Path) -> None:
    with serve("tests.cli.agents:agent") as (server, url):
        with Client(url) as client:
            assert client.send("crash").state == "failed"  # type: ignore[union-attr]
        server.terminate()
        assert "RuntimeError: a secret" in finished(server)


def test_with_debug_a_traceback_reaches_the_caller() -> None:
    with serve("tests.cli.agents:agent", "--debug") as (_, url), process("send", url, "crash") as client:
        shown = finished(client)
    assert client.returncode == 1
    assert "Traceback (most recent call last)" in shown
    assert "RuntimeError: a secret" in shown


def test_a_stopping_server_ends_open_streams_and_is_gone_soon() -> None:
    with serve("tests.cli.agents:agent") as (server, url):
        with Client(url) as client, client.stream("ask") as stream:
            *_, _last = stream
            waiting = client.subscribe(stream.task_id)
            assert next(waiting).id == stream.task_id  # type: ignore[union-attr]
            watch = Stopwatch()
            server.terminate()
            # Ended in good order: a broken body would raise.
            assert list(waiting) == []
            finished(server)
        assert watch.within(10)
    assert server.returncode == 0


def test_ctrl_c_ends_the_server_too() -> None:
    with serve("tests.cli.agents:agent") as (server, _):
        server.send_signal(signal.SIGINT)
        finished(server)
    assert server.returncode == 0


@pytest.mark.parametrize("how", ["--stream", "--no-stream", "--json"])
def test_ctrl_c_cancels_the_task_on_the_server(server_url: str, how: str) -> None:
    context = f"interrupted{how}"
    with Client(server_url) as client, process("send", server_url, "slow", how, "--context", context) as sender:
        if how == "--stream":
            read_until(sender, "working: started")
        else:
            await_running(client, context)
        sender.send_signal(signal.SIGINT)
        printed = finished(sender)
        (task,) = client.list_tasks(context_id=context).tasks
    assert sender.returncode == 130
    assert f"task {task.id} is canceled" in printed
    assert task.state == "canceled"


def await_running(client: Client, context_id: str) -> None:
    """Wait until the context has a task whose run has begun to work, as its stream shows."""
    deadline = time.monotonic() + TIMEOUT
    while not (tasks := client.list_tasks(context_id=context_id).tasks):
        assert time.monotonic() < deadline
    with client.subscribe(tasks[0].id, timeout=TIMEOUT) as stream:
        for _ in stream:
            if stream.task is not None and stream.task.artifacts:
                return
    raise AssertionError("the run did not begin")


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_before_the_task_is_known_waits_for_its_name_unless_pressed_again(times: int) -> None:
    arrived, released = threading.Event(), threading.Event()

    def hold_back(inner: Any) -> Any:
        def app(environ: Any, start_response: Any) -> Any:
            if environ["REQUEST_METHOD"] == "POST" and not released.is_set():
                arrived.set()
                released.wait(TIMEOUT)
            return inner(environ, start_response)

        return app

    actor = A2AApp(Actor())
    with served(actor, hold_back) as url, process("send", url, "slow") as sender:
        assert arrived.wait(TIMEOUT)
        sender.send_signal(signal.SIGINT)
        read_until(sender, "waiting for the agent to name the task")
        if times == 2:
            sender.send_signal(signal.SIGINT)
            assert "before the agent named a task; it may go on" in finished(sender)
            released.set()
        else:
            released.set()
            assert "is canceled" in finished(sender)
            with Client(actor) as client:
                assert [task.state for task in client.list_tasks().tasks] == ["canceled"]
    assert sender.returncode == 130


def on_terminal(*arguments: str) -> str:
    """What the command writes to a terminal of 100 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"}
    child = subprocess.Popen([*CLI, *arguments], env=variables, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    alarm = threading.Timer(TIMEOUT, child.kill)
    alarm.start()
    seen = b""
    try:
        while block := os.read(master, 65536):
            seen += block
    except OSError:
        pass  # what Linux says when the other side is gone
    finally:
        alarm.cancel()
        os.close(master)
    assert child.wait(TIMEOUT) == 0
    return seen.decode()


def test_on_a_terminal_a_whole_markdown_answer_is_a_page_and_a_hostile_one_stays_harmless(server_url: str) -> None:
    page = on_terminal("send", server_url, "markdown", "--no-stream")
    assert "http://127.0.0.1:1/secret" in page
    assert "| --- |" not in page
    assert "\x1b[2J" not in page  # clear the screen
    assert "\x1b]8;" not in page  # a link that hides where it leads
    streamed = on_terminal("send", server_url, "markdown", "--stream")
    assert "| --- |" in streamed
    assert "\x1b[2J" not in streamed
    assert "description" in on_terminal("card", server_url)


@pytest.mark.parametrize("words", [["send", "markdown", "--no-stream"], ["card", "--debug"], ["send", "hello"]])
def test_a_terminal_without_colours_has_none(server_url: str, words: list[str]) -> None:
    command, *others = words
    colours = re.compile(r"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d)[;\d]*m|\x1b\[2m")
    assert colours.search(on_terminal(command, server_url, *others))
    for shown in (
        on_terminal("--no-color", command, server_url, *others),
        on_terminal(command, server_url, *others, "--no-color"),
    ):
        assert not colours.search(shown)


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_a_terminal_shows_the_progress_of_a_download_and_a_pipe_none(server_url: str, tmp_path: Path, way: str) -> None:
    shown = on_terminal("send", server_url, "download", way, "--out", str(tmp_path))
    assert "receiving" in shown
    assert (tmp_path / "large.bin").stat().st_size == 2_000_000
    task = re.search(r"task ([\w-]{36})", shown)
    assert task
    # The length of a stream is not known beforehand.
    assert re.search(r"receiving [\d.]+ of [\d.]+ MB", on_terminal("get", server_url, task[1], "--out", str(tmp_path)))
    assert (tmp_path / "large-2.bin").exists()
    with process("send", server_url, "download", way, "--out", str(tmp_path)) as sender:
        assert "receiving" not in finished(sender)


def test_a_terminal_shows_the_progress_of_an_upload_and_of_a_task_and_a_pipe_none(
    server_url: str, tmp_path: Path
) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(2_000_000))
    shown = on_terminal("send", server_url, "upload", "--file", str(large))
    assert "sending 2.7 of 2.7 MB" in shown
    assert "large.bin application/octet-stream 2000000" in shown
    assert "waiting" in on_terminal("send", server_url, "hello", "--no-color")
    with process("send", server_url, "upload", "--file", str(large)) as sender:
        assert "sending" not in finished(sender)


def test_ctrl_c_leaves_no_traceback(server_url: str, tmp_path: Path) -> None:
    with process("send", server_url, "slow", "--stream", "--out", str(tmp_path / "out")) as sender:
        read_until(sender, "working: started")
        sender.send_signal(signal.SIGINT)
        printed = finished(sender)
    assert sender.returncode == 130
    assert "Traceback" not in printed
