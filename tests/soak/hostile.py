"""Hostile clients of all kinds and an honest one at the same time: ``python -m tests.soak --hostile --minutes 10 [--gevent]``.

Four workers, one of which is killed every ten seconds. The honest client's sends must take less than two seconds at the 99th
percentile and lose nothing. Hostile clients must not read its tasks, no webhook may reach this machine, no response may be an
internal error, and no worker may exit by itself. All connections go to loopback.
"""

from __future__ import annotations

import json
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests

from a2a_sync import AgentError, Client, Task, TaskState, TransportError
from tests.hostile import slow
from tests.live import LiveServer, gunicorn, gunicorn_gevent
from tests.soak.agent import HONEST, HOSTILE
from tests.soak.watch import Watch
from tests.wsgi import CARD, JSON_HEADERS, message, rpc

WORKERS, THREADS = 4, 8
#: The limit of the 99th percentile of the honest client's sends, in seconds.
MAX_P99 = 2.0
SLOW_CLIENTS = 112
IDLE_CONNECTIONS = 400
OPEN_STREAMS = 40
#: Pauses between two actions of one client, in seconds, which bound the load.
HONEST_PAUSE = 0.2
HOSTILE_PAUSE = 0.1
#: What gunicorn's gevent worker logs for a client that does not read its response within the time limit.
_STALLED = re.compile(r"Socket error processing request\.\nTraceback .*?\nTimeoutError: timed out\n", re.DOTALL)
_SECRET = "known to the honest client"


