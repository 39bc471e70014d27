"""Two hosts that share only services, while their processes die: ``python -m tests.soak.hosts --minutes 10 --clients 200``.

"Hosts" are 127.0.0.2 and 127.0.0.3, each with a gunicorn of two workers and a Celery worker; webhooks are received at 127.0.0.4. They
share a private PostgreSQL and a private Redis. Every ten seconds one process of any kind is killed, and in between one is stopped or
frozen; PostgreSQL is restarted twice in immediate mode, Redis is emptied and restarted. At the end every acknowledged send must be
there, once and complete, every stream must have been exact, every cancel obeyed and every webhook posted to; else the exit code is
1. All connections go to loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from a2a_sync import AgentError, Client, Task, TaskState, TransportError
from a2a_sync.errors import TaskNotCancelableError
from a2a_sync.stores import PostgresStore
from a2a_sync.stores.base import Owner
from a2a_sync.types import TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from tests.live import ROOT, free_port
from tests.services.brokers import PrivateBroker, private_redis
from tests.services.servers import Postgres
from tests.soak.hosts_agent import RECEIVER
from tests.soak.watch import children

T = TypeVar("T")
HOSTS = ("127.0.0.2", "127.0.0.3")
TARGET = "tests.soak.hosts_agent"
#: Seconds within which every call must succeed, whatever dies meanwhile.
PATIENCE = 120.0
#: Actions per second of all clients together.
RATE = 12.0
#: How long a process is frozen, in seconds: longer than three heartbeats.
FROZEN = 8.0


class Process:
    """A process of a host, which is started again when it has died, as a service manager does."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self._command, self._environment = command, environment
        self.folder = folder / name
        self.folder.mkdir()
        self.starts = 0
        self._process: subprocess.Popen[bytes]

    def start(self) -> None:
        self.starts += 1
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep_alive(self) -> None:
        if self._process.poll() is not None:
            self._signal_group(signal.SIGKILL)  # what its death has left
            self.start()

    def kill_child(self) -> None:
        found = children(self._process.pid)
        if found:
            os.kill(random.choice(found), signal.SIGKILL)

    def kill(self) -> None:
        self._signal_group(signal.SIGKILL)
        self._process.wait(60)

    def stop_child(self) -> None:
        found = children(self._process.pid)
        if found:
            os.kill(random.choice(found), signal.SIGTERM)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def freeze_child(self) -> None:
        """Let a child sleep for so long that the others believe it dead."""
        for pid in random.sample(children(self._process.pid), 1) if children(self._process.pid) else ():
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(FROZEN, _thaw, (pid,)).start()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _thaw(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


class Site:
    """Both hosts, their services, and what kills them."""

    def __init__(self, postgres: Postgres, redis: PrivateBroker, folder: Path) -> None:
        self.postgres, self.redis = postgres, redis
        self.held = folder / "held"
        self.held.mkdir()
        environment = {"CHAOS_STORE": postgres.url, "CHAOS_REDIS": redis.url, "CHAOS_FOLDER": str(self.held)}
        self.urls, self.web, self.workers = [], [], []
        for host, pool in zip(HOSTS, ("prefork", "threads"), strict=True):
            port = free_port(host)
            self.urls.append(f"http://{host}:{port}")
            bind = ["-b", f"{host}:{port}", "-w", "2", "--threads", "64", "--graceful-timeout", "10"]
            web = ["gunicorn", "-c", "python:a2a_sync.gunicorn", *bind, f"{TARGET}:app"]
            celery = [
                "celery",
                "-A",
                f"{TARGET}:celery",
                "worker",
                "-P",
                pool,
                "-c",
                "8",
                "-n",
                f"w@{host}",
                "-l",
                "info",
            ]
            quiet = ["--without-mingle", "--without-gossip"]
            self.web.append(Process(f"web-{host}", [sys.executable, "-m", *web], environment, folder))
            self.workers.append(Process(f"celery-{host}", [sys.executable, "-m", *celery, *quiet], environment, folder))
        self.processes = [*self.web, *self.workers]
        self.done: Counter[str] = Counter()

    def start(self) -> None:
        for process in self.processes:
            process.start()
        for url in self.urls:
            until_answered("the start", lambda client: client.card(), [url])

    def kill_something(self) -> None:
        """Kill one process of any kind: a child or a whole group."""
        self._one_of("kill", "kill_child")

    def stop_something(self) -> None:
        """Stop or freeze one process of any kind: a child or a whole group."""
        self._one_of("stop", "stop_child", "freeze_child")

    def _one_of(self, *actions: str) -> None:
        process = random.choice(self.processes)
        if process is self.workers[1]:
            # It has threads in place of children.
            actions = tuple(one for one in actions if not one.endswith("child"))
        elif process not in self.web:
            actions = tuple(one for one in actions if one != "stop_child")
        action = random.choice(actions)
        self.note(f"{action} {process.name}")
        getattr(process, action)()

    def restart_postgres(self) -> None:
        self.note("restart PostgreSQL in immediate mode")
        self.postgres.restart(signal.SIGQUIT)

    def flush_redis(self) -> None:
        import redis

        self.note("flush Redis")
        redis.Redis.from_url(self.redis.url).flushall()

    def restart_redis(self) -> None:
        self.note("kill and restart Redis")
        self.redis.kill()
        self.redis.start()

    def note(self, what: str) -> None:
        self.done[what.partition("-127")[0]] += 1
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)

    def close(self) -> None:
        for process in self.processes:
            process.kill()

    def torment(self, seconds: float, pause: float, over: threading.Event) -> None:
        """Kill a process every `pause` seconds, and stop or freeze one in between; restart the services at fixed parts of the time."""
        began = time.monotonic()
        services = [
            (0.25, self.restart_postgres),
            (0.4, self.flush_redis),
            (0.55, self.restart_redis),
            (0.7, self.restart_postgres),
        ]
        harms = itertools.cycle((self.kill_something, self.stop_something))
        next_harm = pause
        while not over.wait(0.5) and (elapsed := time.monotonic() - began) < seconds:
            for process in self.processes:
                process.keep_alive()
            if services and elapsed > services[0][0] * seconds:
                services.pop(0)[1]()
            if elapsed > next_harm:
                next_harm += pause / 2
                next(harms)()


