"""The settings and hooks that the package has for gunicorn, under gunicorn: threads and greenlets."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from gunicorn.config import KNOWN_SETTINGS

import a2a_sync.gunicorn as settings
from a2a_sync import A2AApp, Client, DataPart, SQLiteStore, Task, TaskState, TaskStatusUpdateEvent
from a2a_sync.engine.pubsub import hints_folder
from a2a_sync.errors import OverloadedError
from a2a_sync.wsgi.process import ALONE
from tests.agents.worker import Worker
from tests.engine import eventually
from tests.live import ROOT, LiveServer, gunicorn, gunicorn_gevent

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

Serve = Callable[..., AbstractContextManager[LiveServer]]
KINDS = {"threads": partial(gunicorn, threads=12), "gevent": gunicorn_gevent}
WORKER = "tests.agents.worker:app"
#: What the settings for threads need on the command line; those for gevent are given in any case.
SETTINGS = {"threads": ("-c", "python:a2a_sync.gunicorn"), "gevent": ()}


@pytest.fixture(params=KINDS)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    """Serves `WORKER` with the package's settings; tasks are in a file, unless the environment given says otherwise."""

    def serving(*options: str, target: str = WORKER, workers: int = 1, **environment: str) -> Any:
        variables = {"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", **environment}
        every = (*SETTINGS[request.param], *options)
        return KINDS[request.param](target, *every, workers=workers, environment=variables)

    return serving


def tell(server: LiveServer) -> dict[str, Any]:
    """What a worker tells of itself; over a connection of its own, so that the kernel picks one."""
    with Client(server.url) as client:
        task = client.send("tell")
        assert isinstance(task, Task)
        (part,) = task.artifacts[0].parts
        assert isinstance(part, DataPart)
        assert isinstance(part.data, dict)
        return part.data


def tell_all(server: LiveServer, workers: int) -> dict[int, dict[str, Any]]:
    """What each of so many workers tells, by process."""
    told: dict[int, dict[str, Any]] = {}

    def another() -> bool:
        one = tell(server)
        told[one["pid"]] = one
        return len(told) >= workers

    eventually(another, f"an answer of {workers} workers")
    return told


def begin(client: Client, text: str) -> tuple[str, int]:
    """Send what says in a status which process it runs in: the task's id and the process."""
    task = client.send(text, return_immediately=True)
    assert isinstance(task, Task)
    message = eventually(lambda: client.get_task(task.id).status.message, "the handler")
    return task.id, int(message.text.split()[-1])


def states(events: list[Any]) -> list[TaskState]:
    return [event.status.state for event in events if isinstance(event, TaskStatusUpdateEvent)]


# -- the settings -------------------------------------------------------------------------------------------------------


def test_every_setting_is_one_that_gunicorn_knows() -> None:
    known = {setting.name for setting in KNOWN_SETTINGS}
    assert set(settings.__all__) <= known
    # Loading it patches, so another process looks.
    program = (
        "import a2a_sync.gunicorn.gevent as s, json; print(json.dumps({n: repr(getattr(s, n)) for n in s.__all__}))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, timeout=30
    ).stdout
    for_gevent = json.loads(printed)
    assert set(for_gevent) <= known
    assert for_gevent["worker_class"] == "'gevent'"
    assert set(settings.__all__) - set(for_gevent) == {"threads"}


def test_a_file_of_ones_own_takes_the_settings_over_and_changes_some(tmp_path: Path) -> None:
    file = tmp_path / "gunicorn.conf.py"
    file.write_text("from a2a_sync.gunicorn import *\n\nkeepalive = 7\nraw_env = ['A2A_SYNC_PIN_WORKERS=0']\n")
    command = [sys.executable, "-m", "gunicorn", "-c", str(file), "--print-config", "tests.agents.worker:app"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    shown = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    shown = {name.strip(): value.strip() for name, value in shown.items()}
    assert (shown["keepalive"], shown["threads"], shown["control_socket_disable"]) == ("7", "32", "True")
    found = runpy.run_path(str(file))
    for hook in ("pre_fork", "post_fork", "post_worker_init", "worker_exit", "child_exit"):
        assert found[hook] is getattr(settings, hook)


# -- cores --------------------------------------------------------------------------------------------------------------


def arbiter(workers: int, *taken: int | None, **environment: str) -> Any:
    """As much of gunicorn's own process as is looked at; `taken` are the cores of workers that are there."""
    others = {pid: SimpleNamespace(a2a_core=core) for pid, core in enumerate(taken)}
    return SimpleNamespace(num_workers=workers, WORKERS=others, cfg=SimpleNamespace(env=environment))


def chosen(server: Any) -> int | None:
    worker = SimpleNamespace()
    settings.pre_fork(server, worker)
    core: int | None = worker.a2a_core
    return core


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A2A_SYNC_PIN_WORKERS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 4, 5})


