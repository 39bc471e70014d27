"""The package's settings and hooks for gunicorn, with threads and with gevent."""

from __future__ import annotations

import json
import os
import queue
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from gunicorn.config import KNOWN_SETTINGS

import a2a_sync.gunicorn as settings
from a2a_sync import A2AApp, Client, DataPart, SQLiteStore, Task, TaskState, TaskStatusUpdateEvent
from a2a_sync.errors import OverloadedError
from a2a_sync.stores.sqlite.pubsub import sockets_folder
from a2a_sync.wsgi.process import SINGLE_PROCESS
from tests.agents.worker import Worker
from tests.engine import eventually
from tests.live import ROOT, LiveServer, gunicorn, gunicorn_gevent
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

Serve = Callable[..., AbstractContextManager[LiveServer]]
KINDS = {"threads": partial(gunicorn, threads=12), "gevent": gunicorn_gevent}
WORKER = "tests.agents.worker:app"
#: The command line options of each kind of worker; `gunicorn_gevent` adds the settings for gevent itself.
SETTINGS = {"threads": ("-c", "python:a2a_sync.gunicorn"), "gevent": ()}


@pytest.fixture(params=KINDS)
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    """Serve `WORKER` with the package's settings; by default, tasks are stored in a file."""

    def serving(*options: str, target: str = WORKER, workers: int = 1, **environment: str) -> Any:
        variables = {"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", **environment}
        every = (*SETTINGS[request.param], *options)
        return KINDS[request.param](target, *every, workers=workers, environment=variables)

    return serving


def worker_info(server: LiveServer) -> dict[str, Any]:
    """The status of one worker, over a new connection, so that the kernel selects the worker."""
    with Client(server.url) as client:
        return reported(client, "info")


def reported(client: Client, command: str) -> dict[str, Any]:
    """The data that the agent answers with."""
    task = client.send(command)
    assert isinstance(task, Task)
    (part,) = task.artifacts[0].parts
    assert isinstance(part, DataPart)
    assert isinstance(part.data, dict)
    return part.data


def worker_infos(server: LiveServer, workers: int) -> dict[int, dict[str, Any]]:
    """The status of all workers, by process id."""
    infos: dict[int, dict[str, Any]] = {}

    def another() -> bool:
        one = worker_info(server)
        infos[one["pid"]] = one
        return len(infos) >= workers

    eventually(another, f"an answer of {workers} workers")
    return infos


def begin(client: Client, text: str) -> tuple[str, int]:
    """Start a run that reports its process in a status message; return the id of the task and of the process."""
    task = client.send(text, return_immediately=True)
    assert isinstance(task, Task)
    message = eventually(lambda: client.get_task(task.id).status.message, "the handler")
    return task.id, int(message.text.split()[-1])


def states(events: list[Any]) -> list[TaskState]:
    return [event.status.state for event in events if isinstance(event, TaskStatusUpdateEvent)]


# -- the settings -------------------------------------------------------------------------------------------------------


def test_gunicorn_knows_every_setting() -> None:
    known = {setting.name for setting in KNOWN_SETTINGS}
    assert set(settings.__all__) <= known
    # Importing this module patches the standard library, so a subprocess reads it.
    program = (
        "import a2a_sync.gunicorn.gevent as s, json; print(json.dumps({n: repr(getattr(s, n)) for n in s.__all__}))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, timeout=30
    ).stdout
    for_gevent = json.loads(printed)
    assert set(for_gevent) <= known
    assert for_gevent["worker_class"] == "'a2a_sync.gunicorn.gevent.GreenletWorker'"
    assert set(settings.__all__) - set(for_gevent) == {"threads"}