class HonestClient:
    """Sends each message with an idempotency key until it is answered, and reads earlier tasks. `failures` lists what it lost."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self.times: list[float] = []
        self.sent: dict[str, str] = {}
        self.repeated = 0
        self.failures: list[str] = []

    def run(self, over: threading.Event) -> None:
        choice = random.Random(self._name)
        while not over.wait(HONEST_PAUSE):
            text = f"{_SECRET} {self._name}-{len(self.times)}"
            began = time.monotonic()
            task = self._until_answered(
                lambda client, text=text: client.send(text, idempotency_key=text.replace(" ", "-"))
            )
            self.times.append(time.monotonic() - began)
            self._check(task, text)
            if self.sent:
                task_id, text = choice.choice(list(self.sent.items()))
                self._check(self._until_answered(lambda client, task_id=task_id: client.get_task(task_id)), text)

    def _until_answered(self, action: Callable[[Client], Any]) -> Any:
        """The result of `action`, which is retried if the worker that serves it is killed."""
        until = time.monotonic() + 60
        while True:
            try:
                with Client(self._url, auth=HONEST, timeout=20) as client:
                    return action(client)
            except (TransportError, AgentError) as error:
                if time.monotonic() > until:
                    return error
                self.repeated += 1

    def _check(self, task: Any, text: str) -> None:
        if isinstance(task, Task) and task.state is TaskState.COMPLETED and task.artifacts[0].text == text:
            self.sent[task.id] = text
        else:
            self.failures.append(f"{text}: {task!r}"[:500])

    def check_stored(self) -> None:
        """Check that every task is stored as it was answered; called at the end."""
        with Client(self._url, auth=HONEST, timeout=60) as client:
            for task_id, text in self.sent.items():
                self._check(client.get_task(task_id), text)


class HostileClients:
    """Threads, each with one kind of attack. `violations` lists answers that must not occur."""

    def __init__(self, server: LiveServer, honest: list[HonestClient], canary: int) -> None:
        self._server, self._honest, self._canary = server, honest, canary
        self.done: Counter[str] = Counter()
        self.violations: list[str] = []
        self._random = random.Random("hostile")
        self._own_task = ""

    def run(self, action: Callable[[], None], over: threading.Event) -> None:
        """Repeat one kind of attack until `over` is set."""
        while not over.wait(HOSTILE_PAUSE):
            try:
                action()
            except (requests.RequestException, OSError):
                self.done["cut off"] += 1
            self.done[action.__name__] += 1

    def actions(self) -> list[Callable[[], None]]:
        """All kinds of attack that end with a response."""
        return [
            self.forge_tokens,
            self.read_tasks_of_others,
            self.use_keys_of_others,
            self.register_webhooks,
            self.start_contexts,
            self.send_malformed_json,
            self.send_huge_ids,
            self.send_hostile_heads,
            self.ask_for_large_answers,
        ]

    def _call(self, method: str, params: Any, *, token: str = HOSTILE, **headers: str) -> requests.Response:
        return self._post(rpc(method, params), token=token, **headers)

    def _post(self, body: bytes, *, token: str = HOSTILE, **headers: str) -> requests.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = requests.post(
            self._server.url,
            data=body,
            headers={**JSON_HEADERS, "Authorization": f"Bearer {token}", **named},
            timeout=60,
        )
        if answer.status_code >= 500 and answer.status_code != 503:
            self._violate(f"HTTP {answer.status_code} for {body[:200]!r}: {answer.text[:200]}")
        if "-32603" in answer.text[:300] or _SECRET in answer.text:
            self._violate(f"{body[:200]!r} was answered {answer.text[:300]}")
        return answer

    def _violate(self, what: str) -> None:
        self.violations.append(what[:600])

    def _refused(self, answer: requests.Response) -> bool:
        return answer.status_code in (400, 401, 403, 404, 413, 429, 431, 503) or "error" in answer.json()

    def _task_of_another(self) -> str:
        known = [task_id for one in self._honest for task_id in list(one.sent)[-50:]]
        return self._random.choice(known) if known else "unknown"

    # -- kinds of attack --

    def forge_tokens(self) -> None:
        forged = self._random.choice(
            ["", "null", HONEST[:-1], HONEST + "x", HONEST.upper(), "eyJhbGciOiJub25lIn0.e30.", "a" * 6000]
        )
        answer = self._call("ListTasks", {}, token=forged)
        if answer.status_code != 401:
            self._violate(f"the token {forged[:40]!r} was answered with HTTP {answer.status_code}")

    def read_tasks_of_others(self) -> None:
        task_id = self._task_of_another()
        for method in ("GetTask", "CancelTask", "SubscribeToTask"):
            if not self._refused(self._call(method, {"id": task_id}, Last_Event_ID="0")):
                self._violate(f"{method} of another caller's task was answered")

    def use_keys_of_others(self) -> None:
        names = [text for one in self._honest for text in list(one.sent.values())[-5:]]
        if names:
            key = self._random.choice(names).replace(" ", "-")
            self._call("SendMessage", message("mine"), Idempotency_Key=key)

    def register_webhooks(self) -> None:
        port = self._canary
        if not self._own_task:
            task = self._call("SendMessage", message("mine")).json().get("result", {}).get("task")
            self._own_task = task["id"] if task else ""
            return
        host = self._random.choice(
            [
                "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "[::1]",
                "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "0", "0.0.0.0", "[::]", "example.com@127.0.0.1",
                "127.0.0.1\\@example.com", "127.0.0.1%00.example.com", "%31%32%37.0.0.1", "ⓛocalhost",
            ]
        )  # fmt: skip
        answer = self._call(
            "CreateTaskPushNotificationConfig", {"taskId": self._own_task, "url": f"http://{host}:{port}/"}
        )
        if answer.status_code < 400 and "error" not in answer.json():
            self._violate(f"a webhook at {host} was accepted")
        elif "TASK_NOT_FOUND" in answer.text:
            self._own_task = ""

    def start_contexts(self) -> None:
        for _ in range(5):
            params = message("mine")
            params["message"]["contextId"] = f"context-{self._random.random()}"
            params["configuration"] = {"returnImmediately": True}
            self._call("SendMessage", params)

    def send_malformed_json(self) -> None:
        body = self._random.choice(
            [b"[" * 200_000, b'{"id":' + b"9" * 10_000 + b"}", b'{"id":1,"id":2}', b"\xff\xfe{\0", b"[]", b'"\\ud800"', b"{" * 99, b" " * 500_000]
        )  # fmt: skip
        self._post(body)

    def send_huge_ids(self) -> None:
        huge = self._random.choice(["x" * 300_000, "\0" * 300, "../" * 1000, "\x1f", "\U0001f600" * 10_000])
        self._call("GetTask", {"id": huge})
        params = message("mine")
        params["message"]["contextId"] = params["message"]["messageId"] = huge
        self._call("SendMessage", params)
        self._call("ListTasks", {"pageToken": huge, "pageSize": 2**70})

    def send_hostile_heads(self) -> None:
        """Heads that are slow to parse, and bodies that end before their announced length."""
        first = b"POST / HTTP/1.1\r\nHost: agent\r\n"
        sent = self._random.choice(
            [
                first + b"Content-Length:" + b" " * 8000 + b"\nX: y\r\n\r\n",
                first + b"Content-Length: 1" + b" " * 60_000 + b"1\r\n\r\n",
                first + b"X: " + b"x" * 200_000,
                first + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 50_000,
                first + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
                first + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
                b"\r\n" * 50_000,
                b"\x16\x03\x01" + bytes(range(256)) * 50,
            ]
        )
        with socket.create_connection(self._server.address, timeout=5) as connection:
            connection.sendall(sent)

    def ask_for_large_answers(self) -> None:
        self._call("SendMessage", message("large 300000"))


@contextmanager
def open_connections(server: LiveServer, count: int, first: bytes, over: threading.Event) -> Iterator[None]:
    """Keep `count` connections open on which `first` is sent and nothing is read; reopen those that the server closes."""
    idle: list[socket.socket] = []

    def keep() -> None:
        while not over.wait(1.0):
            for one in [one for one in idle if slow.closed(one)]:
                idle.remove(one)
                slow.abandon(one)
            while len(idle) < count and not over.is_set():
                try:
                    one = slow.connect(server.address)
                    idle.append(one)
                    one.send(first)
                except OSError:
                    break

    thread = threading.Thread(target=keep, name="open connections", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        for one in idle:
            slow.abandon(one)


@contextmanager
def canary() -> Iterator[tuple[int, list[str]]]:
    """Listen on a port of this machine that no webhook may reach; yield the port and the list of connections."""
    reached: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            reached.append(str(address))
            connection.close()

    threading.Thread(target=listen, name="canary", daemon=True).start()
    try:
        yield listener.getsockname()[1], reached
    finally:
        listener.close()


def authorized(first: bytes) -> bytes:
    """The requests in `first` with the hostile caller's token."""
    return first.replace(b"Host: agent\r\n", b"Host: agent\r\nAuthorization: Bearer " + HOSTILE.encode() + b"\r\n")