@pytest.mark.usefixtures("four_cores")
def test_each_worker_gets_a_core_that_no_other_one_has() -> None:
    assert chosen(arbiter(4)) == 2
    assert chosen(arbiter(4, 2, 3, 5)) == 4
    # While workers are replaced there are more of them than cores.
    assert chosen(arbiter(4, 2, 3, 4, 5, 2)) == 3


@pytest.mark.usefixtures("four_cores")
def test_one_worker_or_more_than_cores_are_left_alone_and_so_are_those_who_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen(arbiter(1)) is None
    assert chosen(arbiter(5)) is None
    assert chosen(arbiter(4, A2A_SYNC_PIN_WORKERS="0")) is None
    monkeypatch.setenv("A2A_SYNC_PIN_WORKERS", "0")
    assert chosen(arbiter(4)) is None


@pytest.mark.usefixtures("four_cores")
def test_a_core_that_is_gone_meanwhile_is_no_reason_not_to_serve() -> None:
    said: list[Any] = []
    worker = SimpleNamespace(a2a_core=1_000_000, log=SimpleNamespace(warning=lambda *words: said.append(words)))
    settings.post_fork(None, worker)
    assert "not pinned" in said[0][0]


def test_two_workers_run_on_a_core_each_and_so_does_a_new_one(serve: Serve) -> None:
    cores = sorted(os.sched_getaffinity(0))
    expected = [[core] for core in cores] if len(cores) == 2 else None
    with serve(workers=2) as server:
        told = tell_all(server, 2)
        if expected is not None:
            assert sorted(one["cores"] for one in told.values()) == expected
        victim = min(told)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: not os.path.exists(f"/proc/{victim}"), "the worker's end")
        after = tell_all(server, 2)
        assert victim not in after
        if expected is not None:
            assert sorted(one["cores"] for one in after.values()) == expected


def test_workers_are_not_pinned_where_the_environment_says_so(serve: Serve) -> None:
    with serve(workers=2, A2A_SYNC_PIN_WORKERS="0") as server:
        assert all(one["cores"] == sorted(os.sched_getaffinity(0)) for one in tell_all(server, 2).values())