def test_a_config_file_can_import_and_override_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "gunicorn.conf.py"
    file.write_text("from a2a_sync.gunicorn import *\n\nkeepalive = 7\nraw_env = ['A2A_SYNC_PIN_WORKERS=0']\n")
    command = [sys.executable, "-m", "gunicorn", "-c", str(file), "--print-config", "tests.agents.worker:app"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    shown = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    shown = {name.strip(): value.strip() for name, value in shown.items()}
    assert (shown["keepalive"], shown["threads"], shown["control_socket_disable"]) == ("7", "32", "True")
    found = runpy.run_path(str(file))
    for hook in ("pre_fork", "post_fork", "post_worker_init", "worker_exit", "child_exit"):
        assert found[hook] is getattr(settings, hook)


# -- cores --------------------------------------------------------------------------------------------------------------


def arbiter(workers: int, *taken: int | None, **environment: str) -> Any:
    """The attributes of gunicorn's arbiter that the hooks use; `taken` are the cores of existing workers."""
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
def test_each_worker_is_pinned_to_a_free_core() -> None:
    assert chosen(arbiter(4)) == 2
    assert chosen(arbiter(4, 2, 3, 5)) == 4
    # While workers are replaced, there are more workers than cores.
    assert chosen(arbiter(4, 2, 3, 4, 5, 2)) == 3


@pytest.mark.usefixtures("four_cores")
def test_workers_are_not_pinned_if_there_is_one_or_more_than_cores_or_by_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen(arbiter(1)) is None
    assert chosen(arbiter(5)) is None
    assert chosen(arbiter(4, A2A_SYNC_PIN_WORKERS="0")) is None
    monkeypatch.setenv("A2A_SYNC_PIN_WORKERS", "0")
    assert chosen(arbiter(4)) is None


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the signal handlers of this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("four_cores", "handlers")
def test_a_missing_core_does_not_stop_the_worker() -> None:
    said: list[Any] = []
    worker = SimpleNamespace(a2a_core=1_000_000, log=SimpleNamespace(warning=lambda *words: said.append(words)))
    settings.post_fork(SimpleNamespace(SIG_QUEUE=queue.SimpleQueue()), worker)
    assert "not pinned" in said[0][0]


def test_requests_leave_nothing_to_the_garbage_collector(serve: Serve) -> None:
    # Each left twenty to fifty objects in cycles: its environ, and the run of a later turn or of one that read the state.
    with serve() as server, Client(server.url) as client, requests.Session() as session:
        reported(client, "collect")
        for _ in range(20):
            reported(client, "info")
            assert list(client.stream("info"))
            client.send("info", task_id=client.send("ask").id)
            assert session.get(server.url + "/.well-known/agent-card.json", timeout=30).ok
        assert reported(client, "collect")["collected"] < 20


def test_a_burst_of_connections_is_spread_over_the_workers(serve: Serve) -> None:
    # The worker that woke up first got up to 28 of 32, and they stay there.
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "info"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}})
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    apart = 0
    with serve(workers=2) as server:
        workers = worker_infos(server, 2)
        for _ in range(6):
            with ExitStack() as burst:
                connections = [
                    burst.enter_context(closing(HTTPConnection(urlsplit(server.url).netloc))) for _ in range(32)
                ]
                for connection in connections:
                    connection.connect()
                for connection in connections:
                    connection.request("POST", "/", body, headers)
                answers = [connection.getresponse().read().decode() for connection in connections]
            first = sum(f'"pid":{min(workers)}' in answer.replace(" ", "") for answer in answers)
            apart += abs(first - (32 - first))
    # 18 to 30 on an idle machine; it was 110.
    assert apart <= 6 * 12


def test_what_is_loaded_at_the_start_of_a_worker_is_not_traversed_by_collections(serve: Serve) -> None:
    with serve() as server:
        info = worker_info(server)
        assert info["frozen"] > 10 * info["traversed"]


