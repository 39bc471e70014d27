"""What every job queue must do, and runs that another process executes.

The two engines of a test share an SQLite file as two processes do: the queue carries nothing but text between them.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, AgentHost, InputRequired, Limits
from a2a_sync import operations as op
from a2a_sync.engine.dispatcher import _SENDING_REQUESTS
from a2a_sync.engine.jobs import FunctionQueue, JobConsumer, JobQueue, JobReference
from a2a_sync.errors import OverloadedError
from a2a_sync.server.metrics import Metrics
from a2a_sync.stores import SQLiteStore
from a2a_sync.stores.base import Owner
from a2a_sync.telemetry.tracing import outgoing
from a2a_sync.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskArtifactUpdateEvent,
    TextPart,
)
from a2a_sync.types import TaskState as S
from tests.engine import TIMEOUT, Gate, Served, eventually


class TextQueue:
    """A job queue to one other process, as a message broker would carry it."""

    def __init__(self) -> None:
        self.texts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.executed: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.broken = False
        #: Sends of this many jobs fail, the first ones, whatever happens to others.
        self.refused = 0
        self.refused_tasks: set[str] = set()
        #: A send waits for it, as for a broker that does not answer.
        self.answers = threading.Event()
        self.answers.set()
        #: The name of the thread of each send.
        self.senders: queue.SimpleQueue[str] = queue.SimpleQueue()

    # -- JobQueue --

    def connect(self, consumer: JobConsumer) -> None:
        pass

    def send(self, job: JobReference) -> None:
        self.senders.put(threading.current_thread().name)
        self.answers.wait()
        if self.broken:
            raise ConnectionError("the broker is gone")
        if len(self.refused_tasks) < self.refused:
            self.refused_tasks.add(job.task_id)
        if job.task_id in self.refused_tasks:
            raise ValueError("no queue for this job")
        self.texts.put(json.dumps(job))

    # -- the consumer --

    def take(self) -> JobReference:
        """The next job."""
        return JobReference(*json.loads(self.texts.get(timeout=TIMEOUT) or ""))

    def consume(self, work: Callable[[JobReference], bool]) -> None:
        while (text := self.texts.get()) is not None:
            self.executed.put(work(JobReference(*json.loads(text))))


class Pair:
    """A process with a queue, and one that executes its jobs; or one process alone, with the default queue."""

    def __init__(self, path: Path, jobs: TextQueue | None) -> None:
        self.path, self.jobs = path, jobs
        self.sites: list[A2AApp] = []
        self.metrics: list[Metrics] = []
        self.consumer: threading.Thread | None = None

    def serve(self, handler: Callable[..., Any], **limits: Any) -> Served:
        limits = {"disconnect_check_interval": 0.05, "store_poll_interval": 0.05, **limits}
        served = Served.__new__(Served)
        served.app = self.site(handler, **limits)
        served.store, served.endpoint = served.app.store, served.app.endpoint()
        if self.jobs is not None:
            worker = self.site(handler, **limits)
            self.consumer = threading.Thread(target=self.jobs.consume, args=(worker.work,), daemon=True)
            self.consumer.start()
        return served

    def site(self, handler: Callable[..., Any], **limits: Any) -> A2AApp:
        agent = Agent("queued", description="d")
        agent.message(handler)
        self.metrics.append(Metrics())
        app = A2AApp(
            agent,
            store=SQLiteStore(self.path),
            job_queue=self.jobs,
            limits=Limits(**limits),
            metrics=self.metrics[-1],
        )
        self.sites.append(app)
        return app

    def close(self) -> None:
        if self.consumer is not None and self.jobs is not None:
            self.jobs.texts.put(None)
            self.consumer.join(TIMEOUT)
        for site in self.sites:
            site.close(0)
            site.store.close()


@pytest.fixture(params=["threads", "another process"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "tasks.db", TextQueue() if request.param != "threads" else None)
    yield made
    made.close()


@pytest.fixture
def jobs() -> TextQueue:
    return TextQueue()


@pytest.fixture
def remote(jobs: TextQueue, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "tasks.db", jobs)
    yield made
    made.close()


# -- the contract -------------------------------------------------------------------------------------------------------


def test_a_blocking_send_returns_the_result(pair: Pair) -> None:
    served = pair.serve(lambda message, context: message.text.upper())
    assert served.send("hello").text == "HELLO"


def test_a_stream_shows_every_event(pair: Pair) -> None:
    stream = pair.serve(lambda message, context: (word for word in message.text.split())).stream("one two")
    events = [item.event for item in stream]
    pieces = [event.artifact.text for event in events if isinstance(event, TaskArtifactUpdateEvent)]
    assert (pieces, events[-1].status.state) == (["one", "two", "onetwo"], S.COMPLETED)


def test_a_task_goes_on_with_the_next_message(pair: Pair) -> None:
    served = pair.serve(lambda message, context: InputRequired("size?") if message.text == "pizza" else "done")
    task = served.send("pizza")
    assert (task.state, served.send("large", task_id=task.id).state) == (S.INPUT_REQUIRED, S.COMPLETED)


def test_a_cancel_stops_the_code(pair: Pair) -> None:
    gate, stopped = Gate(), threading.Event()

    def wait(message: Any, context: Any) -> str:
        context.on_cancel(stopped.set)
        gate.block()
        return "too late"

    served = pair.serve(wait)
    task_id = served.begin()
    gate.wait()
    assert served.cancel(task_id).state is S.CANCELED
    assert stopped.wait(TIMEOUT)
    gate.open.set()
    assert served.get(task_id).state is S.CANCELED


def test_the_run_has_the_context_of_its_call(pair: Pair) -> None:
    served = pair.serve(lambda message, context: f"{context.user and context.user.id} {context.task_id}")
    task = served.send()
    assert task.text == f"None {task.id}"


def test_a_run_continues_the_trace_of_its_call(pair: Pair) -> None:
    served = pair.serve(lambda message, context: outgoing().get("traceparent", "no trace"))
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert served.call(op.SEND_MESSAGE, served.request("go"), headers=headers).text.split("-")[1] == trace


def test_a_run_beyond_its_time_limit_fails(pair: Pair) -> None:
    gate = Gate()

    def wait(message: Any, context: Any) -> str:
        gate.block()
        return "too late"

    task = pair.serve(wait, run_timeout=0.1).send()
    gate.open.set()
    assert (task.state, "longer than its limit" in task.text) == (S.FAILED, True), task.text


def test_the_process_that_executes_a_run_counts_it(pair: Pair) -> None:
    assert pair.serve(lambda message, context: "done").send().text == "done"

    def counted() -> list[float | None]:
        return [one.registry.get_sample_value("a2a_runs_total", {"outcome": "returned"}) for one in pair.metrics]

    eventually(lambda: counted() == ([1.0] if pair.jobs is None else [None, 1.0]), "the count of the run")


def test_a_handler_may_wait_for_a_send_of_its_own(pair: Pair) -> None:
    def nest(message: Any, context: Any) -> str:
        return "inner" if message.text == "inner" else site.send("inner").text + " done"

    site = pair.serve(nest, max_concurrent_runs=1)
    assert site.send("outer").text == "inner done"


# -- queues to other processes ------------------------------------------------------------------------------------------


def test_a_queued_task_is_submitted_until_a_process_executes_it(remote: Pair, jobs: TextQueue) -> None:
    gate = Gate()
    served = remote.serve(lambda message, context: gate.block() or "done")
    task_id = served.begin()
    gate.wait()
    assert served.app.running == 0, "this process has nothing to wait for"
    gate.open.set()
    assert jobs.executed.get(timeout=TIMEOUT)
    assert served.states(task_id) == [S.SUBMITTED, S.WORKING, S.COMPLETED]


def test_a_job_that_is_delivered_again_is_not_executed_again(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    calls: list[str] = []
    web, worker = (remote.site(lambda message, context: calls.append(context.task_id)) for _ in range(2))
    task = _begin(web)
    job = jobs.take()
    assert [worker.work(job), worker.work(job), web.work(job)] == [True, False, False]
    assert calls == [task.id]
    remote.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are sent again soon."""
    monkeypatch.setattr("a2a_sync.engine.dispatcher._FIRST_PAUSE", 0.05)