def serve(environment: Mapping[str, str], *, gevent: bool) -> AbstractContextManager[LiveServer]:
    """The server under attack, with threads or with greenlets."""
    if gevent:
        return gunicorn_gevent("tests.soak.agent:app", workers=WORKERS, environment=environment)
    settings = ("-c", "python:a2a_sync.gunicorn")
    return gunicorn("tests.soak.agent:app", *settings, threads=THREADS, workers=WORKERS, environment=environment)


def soak(folder: Path, seconds: float, kill: float, *, gevent: bool = False) -> int:
    """Run the soak and print the figures; return 0 if all conditions held."""
    over = threading.Event()
    environment = {"SOAK_STORE": str(folder / "tasks.db")}
    with (
        canary() as (port, reached),
        serve(environment, gevent=gevent) as server,
        ExitStack() as stack,
    ):  # fmt: skip
        with Client(server.url, auth=HOSTILE, timeout=30) as client:
            large = client.send("large 1500000")
        assert isinstance(large, Task)
        honest = [HonestClient(server.url, name) for name in ("first", "second")]
        hostile = HostileClients(server, honest, port)
        watch = Watch(
            server,
            folder,
            min(30.0, seconds / 4),
            kill,
            title="sends   p99 ms  attacks",
            progress=lambda: (
                f"{sum(len(one.times) for one in honest):5}  {percentile(honest, 99) * 1000:7.0f}  {sum(hostile.done.values()):7}"
            ),
            auth=HONEST,
        )
        kinds = {name: replace(kind, first=authorized(kind.first)) for name, kind in slow.kinds(large.id).items()}
        stack.enter_context(slow.Crowd(server.address, kinds, SLOW_CLIENTS))
        card = slow.head(0, path=CARD, verb="GET")
        stream = authorized(slow.call("SendStreamingMessage", message("hold")))
        for count, first in ((IDLE_CONNECTIONS, b""), (IDLE_CONNECTIONS, card), (OPEN_STREAMS, stream)):
            stack.enter_context(open_connections(server, count, first, over))
        threads = [threading.Thread(target=watch.run, name="watch", daemon=True)]
        threads += [threading.Thread(target=one.run, args=(over,), name="honest", daemon=True) for one in honest]
        threads += [
            threading.Thread(target=hostile.run, args=(action, over), name=action.__name__, daemon=True)
            for action in hostile.actions()
        ]
        for thread in threads:
            thread.start()
        over.wait(seconds)
        over.set()
        watch.end()
        for thread in threads:
            thread.join(90)
        stack.close()
        for one in honest:
            one.check_stored()
        return report(server, honest, hostile, watch, reached)


def percentile(honest: list[HonestClient], percent: float) -> float:
    """The percentile over all sends so far, in seconds; 0 without sends."""
    times = sorted(time for one in honest for time in one.times)
    return times[min(len(times) - 1, int(len(times) * percent / 100))] if times else 0.0


def report(
    server: LiveServer, honest: list[HonestClient], hostile: HostileClients, watch: Watch, reached: list[str]
) -> int:
    log = _STALLED.sub("", server.log)
    started = log.count("Booting worker with pid")
    ended = started - WORKERS - watch.killed
    times = [round(percentile(honest, percent) * 1000) for percent in (50, 95, 99, 100)]
    lost = [failure for one in honest for failure in one.failures]
    print(json.dumps(hostile.done, indent=2))
    print(
        f"{sum(len(one.times) for one in honest)} honest sends: {times[0]} ms at the median, {times[1]} ms at p95, {times[2]} ms at"
        f" p99, {times[3]} ms at worst; {sum(one.repeated for one in honest)} calls repeated, {len(lost)} lost;"
        f" {watch.killed} workers killed, {ended} ended by themselves; {len(hostile.violations)} violations,"
        f" {len(reached)} webhooks on this machine"
    )
    for line in [*lost[:10], *hostile.violations[:10]]:
        print(line)
    if "Traceback" in log:
        print(log[log.index("Traceback") - 500 :][:5000])
    # The worker that was killed last may not have been replaced yet.
    bad = lost or hostile.violations or reached or ended > 0 or "Traceback" in log
    return int(bool(bad) or times[2] >= MAX_P99 * 1000)