def until_answered(what: str, action: Callable[[Client], T], urls: list[str]) -> T:
    """The result of a call that may be repeated: at any of the hosts, until one answers.

    Raises:
        AssertionError: none has answered within `PATIENCE` seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with Client(random.choice(urls), timeout=PATIENCE) as client:
                return action(client)
        except TaskNotCancelableError:
            raise
        except (TransportError, AgentError) as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not answered within {PATIENCE:g} s: {error!r}") from error
        time.sleep(random.uniform(0.1, 0.5))


class Receiver(ThreadingHTTPServer):
    """The webhook of all tasks. `numbers` are those of the events that were posted, by task."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)
        super().__init__((RECEIVER, 0), Notification)
        self.url = f"http://{RECEIVER}:{self.server_address[1]}/hook"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Its caller was killed."""


class Notification(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) == length:
            json.loads(body)
            task_id, _, number = self.headers["X-A2A-Notification-Id"].partition("/")
            self.server.numbers[task_id].append(int(number))
            self.send_response(204)
            self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


class Clients:
    """Send, stream and cancel at random hosts. `failures` lists what was not as promised."""

    def __init__(self, site: Site, receiver: Receiver, count: int) -> None:
        self.site, self._receiver, self._count = site, receiver, count
        self._store = PostgresStore(site.postgres.url, pool=4)
        self._lock = threading.Lock()
        self._number = 0
        self.over = threading.Event()
        #: The texts of all messages that were sent, and of those that were acknowledged the id of the task.
        self.sent: set[str] = set()
        self.acknowledged: dict[str, str] = {}
        self.canceled: set[str] = set()
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.longest = 0.0

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(self._count)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self.over.set()
        deadline = time.monotonic() + 2 * PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        left = sum(thread.is_alive() for thread in self._threads)
        if left:
            self.failures.append(f"{left} clients did not come back")

    def _run(self) -> None:
        pause = self._count / RATE
        if self.over.wait(random.uniform(0, pause)):
            return
        while True:
            action = random.choice([self.send, self.stream, self.begin, self.cancel])
            began = time.monotonic()
            try:
                action()
                self.done[action.__name__] += 1
            except Exception as error:
                self.failures.append(f"{action.__name__}: {error!r}"[:600])
            self.longest = max(self.longest, time.monotonic() - began)
            if self.over.wait(random.uniform(0.5, 1.5) * pause):
                return

    def _text(self, command: str) -> tuple[str, str]:
        with self._lock:
            self._number += 1
            text = f"{self._number} {command}"
            self.sent.add(text)
        return text, f"key-{self._number}"

    # -- actions --

    def send(self) -> None:
        """A blocking send."""
        count = random.randrange(1, 10)
        text, key = self._text(f"count {count}")
        task = until_answered(text, lambda client: client.send(text, idempotency_key=key, stream=False), self.site.urls)
        self._acknowledge(text, task)
        self._check_end(text, task, count)

    def begin(self) -> None:
        """A send that does not wait, with a webhook."""
        text, key = self._text(f"count {random.randrange(1, 10)}")
        hook = self._receiver.url
        task = until_answered(
            text,
            lambda client: client.send(text, idempotency_key=key, return_immediately=True, push_config=hook),
            self.site.urls,
        )
        self._acknowledge(text, task)

    def stream(self) -> None:
        """A stream, which the client resumes when it is cut."""
        count = random.randrange(5, 30)
        text, key = self._text(f"count {count}")

        def follow(client: Client) -> tuple[Task | None, list[int], bool]:
            received, first, numbers = [], None, []
            with client.stream(text, idempotency_key=key) as stream:
                for event in stream:
                    if isinstance(event, (TaskStatusUpdateEvent, TaskArtifactUpdateEvent)):
                        numbers.append(stream.last_event_id)
                    elif not received:
                        first = stream.last_event_id
                    received.append(event)
                task, resynchronised = stream.task, stream.resynchronised
            return task, [int(number or 0) for number in (first, *numbers)], resynchronised

        task, numbers, resynchronised = until_answered(text, follow, self.site.urls)
        self._acknowledge(text, task)
        self._check_end(text, task, count)
        self.done["streams resynchronised"] += resynchronised
        if task is not None and not resynchronised:
            log = self._store.log(Owner(), task.id, limit=100_000).entries
            expected = [entry.number for entry in log if entry.streamed and entry.number > numbers[0]]
            if numbers[1:] != expected:
                self.failures.append(f"{text}: the stream of {task.id} had {numbers}, the log has {expected}")

    def cancel(self) -> None:
        """A run that waits is canceled, at any host."""
        text, key = self._text("hold")
        task = until_answered(
            text, lambda client: client.send(text, idempotency_key=key, return_immediately=True), self.site.urls
        )
        task_id = self._acknowledge(text, task)
        time.sleep(random.uniform(0, 2))
        try:
            until_answered(text, lambda client: client.cancel_task(task_id), self.site.urls)
        except TaskNotCancelableError:
            pass  # the answer of the first attempt was lost
        self.canceled.add(task_id)

    # -- checks --

    def _acknowledge(self, text: str, task: Any) -> str:
        assert isinstance(task, Task), task
        self.acknowledged[text] = task.id
        return task.id

    def _check_end(self, text: str, task: Any, count: int) -> None:
        found = [artifact.text for artifact in task.artifacts]
        if task.state is not TaskState.COMPLETED or found != ["".join(f"{number} " for number in range(count))]:
            self.failures.append(f"{text}: {task.id} is {task.state} with {found}: {task.text}")

    def check_all(self) -> None:
        """Wait until every task has ended, then check all of them."""
        stored = self._await_ends()
        texts: Counter[str] = Counter(task.history[0].text for task in stored.values())
        self.failures += [f"{text}: {count} tasks" for text, count in texts.items() if count > 1]
        self.failures += [f"{text}: never sent" for text in texts.keys() - self.sent]
        for text, task_id in self.acknowledged.items():
            task = stored.get(task_id)
            if task is None or task.history[0].text != text:
                self.failures.append(f"{text}: acknowledged as {task_id}, and lost")
            elif task_id in self.canceled:
                if task.state is not TaskState.CANCELED:
                    self.failures.append(f"{text}: {task_id} was canceled, and is {task.state}")
            elif not text.endswith("hold"):
                self._check_end(text, task, int(text.split()[-1]))
        self._await("runs of canceled tasks go on", self._held)
        self._await("webhooks were not posted to", lambda: self._unposted(stored))

    def _await_ends(self) -> dict[str, Task]:
        def unfinished() -> list[str]:
            states = (TaskState.SUBMITTED, TaskState.WORKING)
            found = until_answered(
                "list", lambda client: [list(client.iter_tasks(status=state)) for state in states], self.site.urls
            )
            # A send to hold that was never acknowledged is not canceled either.
            return [task.id for tasks in found for task in tasks if task.id in self.acknowledged.values()]

        self._await("tasks have not ended", unfinished)
        tasks = until_answered(
            "list",
            lambda client: list(client.iter_tasks(page_size=100, history_length=50, include_artifacts=True)),
            self.site.urls,
        )
        return {task.id: task for task in tasks}

    def _held(self) -> list[str]:
        """Runs of canceled tasks whose code goes on, in processes that live."""
        held = [path.name.split(".") for path in self.site.held.iterdir()]
        return [task_id for task_id, pid in held if task_id in self.canceled and Path(f"/proc/{pid}").exists()]

    def _unposted(self, stored: dict[str, Task]) -> list[str]:
        missing = []
        for task_id in stored:
            if self._store.webhooks.of_task(Owner(), task_id):
                log = self._store.log(Owner(), task_id, limit=100_000).entries
                expected = {entry.number for entry in log if entry.streamed}
                if expected - set(self._receiver.numbers.get(task_id, ())):
                    missing.append(task_id)
        return missing

    def _await(self, what: str, find: Callable[[], list[str]]) -> None:
        deadline = time.monotonic() + PATIENCE
        while found := find():
            if time.monotonic() > deadline:
                self.failures.append(f"{len(found)} {what}: {found[:5]}")
                return
            time.sleep(1)

    def close(self) -> None:
        self._store.close()


def errors(site: Site) -> Counter[str]:
    """What the processes have logged as errors: the last line of each traceback, without ids."""
    found: Counter[str] = Counter()
    for process in site.processes:
        log = (process.folder / "log").read_text(errors="replace")
        for block in re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(.*)", log):
            found[re.sub(r"[0-9a-f]{4,}[-0-9a-f]*|\d+", "…", block)[:160]] += 1
    return found


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        yield receiver
        receiver.shutdown()


def run(seconds: float, count: int, kill: float, folder: Path) -> int:
    (folder / "redis").mkdir()
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(contextlib.closing(Postgres()))
        postgres.start()
        redis = stack.enter_context(private_redis(folder / "redis"))
        site = stack.enter_context(contextlib.closing(Site(postgres, redis, folder)))
        receiver = stack.enter_context(receiving())
        site.start()
        clients = stack.enter_context(contextlib.closing(Clients(site, receiver, count)))
        clients.start()
        site.torment(seconds, kill, threading.Event())
        print("the end: no more kills", flush=True)
        quiet = threading.Event()
        keeper = threading.Thread(target=keep_alive, args=(site, quiet), daemon=True)
        keeper.start()
        clients.end()
        clients.check_all()
        quiet.set()
        keeper.join(60)
        report(site, receiver, clients)
        return int(bool(clients.failures))


def keep_alive(site: Site, quiet: threading.Event) -> None:
    while not quiet.wait(0.5):
        for process in site.processes:
            process.keep_alive()


def report(site: Site, receiver: Receiver, clients: Clients) -> None:
    posted = sum(map(len, receiver.numbers.values()))
    print(f"killed and stopped: {dict(site.done)}")
    print(f"done: {dict(clients.done)}; the longest took {clients.longest:.1f} s")
    print(
        f"{len(clients.acknowledged)} sends acknowledged, {len(clients.sent) - len(clients.acknowledged)} not;"
        f" {len(clients.canceled)} cancels; {posted} notifications of {len(receiver.numbers)} tasks;"
        f" {len(clients.failures)} failures"
    )
    for line, number in errors(site).most_common(12):
        print(f"  logged {number} times: {line}")
    for failure in clients.failures[:20]:
        print(f"FAILURE {failure}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.hosts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration in minutes (default: 10)")
    parser.add_argument("--clients", type=int, default=200, help="number of clients (default: 200)")
    parser.add_argument("--kill", type=float, default=10.0, help="seconds between two kills (default: 10)")
    parser.add_argument("--seed", type=int, help="of what is chosen at random; by default another one each time")
    parser.add_argument("--folder", help="keeps the logs of all processes (default: a temporary one)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    random.seed(seed)
    print(f"seed {seed}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(options.folder or stack.enter_context(tempfile.TemporaryDirectory()))
        return run(options.minutes * 60, options.clients, options.kill, folder)


if __name__ == "__main__":
    sys.exit(main())