def test_a_full_queue_refuses_before_anything_is_stored(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web, worker = (remote.site(lambda message, context: "done", max_queued_runs=2) for _ in range(2))
    tasks = [_begin(web) for _ in range(2)]
    with pytest.raises(OverloadedError, match="limit of queued tasks"):
        _begin(web)
    assert _call(web, op.LIST_TASKS, ListTasksRequest()).total_size == 2
    assert web._engine.runs.queued == 2
    assert worker.work(jobs.take())
    eventually(lambda: web._engine.runs.queued == 1)
    assert _begin(web).id not in {task.id for task in tasks}
    remote.close()


@pytest.mark.usefixtures("quick")
def test_a_job_is_sent_again_until_a_process_executes_it(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web, worker = (remote.site(lambda message, context: "done") for _ in range(2))
    task = _begin(web)
    lost, again = jobs.take(), jobs.take()
    assert (again, again.task_id) == (lost, task.id)
    assert worker.work(again)
    eventually(lambda: web._engine.runs.queued == 0)
    assert not worker.work(lost)
    remote.close()


@pytest.mark.usefixtures("quick")
def test_a_job_that_cannot_be_sent_is_sent_when_its_queue_works_again(
    jobs: TextQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web, worker = (remote.site(lambda message, context: "done") for _ in range(2))
    jobs.broken = True
    task = _begin(web)
    assert task.state is S.SUBMITTED
    assert "a job could not be sent to its queue; it is sent again" in caplog.text
    jobs.broken = False
    assert worker.work(jobs.take())
    assert _call(web, op.GET_TASK, GetTaskRequest(id=task.id)).state is S.COMPLETED
    remote.close()


def test_a_queue_that_hangs_holds_few_requests_and_gets_the_jobs_of_the_others_in_order(
    jobs: TextQueue, tmp_path: Path
) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web = remote.site(lambda message, context: "done")
    jobs.answers.clear()
    requests = ThreadPoolExecutor(_SENDING_REQUESTS + 6)
    calls = [requests.submit(_begin, web) for _ in range(_SENDING_REQUESTS)]
    assert {_sender(jobs) != "a2a-dispatch" for _ in calls} == {True}
    tasks = [requests.submit(_begin, web).result(TIMEOUT) for _ in range(6)]
    assert (_sender(jobs), {call.done() for call in calls}) == ("a2a-dispatch", {False})
    assert {_call(web, op.GET_TASK, GetTaskRequest(id=task.id)).state for task in tasks} == {S.SUBMITTED}
    jobs.answers.set()
    waited = {call.result(TIMEOUT).id for call in calls}
    sent: list[str] = []
    while len(sent) < len(tasks):
        sent += {jobs.take().task_id} - waited
    assert sent == [task.id for task in tasks]
    requests.shutdown()
    remote.close()


@pytest.mark.usefixtures("quick")
def test_requests_send_nothing_while_a_queue_fails_and_its_stack_is_logged_once(
    jobs: TextQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web = remote.site(lambda message, context: "done")
    own = threading.current_thread().name
    jobs.broken = True
    tasks = [_begin(web) for _ in range(4)]
    assert [_sender(jobs) == own for _ in range(4)] == [True, False, False, False]
    jobs.broken = False
    assert {jobs.take().task_id for _ in tasks} == {task.id for task in tasks}
    stacks = [bool(one.exc_info) for one in caplog.records if "a job could not be sent" in one.getMessage()]
    assert (stacks[0], set(stacks[1:])) == (True, {False})
    eventually(lambda: _sends_itself(web, jobs), "a send on the thread of its request")
    remote.close()


@pytest.mark.usefixtures("quick")
def test_jobs_that_a_queue_refuses_do_not_keep_others_from_being_sent(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web = remote.site(lambda message, context: "done")
    jobs.refused = 4
    for _ in range(jobs.refused):
        _begin(web)
    eventually(lambda: len(jobs.refused_tasks) == jobs.refused, "a send of each")
    tasks = [_begin(web) for _ in range(3)]
    assert {jobs.take().task_id for _ in tasks} == {task.id for task in tasks}
    remote.close()


def test_requests_send_nothing_while_a_queue_is_slow(
    jobs: TextQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web = remote.site(lambda message, context: "done")
    with monkeypatch.context() as slow:
        slow.setattr("a2a_sync.engine.dispatcher._SLOW", -1.0)
        senders = [(_begin(web), _sender(jobs))[1] for _ in range(3)]
    assert senders == [threading.current_thread().name, "a2a-dispatch", "a2a-dispatch"]
    eventually(lambda: _sends_itself(web, jobs), "a send on the thread of its request")
    remote.close()


def test_the_next_run_of_a_task_frees_the_place_of_the_one_before(
    jobs: TextQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    handler = lambda message, context: InputRequired("size?") if message.text == "go" else "done"  # noqa: E731
    web, worker = (remote.site(handler) for _ in range(2))
    with monkeypatch.context() as unannounced:
        unannounced.setattr("a2a_sync.engine.dispatcher.Dispatcher.check", lambda self, task_id: None)
        task = _begin(web)
        assert worker.work(jobs.take())
        answer = Message(role=Role.USER, parts=(TextPart("large"),), task_id=task.id)
        configuration = SendMessageConfiguration(return_immediately=True)
        _call(web, op.SEND_MESSAGE, SendMessageRequest(message=answer, configuration=configuration))
        assert worker.work(jobs.take())
    web._engine.runs.check_tokens(task.id)
    assert web._engine.runs.queued == 0
    remote.close()


def test_a_forked_child_does_not_send_the_jobs_of_its_parent(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web = remote.site(lambda message, context: "done")
    _begin(web)
    dispatcher = web._engine.runs._dispatcher
    assert dispatcher is not None
    dispatcher.renew()
    assert (dispatcher.waiting, dispatcher._send_next()) == (0, None)
    remote.close()


def test_a_function_queue_carries_text(tmp_path: Path) -> None:
    texts: list[str] = []
    web, worker = (FunctionQueue(texts.append) for _ in range(2))
    sites = []
    for jobs in (web, worker):
        agent = Agent("queued", description="d")
        agent.message(lambda message, context: "done")
        sites.append(A2AApp(agent, store=SQLiteStore(tmp_path / "tasks.db"), job_queue=jobs))
    task = _begin(sites[0])
    assert [worker.work(texts[0]), worker.work(texts[0])] == [True, False]
    assert _call(sites[0], op.GET_TASK, GetTaskRequest(id=task.id)).state is S.COMPLETED
    for site in sites:
        site.close(0)
        site.store.close()


def test_mistakes_with_a_function_queue_are_named(tmp_path: Path) -> None:
    jobs = FunctionQueue(print)
    with pytest.raises(ValueError, match="no app has this queue"):
        jobs.work("[]")
    agent = Agent("queued", description="d")
    agent.message(lambda message, context: "done")
    app = A2AApp(agent, store=SQLiteStore(tmp_path / "tasks.db"), job_queue=jobs)
    for text in (
        '["", "", 1]',
        "[" * 100_000,
        r'["", "", "\ud800", ""]',
        r'["", "", "t", "\u0000"]',
        '["", "", "t", {}]',
    ):
        with pytest.raises(ValueError, match="is not of a job"):
            jobs.work(text)
    with pytest.raises(ValueError, match="serves one app or host"):
        A2AApp(agent, store=app.store, job_queue=jobs)
    app.store.close()


def test_a_reference_does_not_show_its_token() -> None:
    assert "secret" not in repr(JobReference("", "", "task", "secret"))


def test_a_queued_run_of_a_process_that_stops_is_queued_again(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    limits = {"worker_heartbeat_interval": 0.1}
    first, second = (remote.site(lambda message, context: "done", **limits) for _ in range(2))
    task = _begin(first)
    lost = jobs.take()
    second.start()
    first.close(0)
    again = jobs.take()
    assert (again.task_id, again.token != lost.token) == (task.id, True)
    assert [second.work(lost), second.work(again)] == [False, True]
    remote.close()


def test_a_job_of_a_canceled_task_is_not_executed(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    calls: list[str] = []
    web, worker = (remote.site(lambda message, context: calls.append(context.task_id)) for _ in range(2))
    task = _begin(web)
    assert _call(web, op.CANCEL_TASK, CancelTaskRequest(id=task.id)).state is S.CANCELED
    assert (worker.work(jobs.take()), calls) == (False, [])
    remote.close()


def test_the_place_of_a_queued_run_is_free_when_its_task_is_canceled(jobs: TextQueue, tmp_path: Path) -> None:
    remote = Pair(tmp_path / "tasks.db", jobs)
    web = remote.site(lambda message, context: "done", max_queued_runs=1)
    _call(web, op.CANCEL_TASK, CancelTaskRequest(id=_begin(web).id))
    assert web._engine.runs.queued == 0
    assert _begin(web).state is S.SUBMITTED
    remote.close()


def test_a_host_executes_the_jobs_of_its_agents(jobs: TextQueue, tmp_path: Path) -> None:
    hosts = []
    for _ in range(2):
        agent = Agent("queued", description="d")
        agent.message(lambda message, context: "done")
        hosts.append(AgentHost({"one": agent}, store=SQLiteStore(tmp_path / "tasks.db"), job_queue=jobs))
    task = _begin(hosts[0]["one"])
    assert hosts[1].work(jobs.take())
    eventually(lambda: _call(hosts[0]["one"], op.GET_TASK, GetTaskRequest(id=task.id)).state is S.COMPLETED)
    for host in hosts:
        host.close(0)


def test_a_queued_run_fails_where_its_agent_is_not_served_any_more(jobs: TextQueue, tmp_path: Path) -> None:
    agent = Agent("queued", description="d")
    agent.message(lambda message, context: "done")
    options = {"job_queue": jobs, "limits": Limits(worker_heartbeat_interval=0.1)}
    first, without = (
        AgentHost(agents, store=SQLiteStore(tmp_path / "tasks.db"), **options) for agents in ({"one": agent}, {})
    )
    task = _begin(first["one"])
    without.start()
    first.close(0)
    store, owner = without._engine.store, Owner("", f"one{op.OWNER_MARK}")
    eventually(lambda: store.head(owner, task.id).status.state is S.FAILED)
    without.close(0)


def test_a_job_queue_needs_a_shared_store_and_tasks() -> None:
    jobs: JobQueue = TextQueue()
    with pytest.raises(ValueError, match="a store that processes share"):
        A2AApp(Agent("queued", description="d"), job_queue=jobs)
    with pytest.raises(ValueError, match="direct = True"):
        A2AApp(Agent("direct", description="d", direct=True), store="sqlite:///unused.db", job_queue=jobs)


def _call(app: A2AApp, operation: Any, request: Any) -> Any:
    return app.endpoint()(op.Call(operation, request, op.CallContext()))


def _begin(app: A2AApp) -> Any:
    """A task whose run is queued."""
    message = Message(role=Role.USER, parts=(TextPart("go"),))
    configuration = SendMessageConfiguration(return_immediately=True)
    return _call(app, op.SEND_MESSAGE, SendMessageRequest(message=message, configuration=configuration))


def _sender(jobs: TextQueue) -> str:
    """The name of the thread of the next send."""
    return jobs.senders.get(timeout=TIMEOUT)


def _sends_itself(app: A2AApp, jobs: TextQueue) -> bool:
    """Begin a task: whether its request sends the job."""
    while not jobs.senders.empty():
        jobs.senders.get()
    _begin(app)
    return _sender(jobs) == threading.current_thread().name
