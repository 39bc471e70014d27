"""Five thousand damaged requests of each version: each is accepted or refused with an error of its own, and only accepted ones write."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from a2a_sync import A2AApp, Agent, InputRequired, Limits, MemoryStore, Message, RequestContext
from a2a_sync.lifecycle import Entry, LogEvent, ends_run
from a2a_sync.operations import RunRequest
from a2a_sync.stores.base import RunToken, Scope, StartedRun
from tests.mutations import ASKED, CALLS, CALLS_V03, FINISHED, GRAMMARS, TOKEN, HttpRequest, requests
from tests.wsgi import Answer, Frame, Peer, message

EXAMPLES = 5000
#: What bad input may be told. Codes of the protocol and of JSON-RPC, but for the one that says the server is at fault.
CODES = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32009}
WRITING = {"SendMessage", "SendStreamingMessage", "CancelTask", "message/send", "message/stream", "tasks/cancel"}
#: Calls that are no writes and must have been accepted now and then.
READING = {"1.0": {"GetTask", "ListTasks", "SubscribeToTask"}, "0.3": {"tasks/get", "tasks/resubscribe"}}


class Echo(Agent):
    """Ends at once: with what it was sent, or with a question."""

    name = "echo"
    description = "Says it again"

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        return InputRequired("What?") if message.text == "ask" else list(message.parts)


class Witness(MemoryStore):
    """A memory store that counts what is written and knows which runs go on."""

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

    def start_run(self, scope: Scope, request: RunRequest, events: Sequence[LogEvent], *, create: bool) -> StartedRun:
        started = super().start_run(scope, request, events, create=create)
        self._wrote(request.task_id, True)
        return started

    def append(self, token: RunToken, events: Sequence[LogEvent], *, end: bool = False) -> tuple[Entry, ...]:
        entries = super().append(token, events, end=end)
        self._wrote(token.task_id, not (end or any(map(ends_run, events))))
        return entries

    def interrupt(self, scope: Scope, task_id: str, events: Sequence[LogEvent]) -> tuple[Entry, ...]:
        entries = super().interrupt(scope, task_id, events)
        self._wrote(task_id, False)
        return entries

    def delete(self, scope: Scope, task_id: str) -> None:
        super().delete(scope, task_id)
        self._wrote(task_id, False)

    def await_runs(self) -> None:
        """Until no run goes on."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._running, 10), "a run hangs"


class World:
    """The app, its store, and tasks that requests can name."""

    def __init__(self) -> None:
        self.store = Witness()
        limits = Limits(tick=0.002, busy_wait=5.0, read_deadline=1.0)
        self.app = A2AApp(Echo(), store=self.store, limits=limits, bindings=("JSONRPC",))
        self.peer = Peer(self.app)
        self.counts: Counter[str] = Counter()
        self.longest = 0.0
        self.words: dict[str, str] = {}
        self.renew()

    def renew(self) -> None:
        """Make sure that there is a finished task and one that waits, neither of them about to be forgotten."""
        for word, text, state in ((FINISHED, "done", "COMPLETED"), (ASKED, "ask", "INPUT_REQUIRED")):
            task = self.peer.call("GetTask", {"id": self.words.get(word, "none")}).json.get("result", {})
            if task.get("status", {}).get("state") != "TASK_STATE_" + state:
                sent = self.peer.call("SendMessage", message(text))
                self.words[word] = sent.result["task"]["id"]
        if TOKEN not in self.words:
            self.words[TOKEN] = self.peer.call("ListTasks", {"pageSize": 1}).result["nextPageToken"]

    def send(self, request: HttpRequest) -> tuple[HttpRequest, Answer]:
        """The request with its words filled in, and its answer. Streams are left after their first bytes."""
        body = request.body
        for word, value in self.words.items():
            body = body.replace(word.encode(), value.encode())
        left = threading.Event()
        environ = {"waitress.client_disconnected": left.is_set, "wsgi.input_terminated": True}
        if "Content-Length" in request.headers:
            # A server ends the body where it ends, whatever was announced.
            environ["CONTENT_LENGTH"] = request.headers["Content-Length"]
        headers = {name: value for name, value in request.headers.items() if name != "Content-Length"}
        with self.peer.open(request.method, request.path, body, headers, environ) as answer:
            received = answer.chunk()
            left.set()
            received += b"".join(answer.chunks)
        filled = HttpRequest(request.method, request.path, request.headers, body)
        return filled, Answer(answer.status, answer.headers, received)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    before = threads()
    world = World()
    yield world
    world.app.close(0)
    deadline = time.monotonic() + 10
    for thread in threads() - before:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not threads() - before, "threads are left"


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("a2a-")}


