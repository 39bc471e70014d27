"""The app for damaged requests: it counts writes to the store, and checks that no run or thread remains."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from urllib.parse import unquote_to_bytes

from a2a_sync import A2AApp, Agent, InputRequired, Limits, MemoryStore, Message, RequestContext
from a2a_sync.lifecycle import Entry, LogEvent, ends_run
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import Owner, RunToken, StartedRun
from tests.hostile.mutations import ASKED, FINISHED, TOKEN, HttpRequest
from tests.wsgi import Answer, Peer, message

REQUESTS = 5000


class Echo(Agent):
    """Answers immediately, with the text or with a question."""

    name = "echo"
    description = "Echoes the text"

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        return InputRequired("What?") if message.text == "ask" else list(message.parts)


class CountingStore(MemoryStore):
    """A memory store that counts writes and tracks active runs."""

    def __init__(self) -> None:
        super().__init__(max_tasks=200)
        self.writes = 0
        self._running: set[str] = set()
        self._changed = threading.Condition()

    def _wrote(self, task_id: str, running: bool) -> None:
        with self._changed:
            self.writes += 1
            (self._running.add if running else self._running.discard)(task_id)
            self._changed.notify_all()

    def start_run(self, scope: Owner, request: RunRequest, events: Sequence[LogEvent], **options: Any) -> StartedRun:
        started = super().start_run(scope, request, events, **options)
        self._wrote(request.task_id, started.head.running)
        return started

    def append(
        self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False, **options: Any
    ) -> tuple[Entry, ...]:
        entries = super().append(token, events, end=end, **options)
        self._wrote(token.task_id, not (end or any(map(ends_run, events))))
        return entries

    def interrupt(self, scope: Owner, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        entries = super().interrupt(scope, task_id, events)
        self._wrote(task_id, False)
        return entries

    def delete(self, scope: Owner, task_id: str) -> None:
        super().delete(scope, task_id)
        self._wrote(task_id, False)

    def await_runs(self) -> None:
        """Wait until no run is active."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._running, 10), "a run hangs"


class FuzzTarget:
    """The app, its store, and tasks that requests can name."""

    def __init__(self, bindings: Sequence[str]) -> None:
        self.store = CountingStore()
        limits = Limits(disconnect_check_interval=0.002, busy_task_timeout=5.0, body_idle_timeout=1.0)
        self.app = A2AApp(Echo(), store=self.store, limits=limits, protocol_bindings=bindings)
        self.peer = Peer(self.app)
        self.counts: Counter[str] = Counter()
        self.longest = 0.0
        self.words: dict[str, str] = {}
        self._renewed = -1
        self.renew()

    def renew(self) -> None:
        """Ensure that there are a finished and an interrupted task, and that neither will be evicted soon."""
        if self._renewed == self.store.writes:
            return
        for word, text, state in ((FINISHED, "done", "COMPLETED"), (ASKED, "ask", "INPUT_REQUIRED")):
            task = self.peer.call("GetTask", {"id": self.words.get(word, "none")}).json.get("result", {})
            if task.get("status", {}).get("state") != "TASK_STATE_" + state:
                sent = self.peer.call("SendMessage", message(text))
                self.words[word] = sent.result["task"]["id"]
        if TOKEN not in self.words:
            self.words[TOKEN] = self.peer.call("ListTasks", {"pageSize": 1}).result["nextPageToken"]
        self.store.await_runs()
        self._renewed = self.store.writes

    def send(self, request: HttpRequest) -> tuple[HttpRequest, Answer]:
        """Fill in the words of a request, and send it. Streams are closed after their first bytes."""
        body, address = request.body, request.path
        for word, value in self.words.items():
            body, address = body.replace(word.encode(), value.encode()), address.replace(word, value)
        left = threading.Event()
        path, _, query = address.partition("?")
        environ = {
            "waitress.client_disconnected": left.is_set,
            "wsgi.input_terminated": True,
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "REQUEST_URI": address,
            "RAW_URI": address,
        }
        if "Content-Length" in request.headers:
            # A server passes the body that arrived, whatever length was announced.
            environ["CONTENT_LENGTH"] = request.headers["Content-Length"]
        headers = {name: value for name, value in request.headers.items() if name != "Content-Length"}
        with self.peer.open(request.method, "/", body, headers, environ) as answer:
            received = answer.chunk()
            left.set()
            received += b"".join(answer.chunks)
        filled = HttpRequest(request.method, address, request.headers, body)
        return filled, Answer(answer.status, answer.headers, received)

    def damage(
        self,
        draw: Callable[[Random], HttpRequest],
        judge: Callable[[HttpRequest, Answer], str],
        writing: set[str],
    ) -> None:
        """Send random requests, and count what `judge` returns for each response: the accepted operation.

        Each run sends others. A failure names its seed: the environment variable ``A2A_TEST_SEED`` repeats its requests.
        """
        self.counts.clear()
        seed = int(os.environ.get("A2A_TEST_SEED") or secrets.randbits(32))
        random = Random(seed)
        for number in range(REQUESTS):
            request = draw(random)
            try:
                self._send_and_judge(request, judge, writing)
            except BaseException as error:
                error.add_note(f"request {number} with A2A_TEST_SEED={seed}: {request}")
                raise
        assert self.counts["accepted"] * 5 >= REQUESTS, (seed, self.counts)
        assert self.longest < 5
        done = self.peer.call("SendMessage", message("still there")).result["task"]
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"

    def _send_and_judge(
        self, request: HttpRequest, judge: Callable[[HttpRequest, Answer], str], writing: set[str]
    ) -> None:
        self.renew()
        before = self.store.writes
        began = time.monotonic()
        request, answer = self.send(request)
        self.longest = max(self.longest, time.monotonic() - began)
        accepted = judge(request, answer)
        self.store.await_runs()
        assert accepted in writing or self.store.writes == before
        self.counts["accepted"] += bool(accepted)
        self.counts[accepted] += 1


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("a2a-")}


@contextmanager
def fuzz_target(bindings: Sequence[str]) -> Iterator[FuzzTarget]:
    """A target whose threads have ended when the block ends."""
    before = threads()
    world = FuzzTarget(bindings)
    yield world
    world.app.close(0)
    deadline = time.monotonic() + 60
    for thread in threads() - before:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not threads() - before, "some threads did not end"