# -- starting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--preload"]])
def test_several_workers_over_tasks_in_memory_do_not_start_and_say_what_to_do(options: list[str]) -> None:
    command = [sys.executable, "-m", "gunicorn", WORKER, "-c", "python:a2a_sync.gunicorn", "--workers", "2", *options]
    environment = {name: value for name, value in os.environ.items() if name != "WORKER_STORE"}
    done = subprocess.run(
        [*command, "--bind", "127.0.0.1:0"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert ALONE in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("preload", [False, True], ids=["", "preload"])
def test_nothing_begins_before_the_workers_do_and_tasks_go_from_one_to_the_other(serve: Serve, preload: bool) -> None:
    with serve(*(["--preload"] if preload else []), workers=2) as server:
        assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
        opened = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{server.pid}/fd")}
        assert not [name for name in opened if "tasks.db" in name]
        told = tell_all(server, 2)
        assert {one["loaded_in"] for one in told.values()} == ({server.pid} if preload else set(told))
        for _ in range(6):
            with Client(server.url) as sender, Client(server.url) as follower, Client(server.url) as canceller:
                task_id, _ = begin(sender, "wait")
                with follower.subscribe(task_id, timeout=20) as stream:
                    events = iter(stream)
                    assert isinstance(next(events), Task)
                    assert canceller.cancel_task(task_id).state is TaskState.CANCELED
                    assert states(list(events))[-1] is TaskState.CANCELED
        with Client(server.url) as client:
            assert client.send("count 20").text == "".join(f"{n} " for n in range(20))


#: An app whose database is a temporary file, made when the module is loaded: in each worker, or once with ``--preload``.
TEMPORARY = """
import tempfile
from a2a_sync import A2AApp, SQLiteStore
from tests.agents.worker import Worker

folder = tempfile.mkdtemp(dir=__file__.rpartition("/")[0])
app = A2AApp(Worker(), store=SQLiteStore(folder + "/tasks.db"))
"""
IN_FLASK = """
from flask import Flask
from a2a_sync.integrations.flask import blueprint

flask_app = Flask(__name__)
flask_app.register_blueprint(blueprint(app))
"""
APART = "each of them sees only its own tasks"


@pytest.mark.parametrize("target", ["app", "flask_app"])
def test_workers_whose_stores_are_different_files_are_warned_of(serve: Serve, tmp_path: Path, target: str) -> None:
    (tmp_path / "temporary.py").write_text(TEMPORARY + IN_FLASK)
    options = ["--pythonpath", str(tmp_path), "--graceful-timeout", "5"]
    with serve(*options, target=f"temporary:{target}", workers=2) as server:

        def warned() -> bool:
            # A mounted app is known to its worker from its first request on.
            requests.get(server.url + "/.well-known/agent-card.json", timeout=10)
            return APART in server.log

        eventually(warned, "the warning")
        (line,) = [line for line in server.log.splitlines() if APART in line]
        assert "[WARNING]" in line
        assert "agent 'worker'" in line
        assert line.count(f"{tmp_path}/tmp") == 2


def test_workers_that_share_their_store_are_not_warned_of(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "temporary.py").write_text(TEMPORARY)
    with serve("--preload", "--pythonpath", str(tmp_path), target="temporary:app", workers=2) as server:
        before = tell_all(server, 2)
        # A worker is compared with those that began before it, and before it serves: so the new one certainly was.
        os.kill(next(iter(before)), signal.SIGTERM)
        eventually(lambda: tell(server)["pid"] not in before, "a new worker")
        assert APART not in server.log


def test_workers_of_another_configuration_and_dead_ones_are_not_compared() -> None:
    server = SimpleNamespace(num_workers=2, WORKERS={}, cfg=SimpleNamespace(env={"A2A_SYNC_PIN_WORKERS": "0"}))

    def worker(path: Path) -> tuple[SimpleNamespace, list[str]]:
        said: list[str] = []
        app = A2AApp(Worker(), store=SQLiteStore(path))
        log = SimpleNamespace(warning=lambda words, *values: said.append(words % values))
        one = SimpleNamespace(wsgi=app, cfg=server.cfg, pid=len(server.WORKERS) + 1, log=log)
        settings.pre_fork(server, one)
        server.WORKERS[one.pid] = one
        one.a2a_stores.compare(one)
        return one, said

    worker(Path("/nowhere/one.db"))
    _, said = worker(Path("/nowhere/one.db"))
    assert said == []
    third, said = worker(Path("/nowhere/two.db"))
    assert len(said) == 1
    assert "/nowhere/one.db and /nowhere/two.db" in said[0]
    third.a2a_stores.compare(third)
    assert len(said) == 1
    for dead in server.WORKERS.values():
        settings.child_exit(server, dead)
    assert worker(Path("/nowhere/three.db"))[1] == []
    server.cfg = SimpleNamespace(env=server.cfg.env)
    assert worker(Path("/nowhere/four.db"))[1] == []


def test_with_gevent_a_preloaded_app_may_have_loaded_what_speaks_tls(tmp_path: Path) -> None:
    with gunicorn_gevent(WORKER, "--preload") as server, Client(server.url) as client:
        assert client.send("tls").text == "SSLContext"


# -- ending -------------------------------------------------------------------------------------------------------------


def test_a_stopping_worker_lets_runs_and_their_streams_end_in_good_order(serve: Serve) -> None:
    with serve("--graceful-timeout", "20") as server, Client(server.url) as client:
        with client.stream("burn 1") as stream:
            for _ in stream:
                if stream.task is not None and stream.task.status.message is not None:
                    break  # it has begun
            os.kill(server.pid, signal.SIGTERM)
            list(stream)
        assert (stream.state, stream.text) == (TaskState.COMPLETED, "burnt")
        assert server.terminate() == 0


def subscribed(session: requests.Session, server: LiveServer, task_id: str) -> Iterator[bytes]:
    """The lines of a stream that nobody opens again when it ends; the first of them is read."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    stream = session.post(server.url, json=request, headers={"A2A-Version": "1.0"}, stream=True, timeout=30)
    lines: Iterator[bytes] = stream.iter_lines()
    assert next(lines).startswith(b"id: ")
    return lines


def test_a_stopping_worker_takes_no_more_work_and_says_so(serve: Serve) -> None:
    with serve("--graceful-timeout", "8") as server, requests.Session() as session, Client(server.url) as client:
        asked = client.send("ask")
        assert isinstance(asked, Task)
        ready = server.url + "/readyz"
        lines = subscribed(session, server, asked.id)
        _, process = begin(client, "wait")
        assert session.get(ready, timeout=10).status_code == 200
        os.kill(process, signal.SIGTERM)
        # Its task does not run, so its end says that the worker takes no more work.
        list(lines)
        with pytest.raises(OverloadedError, match="stopping"):
            client.send("tell")
        answer = session.get(ready, timeout=10)
        assert (answer.status_code, answer.json()["status"], answer.headers["Connection"]) == (503, "stopping", "close")
        # New connections go to the worker that takes its place.
        assert tell(server)["pid"] != process


def test_what_does_not_end_in_time_fails_and_the_worker_is_gone_within_the_limit(serve: Serve) -> None:
    with serve("--graceful-timeout", "5") as server, Client(server.url) as client:
        looking, _ = begin(client, "wait")
        hanging, _ = begin(client, "hang")
        with client.subscribe(looking) as first, client.subscribe(hanging) as second:
            assert isinstance(next(iter(first)), Task)
            assert isinstance(next(iter(second)), Task)
            began = time.monotonic()
            os.kill(server.pid, signal.SIGTERM)
            ends = [states(list(stream))[-1] for stream in (first, second)]
        server.terminate()
        assert time.monotonic() - began < 6.5
        assert ends == [TaskState.FAILED] * 2
        assert first.text == second.text == "server stopped"


def test_a_run_that_may_be_repeated_goes_to_another_worker_and_its_stream_goes_on_there(serve: Serve) -> None:
    with serve("--graceful-timeout", "5", workers=2, WORKER_KIND="retry") as server, Client(server.url) as client:
        told = tell_all(server, 2)
        with client.stream("wait", timeout=40) as stream:
            for _ in stream:
                if stream.task is not None and stream.task.status.message is not None:
                    break
            assert stream.task is not None
            assert stream.task.status.message is not None
            process = int(stream.task.status.message.text.split()[-1])
            assert process in told
            os.kill(process, signal.SIGTERM)
            list(stream)
        assert (stream.state, stream.text) == (TaskState.COMPLETED, "attempt 2")
        assert client.get_task(stream.task_id).text == "attempt 2"


def test_a_blocked_send_outlives_the_worker_it_waits_at(serve: Serve) -> None:
    with serve("--graceful-timeout", "5", workers=2, WORKER_KIND="retry") as server, Client(server.url) as client:
        tell_all(server, 2)
        texts: list[str] = []
        sender = threading.Thread(target=lambda: texts.append(client.send("wait", timeout=40).text), daemon=True)
        sender.start()
        with Client(server.url) as other:
            (task,) = eventually(lambda: other.list_tasks(status=TaskState.WORKING).tasks, "the task")
            waiting = eventually(lambda: other.get_task(task.id).status.message, "the handler")
            os.kill(int(waiting.text.split()[-1]), signal.SIGTERM)
        sender.join(40)
        assert texts == ["attempt 2"]


def test_streams_of_tasks_that_run_elsewhere_end_at_once_and_go_on_at_another_worker(serve: Serve) -> None:
    with serve("--graceful-timeout", "20", workers=2) as server, Client(server.url) as client:
        told = tell_all(server, 2)
        task_id, process = begin(client, "wait")
        (other,) = set(told) - {process}
        with client.subscribe(task_id, timeout=30) as stream:
            events = iter(stream)
            assert isinstance(next(events), Task)
            os.kill(other, signal.SIGTERM)
            eventually(lambda: not os.path.exists(f"/proc/{other}"), "the worker's end")
            with Client(server.url) as canceller:
                canceller.cancel_task(task_id)
            assert states(list(events))[-1] is TaskState.CANCELED


def test_an_interrupt_ends_everything_at_once(serve: Serve) -> None:
    with serve("--graceful-timeout", "20") as server, Client(server.url) as client:
        task_id, _ = begin(client, "wait")
        with client.subscribe(task_id) as stream:
            events = iter(stream)
            next(events)
            began = time.monotonic()
            os.kill(server.pid, signal.SIGINT)
            assert states(list(events))[-1] is TaskState.FAILED
        server.terminate()
        assert time.monotonic() - began < 6


def test_an_app_inside_another_framework_ends_with_its_worker_too(serve: Serve) -> None:
    with serve("--graceful-timeout", "5", target="tests.agents.worker:flask_app") as server:
        with Client(server.url + "/agent") as client:
            task_id, _ = begin(client, "wait")
            with client.subscribe(task_id) as stream:
                events = iter(stream)
                next(events)
                began = time.monotonic()
                os.kill(server.pid, signal.SIGTERM)
                assert states(list(events))[-1] is TaskState.FAILED
        assert server.terminate() == 0
        assert time.monotonic() - began < 6


def test_a_worker_that_has_served_its_number_of_requests_does_not_wait_for_open_streams(serve: Serve) -> None:
    with (
        serve("--graceful-timeout", "30", "--max-requests", "6") as server,
        Client(server.url) as client,
        requests.Session() as session,
    ):
        first = tell(server)["pid"]
        task = client.send("ask")
        assert isinstance(task, Task)
        lines = subscribed(session, server, task.id)
        began = time.monotonic()
        eventually(lambda: tell(server)["pid"] != first, "another worker")
        list(lines)
        eventually(lambda: not os.path.exists(f"/proc/{first}"), "the end of the first")
        assert time.monotonic() - began < 9


def test_a_connection_that_is_only_kept_open_does_not_keep_a_worker(serve: Serve) -> None:
    with serve("--graceful-timeout", "25") as server, closing(socket.create_connection(server.address)) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 8


# -- what the dead leave behind -----------------------------------------------------------------------------------------


def sockets(folder: Path) -> set[str]:
    found = hints_folder(str(folder / "tasks.db"))
    return {path.name.partition("-")[0] for path in found.iterdir()} if found.exists() else set()


def test_what_a_killed_worker_leaves_behind_is_cleared_away(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    environment = {"METERED_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    options = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn("tests.agents.metered:app", *options, workers=2, environment=environment) as server:
        before = eventually(lambda: everybody(server, tmp_path, 2), "sockets of two workers")
        victim = min(before)
        assert list(metrics.glob(f"gauge_live*_{victim}.db"))
        os.kill(int(victim), signal.SIGKILL)
        eventually(lambda: (found := everybody(server, tmp_path, 2)) and victim not in found, "a new worker")
        assert victim not in sockets(tmp_path)
        assert not list(metrics.glob(f"gauge_live*_{victim}.db"))


def everybody(server: LiveServer, folder: Path, workers: int) -> set[str]:
    """The processes that listen for hints, when there are so many; until then one of them is asked something."""
    with Client(server.url) as client:
        client.send("hello")
    found = sockets(folder)
    return found if len(found) == workers else set()


def test_a_path_or_scheme_in_a_header_is_not_believed(serve: Serve) -> None:
    with serve() as server:
        lies = {"SCRIPT_NAME": "/evil", "PATH_INFO": "/healthz", "X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "on"}
        honest = requests.get(server.url + "/.well-known/agent-card.json", timeout=10).json()
        lied = requests.get(server.url + "/.well-known/agent-card.json", headers=lies, timeout=10).json()

    assert lied == honest