EARLY_SIGNAL = """
import os, signal
from {settings} import *
from {settings} import post_fork as hook

def post_fork(server, worker):
    if {before}:
        os.kill(os.getpid(), signal.SIGTERM)
    hook(server, worker)
    if not {before}:
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("before", [True, False], ids=["handlers-of-the-master", "handlers-of-the-hook"])
@pytest.mark.parametrize("module", ["a2a_sync.gunicorn", "a2a_sync.gunicorn.gevent"])
def test_a_worker_that_is_stopped_before_it_serves_exits(module: str, before: bool, tmp_path: Path) -> None:
    file = tmp_path / "gunicorn.conf.py"
    file.write_text(EARLY_SIGNAL.format(settings=module, before=before))
    variables = {"WORKER_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gunicorn", "-c", str(file), "-b", "127.0.0.1:0", WORKER]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | variables, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            exits = (line for line in server.stderr if "Worker exiting" in line)
            # Every worker receives the signal, and the master replaces it.
            assert next(exits) != next(exits)
        finally:
            server.kill()


def test_two_workers_and_a_replacement_are_pinned_to_cores(serve: Serve) -> None:
    cores = sorted(os.sched_getaffinity(0))
    expected = [[core] for core in cores] if len(cores) == 2 else None
    with serve(workers=2) as server:
        infos = worker_infos(server, 2)
        if expected is not None:
            assert sorted(one["cores"] for one in infos.values()) == expected
        victim = min(infos)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: not os.path.exists(f"/proc/{victim}"), "the worker's end")
        after = worker_infos(server, 2)
        assert victim not in after
        if expected is not None:
            assert sorted(one["cores"] for one in after.values()) == expected


def test_pinning_is_disabled_by_the_environment(serve: Serve) -> None:
    with serve(workers=2, A2A_SYNC_PIN_WORKERS="0") as server:
        assert all(one["cores"] == sorted(os.sched_getaffinity(0)) for one in worker_infos(server, 2).values())


# -- starting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--preload"]])
def test_several_workers_with_a_memory_store_are_refused(options: list[str]) -> None:
    command = [sys.executable, "-m", "gunicorn", WORKER, "-c", "python:a2a_sync.gunicorn", "--workers", "2", *options]
    environment = {name: value for name, value in os.environ.items() if name != "WORKER_STORE"}
    done = subprocess.run(
        [*command, "--bind", "127.0.0.1:0"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert SINGLE_PROCESS in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("preload", [False, True], ids=["", "preload"])
def test_threads_start_in_the_workers_and_tasks_are_shared(serve: Serve, preload: bool) -> None:
    with serve(*(["--preload"] if preload else []), workers=2) as server:
        assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
        opened = {os.readlink(path) for path in Path(f"/proc/{server.pid}/fd").iterdir()}
        assert not [name for name in opened if "tasks.db" in name]
        infos = worker_infos(server, 2)
        assert {one["loaded_in"] for one in infos.values()} == ({server.pid} if preload else set(infos))
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


#: An app whose database is a temporary file, created on import: in each worker, or once with ``--preload``.
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
from tests.stopwatch import Stopwatch

flask_app = Flask(__name__)
flask_app.register_blueprint(blueprint(app))
"""
APART = "each of them sees only its own tasks"


@pytest.mark.parametrize("target", ["app", "flask_app"])
def test_workers_with_different_store_files_log_a_warning(serve: Serve, tmp_path: Path, target: str) -> None:
    (tmp_path / "temporary.py").write_text(TEMPORARY + IN_FLASK)
    options = ["--pythonpath", str(tmp_path), "--graceful-timeout", "5"]
    with serve(*options, target=f"temporary:{target}", workers=2) as server:

        def warned() -> bool:
            # A worker discovers a mounted app with its first request.
            requests.get(server.url + "/.well-known/agent-card.json", timeout=60)
            return APART in server.log

        eventually(warned, "the warning")
        (line,) = [line for line in server.log.splitlines() if APART in line]
        assert "[WARNING]" in line
        assert "agent 'worker'" in line
        assert line.count(f"{tmp_path}/tmp") == 2


def test_workers_with_the_same_store_log_no_warning(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "temporary.py").write_text(TEMPORARY)
    with serve("--preload", "--pythonpath", str(tmp_path), target="temporary:app", workers=2) as server:
        before = worker_infos(server, 2)
        # A new worker is compared with the older ones before it serves requests.
        os.kill(next(iter(before)), signal.SIGTERM)
        eventually(lambda: worker_info(server)["pid"] not in before, "a new worker")
        assert APART not in server.log


def test_dead_workers_and_workers_of_an_earlier_configuration_are_not_compared() -> None:
    server = SimpleNamespace(num_workers=2, WORKERS={}, cfg=SimpleNamespace(env={"A2A_SYNC_PIN_WORKERS": "0"}))

    def worker(path: Path) -> tuple[SimpleNamespace, list[str]]:
        said: list[str] = []
        app = A2AApp(Worker(), store=SQLiteStore(path))
        log = SimpleNamespace(warning=lambda words, *values: said.append(words % values))
        age = len(server.WORKERS) + 1
        one = SimpleNamespace(wsgi=app, cfg=server.cfg, pid=age, age=age, log=log)
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


def test_with_gevent_a_preloaded_app_may_import_ssl_early(tmp_path: Path) -> None:
    with gunicorn_gevent(WORKER, "--preload") as server, Client(server.url) as client:
        assert client.send("tls").text == "SSLContext"


# -- ending -------------------------------------------------------------------------------------------------------------


def test_a_stopping_worker_completes_runs_and_streams(serve: Serve) -> None:
    with serve("--graceful-timeout", "20") as server, Client(server.url) as client:
        with client.stream("burn 1") as stream:
            for _ in stream:
                if stream.task is not None and stream.task.status.message is not None:
                    break  # the run has started
            os.kill(server.pid, signal.SIGTERM)
            list(stream)
        assert (stream.state, stream.text) == (TaskState.COMPLETED, "burnt")
        assert server.terminate() == 0