def judge(request: HttpRequest, answer: Answer) -> str:
    """The method that was accepted, or ``""``; whatever the answer is, it has the form of one."""
    assert answer.status < 500
    content_type = answer.headers.get("Content-Type")
    if request.method != "POST" or answer.status in (400, 404, 405):
        assert answer.status in (200, 204, 304, 400, 404, 405)
        return "card" if answer.status in (200, 304) else ""
    if content_type == "text/event-stream":
        return judge_stream(request, answer)
    assert content_type == "application/json"
    assert answer.json["jsonrpc"] == "2.0"
    if "error" not in answer.json:
        assert set(answer.json) == {"jsonrpc", "id", "result"}
        return accepted(request, answer.json["id"])
    judge_error(request, answer)
    return ""


def judge_stream(request: HttpRequest, answer: Answer) -> str:
    blocks = answer.body.decode().split("\n\n")
    assert blocks.pop() == ""
    frames = [Frame(tuple(block.split("\n"))) for block in blocks]
    told = [frame.json for frame in frames if frame.field("data") is not None]
    if len(frames) == 1 and "error" in told[0]:
        # Who reads streams only is told so in one.
        judge_error(request, Answer(answer.status, answer.headers, json.dumps(told[0]).encode()))
        return ""
    assert all(set(event) == {"jsonrpc", "id", "result"} for event in told)
    assert all("kind" in event["result"] or len(event["result"]) == 1 for event in told)
    for event in told:
        accepted(request, event["id"])
    return str(json.loads(request.body.decode("utf-8-sig"))["method"])


def judge_error(request: HttpRequest, answer: Answer) -> None:
    error = answer.error
    assert set(answer.json) == {"jsonrpc", "id", "error"}
    assert error["code"] in CODES, error
    assert (answer.status == 413) == (error["data"][0]["reason"] == "REQUEST_TOO_LARGE")
    assert answer.status in (200, 413)
    assert error["message"]
    assert "Traceback" not in error["message"]
    assert " object at 0x" not in error["message"]
    if error["code"] == -32602:
        (violations,) = [detail["fieldViolations"] for detail in error["data"] if "fieldViolations" in detail]
        assert all(error["message"].startswith(violation["field"]) for violation in violations)
    if error["code"] not in (-32700, -32600, -32005):
        assert answer.json["id"] == json.loads(request.body.decode("utf-8-sig")).get("id")


def accepted(request: HttpRequest, id: Any) -> str:
    """What is accepted is JSON that every strict reader reads alike, and is answered under its own id."""
    call = json.loads(request.body.decode("utf-8-sig"), object_pairs_hook=without_doubles, parse_constant=pytest.fail)
    assert call["jsonrpc"] == "2.0"
    assert call.get("id") == id
    assert call["method"] in CALLS or call["method"] in CALLS_V03
    return str(call["method"])


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


# Threads of the app draw random pauses while requests are drawn; Hypothesis takes that for the doing of a strategy.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("version", GRAMMARS)
def test_damaged_requests_never_hurt(version: str, world: World) -> None:
    world.counts.clear()

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(requests(GRAMMARS[version]))
    def damaged(request: HttpRequest) -> None:
        world.renew()
        world.store.await_runs()
        before = world.store.writes
        began = time.monotonic()
        request, answer = world.send(request)
        world.longest = max(world.longest, time.monotonic() - began)
        method = judge(request, answer)
        world.store.await_runs()
        assert method in WRITING or world.store.writes == before
        world.counts["sent"] += 1
        world.counts["accepted"] += bool(method)
        world.counts[method] += 1

    damaged()

    assert world.counts["sent"] >= EXAMPLES
    assert world.counts["accepted"] * 5 >= world.counts["sent"], world.counts
    writing = WRITING & GRAMMARS[version].calls.keys()
    assert all(world.counts[method] for method in [*writing, *READING[version], "card"])
    assert world.longest < 5
    assert world.peer.call("SendMessage", message("still there")).result["task"]["status"]["state"] == (
        "TASK_STATE_COMPLETED"
    )