def subscribed(session: requests.Session, server: LiveServer, task_id: str) -> Iterator[bytes]:
    """The lines of a stream that is not resumed; the first one is read."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    stream = session.post(server.url, json=request, headers={"A2A-Version": "1.0"}, stream=True, timeout=60)
    lines: Iterator[bytes] = stream.iter_lines()
    assert next(lines).startswith(b"id: ")
    return lines


def test_a_stopping_worker_refuses_new_runs(serve: Serve) -> None:
    with serve("--graceful-timeout", "8") as server, requests.Session() as session, Client(server.url) as client:
        asked = client.send("ask")
        assert isinstance(asked, Task)
        ready = server.url + "/readyz"
        lines = subscribed(session, server, asked.id)
        _, process = begin(client, "wait")
        assert session.get(ready, timeout=60).status_code == 200
        os.kill(process, signal.SIGTERM)
        # The task has no run, so the end of the stream shows that the worker drains.
        list(lines)
        with pytest.raises(OverloadedError, match="stopping"):
            client.send("info")
        answer = session.get(ready, timeout=60)
        assert (answer.status_code, answer.json()["status"], answer.headers["Connection"]) == (503, "stopping", "close")
        # New connections go to the replacement worker.
        assert worker_info(server)["pid"] != process


def test_runs_past_the_grace_time_fail_and_the_worker_exits_in_time(serve: Serve) -> None:
    with serve("--graceful-timeout", "5") as server, Client(server.url) as client:
        looking, _ = begin(client, "wait")
        hanging, _ = begin(client, "hang")
        with client.subscribe(looking) as first, client.subscribe(hanging) as second:
            assert isinstance(next(iter(first)), Task)
            assert isinstance(next(iter(second)), Task)
            watch = Stopwatch()
            os.kill(server.pid, signal.SIGTERM)
            ends = [states(list(stream))[-1] for stream in (first, second)]
        server.terminate()
        assert watch.within(6.5)
        assert ends == [TaskState.FAILED] * 2
        assert first.text == second.text == "server stopped"


def test_a_retryable_run_and_its_stream_move_to_another_worker(serve: Serve) -> None:
    with serve("--graceful-timeout", "5", workers=2, WORKER_KIND="retry") as server, Client(server.url) as client:
        infos = worker_infos(server, 2)
        with client.stream("wait", timeout=40) as stream:
            for _ in stream:
                if stream.task is not None and stream.task.status.message is not None:
                    break
            assert stream.task is not None
            assert stream.task.status.message is not None
            process = int(stream.task.status.message.text.split()[-1])
            assert process in infos
            os.kill(process, signal.SIGTERM)
            list(stream)
        assert (stream.state, stream.text) == (TaskState.COMPLETED, "attempt 2")
        assert client.get_task(stream.task_id).text == "attempt 2"


def test_a_blocking_send_survives_its_worker(serve: Serve) -> None:
    with serve("--graceful-timeout", "5", workers=2, WORKER_KIND="retry") as server, Client(server.url) as client:
        worker_infos(server, 2)
        texts: list[str] = []
        sender = threading.Thread(target=lambda: texts.append(client.send("wait", timeout=40).text), daemon=True)
        sender.start()
        with Client(server.url) as other:
            (task,) = eventually(lambda: other.list_tasks(status=TaskState.WORKING).tasks, "the task")
            waiting = eventually(lambda: other.get_task(task.id).status.message, "the handler")
            os.kill(int(waiting.text.split()[-1]), signal.SIGTERM)
        sender.join(40)
        assert texts == ["attempt 2"]


def test_streams_of_remote_runs_are_resumed_at_another_worker(serve: Serve) -> None:
    with serve("--graceful-timeout", "20", workers=2) as server, Client(server.url) as client:
        infos = worker_infos(server, 2)
        task_id, process = begin(client, "wait")
        (other,) = set(infos) - {process}
        with client.subscribe(task_id, timeout=60) as stream:
            events = iter(stream)
            assert isinstance(next(events), Task)
            os.kill(other, signal.SIGTERM)
            eventually(lambda: not os.path.exists(f"/proc/{other}"), "the worker's end")
            with Client(server.url) as canceller:
                canceller.cancel_task(task_id)
            assert states(list(events))[-1] is TaskState.CANCELED


def test_sigint_ends_runs_and_streams_immediately(serve: Serve) -> None:
    with serve("--graceful-timeout", "20") as server, Client(server.url) as client:
        task_id, _ = begin(client, "wait")
        with client.subscribe(task_id) as stream:
            events = iter(stream)
            next(events)
            watch = Stopwatch()
            os.kill(server.pid, signal.SIGINT)
            assert states(list(events))[-1] is TaskState.FAILED
        server.terminate()
        assert watch.within(6)


def test_a_mounted_app_is_closed_with_its_worker(serve: Serve) -> None:
    with serve("--graceful-timeout", "5", target="tests.agents.worker:flask_app") as server:
        with Client(server.url + "/agent") as client:
            task_id, _ = begin(client, "wait")
            with client.subscribe(task_id) as stream:
                events = iter(stream)
                next(events)
                watch = Stopwatch()
                os.kill(server.pid, signal.SIGTERM)
                assert states(list(events))[-1] is TaskState.FAILED
        assert server.terminate() == 0
        assert watch.within(6)


def test_streams_of_the_apps_inside_a_framework_leave_threads_to_their_host(serve: Serve) -> None:
    # With gevent the connections are what streams occupy.
    with (
        serve("--worker-connections", "16", target="tests.agents.worker:flask_app") as server,
        Client(server.url + "/agent", retry=None, timeout=10.0) as first,
        Client(server.url + "/second", retry=None, timeout=10.0) as second,
        ExitStack() as streams,
    ):
        tasks = [(client, begin(client, "wait")[0]) for client in (first, second)]

        def open_streams(client: Client, task_id: str) -> None:
            for _ in range(15):
                next(iter(streams.enter_context(client.subscribe(task_id))))

        for client, task_id in tasks:
            with pytest.raises(OverloadedError, match="Too many open streams"):
                open_streams(client, task_id)
        assert requests.get(server.url + "/page", timeout=20).status_code == 404


def test_a_worker_at_max_requests_does_not_wait_for_open_streams(serve: Serve) -> None:
    with (
        serve("--graceful-timeout", "30", "--max-requests", "6") as server,
        Client(server.url) as client,
        requests.Session() as session,
    ):
        first = worker_info(server)["pid"]
        task = client.send("ask")
        assert isinstance(task, Task)
        lines = subscribed(session, server, task.id)
        watch = Stopwatch()
        eventually(lambda: worker_info(server)["pid"] != first, "another worker")
        list(lines)
        eventually(lambda: not os.path.exists(f"/proc/{first}"), "the end of the first")
        assert watch.within(9)


def test_an_idle_keepalive_connection_does_not_delay_the_exit(serve: Serve) -> None:
    with serve("--graceful-timeout", "25") as server, closing(socket.create_connection(server.address)) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        watch = Stopwatch()
        assert server.terminate() == 0
        assert watch.within(8)


# -- cleanup after dead workers -----------------------------------------------------------------------------------------


def sockets(folder: Path) -> set[str]:
    found = sockets_folder(str(folder / "tasks.db"))
    return {path.name.partition("-")[0] for path in found.iterdir()} if found.exists() else set()


def test_files_of_a_killed_worker_are_removed(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    environment = {"METERED_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    options = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn("tests.agents.metered:app", *options, workers=2, environment=environment) as server:
        before = eventually(lambda: listening_workers(server, tmp_path, 2), "sockets of two workers")
        victim = min(before)
        assert list(metrics.glob(f"gauge_live*_{victim}.db"))
        os.kill(int(victim), signal.SIGKILL)
        eventually(lambda: (found := listening_workers(server, tmp_path, 2)) and victim not in found, "a new worker")
        assert victim not in sockets(tmp_path)
        assert not list(metrics.glob(f"gauge_live*_{victim}.db"))


def listening_workers(server: LiveServer, folder: Path, workers: int) -> set[str]:
    """The processes that listen for hints if there are `workers` of them; otherwise send a message to start one, and return none."""
    with Client(server.url) as client:
        client.send("hello")
    found = sockets(folder)
    return found if len(found) == workers else set()


def test_headers_do_not_change_path_or_scheme(serve: Serve) -> None:
    with serve() as server:
        lies = {"SCRIPT_NAME": "/evil", "PATH_INFO": "/healthz", "X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "on"}
        honest = requests.get(server.url + "/.well-known/agent-card.json", timeout=60).json()
        lied = requests.get(server.url + "/.well-known/agent-card.json", headers=lies, timeout=60).json()

    assert lied == honest
