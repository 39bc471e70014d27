"""One caller uses as many resources as it can; calls of another caller are not affected."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, DataPart, Limits, MemoryStore, Message, Retry, SQLiteStore, Task, TaskState
from a2a_sync.concurrency import quotas
from a2a_sync.concurrency.gevent import patched
from a2a_sync.engine import runs
from a2a_sync.errors import OverloadedError, RequestTooLargeError, TaskNotFoundError
from a2a_sync.integrations.remote import AgentTool
from a2a_sync.limits import OwnerQuota
from a2a_sync.operations import NAMED_MARK
from a2a_sync.stores.base import (
    SMALL_BYTES,
    Owner,
    OwnerFull,
    StartedRun,
    StoreQuota,
    TaskFull,
    TaskPage,
    TaskQuery,
    TaskStore,
)
from a2a_sync.testing import wsgi_session
from a2a_sync.testing.storecontract.making import begin, message
from tests.agents.shared import agent, caller
from tests.engine import TIMEOUT, Background, Gate, eventually
from tests.hostile.slow import abandon, call, connect
from tests.live import LiveServer, gunicorn, gunicorn_gevent
from tests.stopwatch import Stopwatch, set_clock
from tests.wsgi import message as message_of

#: The limit of an honest call in seconds while another caller uses all it can.
SOON = 2.0
MEGABYTE = 1_000_000


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with gunicorn("tests.agents.shared:app", "-c", "python:a2a_sync.gunicorn", threads=8) as server:
        yield server


def named(url: str, name: str, **options: object) -> Client:
    return Client(url, headers={"X-Caller": name}, retry=Retry.off, **options)  # type: ignore[arg-type]


def check_served(honest: Client) -> None:
    """Assert that all kinds of calls of the honest caller are answered in time."""
    for _ in range(3):
        watch = Stopwatch()
        assert honest.send("hello").text == "hello"
        with honest.stream("hello") as events:
            list(events)
            assert events.text == "hello"
        asked = honest.send("ask")
        assert asked.state is TaskState.INPUT_REQUIRED
        assert honest.send("hello", task_id=asked.id).state is TaskState.COMPLETED
        assert watch.within(SOON)


@pytest.mark.live
@pytest.mark.timeout(60)
def test_streams_of_one_caller_leave_threads_to_another(server: LiveServer) -> None:
    with ExitStack() as stack:
        greedy = stack.enter_context(named(server.url, "greedy"))
        honest = stack.enter_context(named(server.url, "honest"))
        tasks = [greedy.send("wait", return_immediately=True).id for _ in range(8)]
        for task_id in tasks * 2:
            next(iter(stack.enter_context(greedy.subscribe(task_id, timeout=30))))
        check_served(honest)
        for task_id in tasks:
            greedy.cancel_task(task_id)


@pytest.mark.live
@pytest.mark.timeout(60)
def test_streams_that_hold_threads_leave_some_to_another_caller() -> None:
    settings = ("-c", "python:a2a_sync.gunicorn")
    with (
        gunicorn("tests.agents.shared:app", *settings, threads=8, worker="gthread") as server,
        ExitStack() as stack,
    ):
        greedy = stack.enter_context(named(server.url, "greedy"))
        honest = stack.enter_context(named(server.url, "honest"))
        tasks = [greedy.send("wait", return_immediately=True).id for _ in range(8)]
        held, refused = [], []
        for task_id in tasks:
            try:
                stream = stack.enter_context(greedy.subscribe(task_id, timeout=30))
                next(iter(stream))
                held.append(task_id)
            except OverloadedError:
                refused.append(task_id)
        assert held
        assert refused
        check_served(honest)
        for task_id in tasks:
            greedy.cancel_task(task_id)


@pytest.mark.live
@pytest.mark.timeout(60)
def test_streams_leave_connections_to_other_callers() -> None:
    """Streams without threads occupied every connection of a worker, which then accepted no further one."""
    options = ["-c", "python:a2a_sync.gunicorn", "--worker-connections", "64"]
    with gunicorn("tests.agents.shared:app", *options, threads=8) as server, ExitStack() as stack:
        greedy = stack.enter_context(named(server.url, "greedy"))
        honest = stack.enter_context(named(server.url, "honest"))
        task = greedy.send("ask")
        greedy.close()
        streams = [stack.enter_context(socket.create_connection(server.address, timeout=30)) for _ in range(64)]
        for stream in streams:
            stream.sendall(call("SubscribeToTask", {"id": task.id}, "X-Caller: greedy"))
        statuses = [stream.recv(13)[9:12] for stream in streams[:-2]]
        assert set(statuses) == {b"200", b"429"}
        check_served(honest)


@pytest.mark.live
@pytest.mark.timeout(60)
def test_waiting_sends_of_one_caller_leave_threads_to_another(server: LiveServer) -> None:
    clients = [named(server.url, "greedy") for _ in range(20)]
    sends = [Background(lambda client=client: client.send("wait", timeout=60)) for client in clients]
    with named(server.url, "greedy") as greedy, named(server.url, "honest") as honest:
        eventually(lambda: len(greedy.list_tasks().tasks) == len(sends), "the sends")
        check_served(honest)
        assert all(send.waiting for send in sends)
        for task in greedy.list_tasks().tasks:
            if not task.state.terminal:
                greedy.cancel_task(task.id)
    for client in clients:
        client.close()


@pytest.mark.parametrize("kind", ["to_thread", "remote"])
def test_canceled_async_runs_of_one_caller_leave_threads_to_another(kind: str) -> None:
    calls, asleep, awake = Agent("calls"), threading.Semaphore(0), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        slow, quick = (
            AgentTool(stack.enter_context(client), name="tool", description="A tool")
            for client in (Client.for_endpoint(url), Client(agent))
        )

        def sleep(text: str) -> str:
            asleep.release()
            awake.wait(30)
            return text

        @calls.message
        async def handle(message: Message, context: object) -> str:
            if kind == "remote":
                return (await (slow if message.text == "wait" else quick).answer("hello")).text
            return await asyncio.to_thread(sleep if message.text == "wait" else str, "hello")

        def wait_for_call() -> None:
            if kind == "remote":
                stack.enter_context(silent.accept()[0])
            else:
                assert asleep.acquire(timeout=10)

        session = wsgi_session(stack.enter_context(A2AApp(calls, auth=caller)))
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        try:
            for _ in range(64):
                begun = greedy.send("wait", return_immediately=True)
                wait_for_call()
                greedy.cancel_task(begun.id)
            watch = Stopwatch()
            assert honest.send("hello", timeout=10).text == "hello"
            assert watch.within(SOON)
        finally:
            awake.set()


@pytest.mark.live
@pytest.mark.timeout(60)
def test_blocking_sends_on_many_connections_do_not_delay_another(server: LiveServer) -> None:
    """200 connections: those beyond the share of their caller waited on all threads, and other callers for seconds."""
    with ExitStack() as stack:
        honest = stack.enter_context(named(server.url, "honest"))
        honest.send("hello")
        for _ in range(200):
            greedy = stack.enter_context(socket.create_connection(server.address))
            greedy.sendall(call("SendMessage", message_of("pause"), "X-Caller: greedy"))
        check_served(honest)


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["threads", "gevent"])
def test_many_streams_of_a_long_task_do_not_delay_another(kind: str) -> None:
    """Under gevent one caller's streams kept the only thread for half a minute, until gunicorn killed the worker."""
    started = gunicorn_gevent if kind == "gevent" else partial(gunicorn, threads=8)
    with started("tests.agents.shared:app") as server, ExitStack() as stack:
        honest = stack.enter_context(named(server.url, "honest"))
        greedy = stack.enter_context(named(server.url, "greedy"))
        task = greedy.send("ask")
        readers = stack.enter_context(selectors.DefaultSelector())
        for _ in range(400):
            reader = stack.enter_context(socket.create_connection(server.address))
            reader.sendall(call("SubscribeToTask", {"id": task.id}, "X-Caller: greedy"))
            readers.register(reader, selectors.EVENT_READ, reader.recv)
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                for key, _ in readers.select(0.1):
                    if not key.data(MEGABYTE):
                        readers.unregister(key.fileobj)

        reading = Background(read)
        try:
            greedy.send("pieces 10000", task_id=task.id, return_immediately=True)
            times = []
            for _ in range(10):
                watch = Stopwatch()
                assert honest.send("hello").text == "hello"
                times.append(watch.within(6))
        finally:
            over.set()
            reading.result()
    assert all(times)


@pytest.mark.parametrize("quota", [None, OwnerQuota(max_concurrent_runs=6, max_queued_runs=6)], ids=["fair", "numbers"])
def test_runs_of_one_caller_leave_threads_to_another(quota: OwnerQuota | None) -> None:
    with A2AApp(agent, auth=caller, limits=Limits(max_concurrent_runs=8, max_queued_runs=8), owner_quota=quota) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        # The share of one caller: half of the threads and of the queue, or its quota.
        begun = [greedy.send("wait", return_immediately=True).id for _ in range(8 if quota is None else 12)]
        with pytest.raises(OverloadedError, match="this caller"):
            greedy.send("wait", return_immediately=True)
        check_served(honest)
        for task_id in begun:
            greedy.cancel_task(task_id)
        pool = app._engine.runs.pool
        eventually(lambda: pool.running + pool.waiting == 0, "the end of the cancelled runs")
        assert greedy.send("hello").text == "hello"


def test_queued_runs_of_one_caller_do_not_delay_those_of_another() -> None:
    with A2AApp(agent, auth=caller, limits=Limits(max_concurrent_runs=2, max_queued_runs=20)) as app:
        session = wsgi_session(app)
        names = ("greedy", "second", "honest")
        greedy, second, honest = (named("http://agent.test", name, session=session) for name in names)
        first = [greedy.send("wait", return_immediately=True).id for _ in range(8)]
        other = second.send("wait", return_immediately=True).id
        # Both threads are occupied, and seven earlier runs are queued.
        answer = Background(lambda: honest.send("hello", timeout=30).text)
        eventually(lambda: app._engine.runs.pool.waiting == 8, "the honest run in line")
        second.cancel_task(other)
        assert answer.result() == "hello"
        for task_id in first:
            greedy.cancel_task(task_id)


def test_without_authentication_one_caller_may_use_all_threads() -> None:
    with A2AApp(agent, limits=Limits(max_concurrent_runs=8, max_queued_runs=8)) as app:
        session = wsgi_session(app)
        client = named("http://agent.test", "anonymous", session=session)
        begun = [client.send("wait", return_immediately=True).id for _ in range(16)]
        with pytest.raises(OverloadedError, match="the agent"):
            client.send("wait", return_immediately=True)
        for task_id in begun:
            client.cancel_task(task_id)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_anonymous_callers_leave_threads_to_those_that_the_framework_knows(binding: str) -> None:
    limits = Limits(max_concurrent_runs=8, max_queued_runs=8)
    with A2AApp(agent, limits=limits, protocol_bindings=[binding]) as app:
        inner = app.wsgi_app

        def of_a_framework(environ: Any, start_response: Any) -> Any:
            return inner({**environ, "a2a_sync.principal": environ.get("HTTP_X_CALLER")}, start_response)

        app.wsgi_app = of_a_framework
        session = wsgi_session(app)
        anonymous, ada = (
            Client("http://agent.test", session=session, retry=Retry.off),
            named("http://agent.test", "ada", session=session),
        )
        begun = [anonymous.send("wait", return_immediately=True).id for _ in range(8)]
        with pytest.raises(OverloadedError, match="this caller"):
            anonymous.send("wait", return_immediately=True)
        ada.cancel_task(ada.send("wait", return_immediately=True).id)
        for task_id in begun:
            anonymous.cancel_task(task_id)


# -- storage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_tasks_of_one_caller_do_not_evict_those_of_another(kind: str, tmp_path: Path) -> None:
    store = MemoryStore(max_tasks=200) if kind == "memory" else SQLiteStore(tmp_path / "tasks.db", max_tasks=200)
    with A2AApp(agent, auth=caller, store=store) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        ended, asked = honest.send("hello"), honest.send("ask")
        for n in range(205):
            # Tenants are selected by callers and do not separate owners.
            client = Client(
                "http://agent.test", headers={"X-Caller": "greedy"}, tenant=str(n), session=session, retry=Retry.off
            )
            client.send("hello")
        assert honest.get_task(ended.id).text == "hello"
        assert honest.send("hello", task_id=asked.id).state is TaskState.COMPLETED
        assert greedy.send("hello").state is TaskState.COMPLETED
    store.close()


@pytest.mark.live
@pytest.mark.timeout(90)
def test_tasks_at_several_workers_do_not_evict_those_of_another_caller(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    environment = {"SHARED_STORE": f"sqlite:///{path}", "SHARED_MAX_TASKS": "40"}
    options = ("-c", "python:a2a_sync.gunicorn")
    with gunicorn("tests.agents.shared:app", *options, threads=8, workers=2, environment=environment) as server:
        with named(server.url, "honest") as honest:
            ended, asked = honest.send("hello"), honest.send("ask")

        def fifteen() -> set[str]:
            # A new connection each, so that the kernel selects a worker.
            found = set()
            for _ in range(15):
                with named(server.url, "greedy") as greedy:
                    found.add(greedy.send("process").text)
            return found

        pids: set[str] = set()
        for _ in range(10):
            pids = pids.union(*[one.result(60) for one in [Background(fifteen) for _ in range(4)]])
            if len(pids) == 2:
                break
        assert len(pids) == 2
        with named(server.url, "honest") as honest:
            assert honest.get_task(ended.id).text == "hello"
            assert honest.send("hello", task_id=asked.id).state is TaskState.COMPLETED
            assert honest.list_tasks().total_size == 2
        with named(server.url, "greedy") as greedy:
            assert greedy.list_tasks().total_size == 38


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_stored_bytes_of_one_caller_are_limited(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "tasks.db")
    quota = OwnerQuota(max_stored_bytes=1_000_000)
    with A2AApp(agent, auth=caller, store=store, owner_quota=quota, limits=Limits(max_task_bytes=400_000)) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        asked = honest.send("ask")
        first = greedy.send("hello")
        for _ in range(30):
            greedy.send("echo " + "x" * 100_000)
        assert 2 <= greedy.list_tasks().total_size <= 5
        with pytest.raises(TaskNotFoundError):
            greedy.get_task(first.id)
        with pytest.raises(RequestTooLargeError, match="400000 bytes"):
            greedy.send("x" * 500_000)
        # The answer of the agent exceeds the limit: only that task fails.
        answer = greedy.send("echo " + "x" * 250_000)
        assert answer.state is TaskState.FAILED
        assert "400000 bytes" in answer.text
        assert honest.send("hello", task_id=asked.id).state is TaskState.COMPLETED
        if kind == "sqlite":
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20_000_000
    store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(
    "parts",
    [
        {"parts": [{"text": "hello", "filename": "ä" * 150_000}]},
        {"parts": [{"url": "https://agent.test/f", "filename": "f" * 300_000}]},
        {"parts": [{"raw": "AAAA", "mediaType": "text/plain;" + "t" * 300_000}]},
        {"parts": [{"data": {}, "filename": "f" * 150_000, "mediaType": "text/plain;" + "t" * 150_000}]},
        {"parts": [{"text": "hello", "metadata": {"m": "m" * 300_000}}]},
        {"parts": [{"text": "hello"}], "referenceTaskIds": ["r" * 2_500] * 100},
        {"parts": [{"text": "hello"}], "extensions": ["e" * 2_500] * 100},
    ],
    ids=["filename", "url", "file", "data", "metadata", "references", "extensions"],
)
def test_every_member_of_a_message_counts_as_stored_bytes(kind: str, parts: dict[str, Any], tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "tasks.db")
    quota, limits = OwnerQuota(max_stored_bytes=1_000_000), Limits(max_task_bytes=400_000, max_response_bytes=700_000)
    with A2AApp(agent, auth=caller, store=store, owner_quota=quota, limits=limits) as app:
        session = wsgi_session(app)
        with named("http://agent.test", "greedy", session=session) as greedy:
            sent = Message.from_dict({"messageId": "m", "role": "ROLE_USER", **parts})
            for number in range(12):
                greedy.send(replace(sent, message_id=str(number)))
            page = greedy.list_tasks(history_length=10)
            assert page.total_size <= 5
            assert sum(len(task.to_json()) for task in page.tasks) < 750_000
    store.close()


def test_a_message_to_a_full_task_is_refused_and_not_stored() -> None:
    with A2AApp(agent, auth=caller, limits=Limits(max_task_bytes=100_000)) as app:
        client = named("http://agent.test", "ada", session=wsgi_session(app))
        task = client.get_task(client.send("ask " + "x" * 60_000).id)
        for _ in range(2):
            with pytest.raises(RequestTooLargeError, match="start another task"):
                client.send("x" * 60_000, task_id=task.id)
            with (
                pytest.raises(RequestTooLargeError, match="start another task"),
                client.stream("x" * 60_000, task_id=task.id) as events,
            ):
                list(events)
        assert client.get_task(task.id) == task
        assert client.send("hello", task_id=task.id).state is TaskState.COMPLETED


def test_an_owner_at_its_byte_limit_is_refused_until_tasks_end() -> None:
    with A2AApp(agent, auth=caller, owner_quota=OwnerQuota(max_stored_bytes=150_000)) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        task = greedy.send("wait " + "x" * 100_000, return_immediately=True)
        with pytest.raises(OverloadedError, match="have reached their limit of bytes"):
            greedy.send("wait " + "x" * 100_000)
        assert honest.send("hello").text == "hello"
        greedy.cancel_task(task.id)
        assert greedy.send("hello " + "x" * 60_000).state is TaskState.COMPLETED


def test_small_expensive_requests_of_one_caller_leave_threads_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON of very many small objects: a fifth of a second of processor time for each megabyte."""
    # On a busy machine that may take long, and what was used longer ago counts less.
    set_clock(monkeypatch, quotas, monotonic=0.0)
    table = [{"a": {}}] * 60_000
    with A2AApp(agent, auth=caller) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        for _ in range(12):
            assert greedy.send(["hello", DataPart(table)]).text == "hello"
        begin = partial(app._engine.responses.begin, "greedy", expensive=False)
        for _ in range(1 if patched() else 2):
            Background(begin).result(TIMEOUT)
        with pytest.raises(OverloadedError, match="too many expensive requests of this caller"):
            greedy.list_tasks()
        assert honest.send("hello").text == "hello"


def user_behind_the_gateway(call: Any) -> str:
    return f"user {call.context.headers['x-user']}"


def behind_the_gateway(name: str, session: Any, **options: object) -> Client:
    return Client(
        "http://agent.test",
        headers={"X-Caller": "gateway", "X-User": name},
        session=session,
        retry=Retry.off,
        **options,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_expensive_requests_of_a_user_behind_a_gateway_do_not_count_for_another(
    monkeypatch: pytest.MonkeyPatch, binding: str
) -> None:
    set_clock(monkeypatch, quotas, monotonic=0.0)
    table = [{"a": {}}] * 60_000
    with A2AApp(agent, auth=caller, owner=user_behind_the_gateway, protocol_bindings=[binding]) as app:
        session = wsgi_session(app)
        greedy, honest = (behind_the_gateway(name, session) for name in ("greedy", "honest"))
        assert greedy.send(["hello", DataPart(table)]).text == "hello"
        responses, owner = app._engine.responses, f"{NAMED_MARK}user greedy"
        times = responses.quotas.times
        assert list(times.owners) == [owner]
        times.add(owner, (0.0, time.thread_time() - 1.0))
        begin = partial(responses.begin, owner, expensive=False)
        for _ in range(1 if patched() else 2):
            Background(begin).result(TIMEOUT)
        for refused in (greedy.list_tasks, lambda: greedy.send("hello"), lambda: list(greedy.stream("hello"))):
            with pytest.raises(OverloadedError, match="too many expensive requests of this caller"):
                refused()
        assert honest.send("hello").text == "hello"
        assert honest.send(["hello", DataPart(table)]).text == "hello"


def test_large_requests_of_a_user_behind_a_gateway_leave_places_to_another() -> None:
    with A2AApp(agent, auth=caller, owner=user_behind_the_gateway) as app:
        session, responses = wsgi_session(app), app._engine.responses
        greedy, honest = (behind_the_gateway(name, session) for name in ("greedy", "honest"))
        large = "hello " + "x" * 2_000_000
        assert greedy.send(large).text
        for _ in range(8):
            responses._places.take(f"{NAMED_MARK}user greedy")
        with pytest.raises(OverloadedError, match="too many large requests and responses of this caller"):
            greedy.send(large)
        assert honest.send(large).text
        assert (responses._places.taken, responses._taken) == (8, 0)


def test_messages_of_runs_have_a_bound_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_MAX_MESSAGE_BYTES", 4_000_000)
    table = DataPart([{"a": {}}] * 5_000)
    with A2AApp(agent, auth=caller) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        begun = [greedy.send(["wait", table], return_immediately=True).id for _ in range(2)]
        with pytest.raises(OverloadedError, match="too many large messages"):
            greedy.send(["wait", table], return_immediately=True)
        assert len(greedy.list_tasks().tasks) == 2
        with pytest.raises(OverloadedError, match="too many large messages"):
            # The task is busy, so this would wait.
            greedy.send(["hello", table], task_id=begun[0])
        assert greedy.send("hello").text == "hello"
        assert honest.send(["hello", table]).text == "hello"
        for task_id in begun:
            greedy.cancel_task(task_id)
        eventually(lambda: not app._engine.runs._large, "the end of the cancelled runs")
        assert greedy.send(["hello", table]).text == "hello"


def test_tasks_evicted_by_a_refused_send_end_immediately() -> None:
    store = MemoryStore()
    with A2AApp(agent, auth=caller, store=store, owner_quota=OwnerQuota(max_stored_bytes=150_000)) as app:
        client = named("http://agent.test", "greedy", session=wsgi_session(app))
        asked = client.send("ask " + "x" * 20_000)
        assert isinstance(asked, Task)
        running = client.send("wait " + "x" * 100_000, return_immediately=True)
        assert isinstance(running, Task)
        with client.subscribe(asked.id, timeout=60) as stream:
            events = iter(stream)
            assert isinstance(next(events), Task)
            with pytest.raises(OverloadedError, match="have reached their limit of bytes"):
                client.send("x" * 140_000)
            with pytest.raises(TaskNotFoundError):
                client.get_task(asked.id)
            assert list(events) == []
        client.cancel_task(running.id)


def grow(store: TaskStore, run: StartedRun, quota: StoreQuota) -> int:
    """Fill the task of a run up to its limit; return its size in bytes."""
    for count in range(100):
        try:
            store.append(run.token, [message(run.head.id, "x" * MEGABYTE)], max_task_bytes=quota.max_task_bytes)
        except TaskFull:
            return count * MEGABYTE
    raise AssertionError("the task has no size limit")


def test_running_tasks_count_toward_the_byte_limit(tmp_path: Path) -> None:
    """Further runs are refused soon: a run counts with its size, or at most 1 MiB less."""
    quota = StoreQuota(max_task_bytes=4 * MEGABYTE, max_bytes=10 * MEGABYTE)
    for store in (MemoryStore(), SQLiteStore(tmp_path / "tasks.db")):
        stored: list[int] = []
        with pytest.raises(OwnerFull):  # noqa: PT012
            while len(stored) < 20:
                stored.append(grow(store, begin(store, task_id=f"t{len(stored)}", quota=quota), quota))
        assert 10 * MEGABYTE < sum(stored) < (10 + 4) * MEGABYTE + len(stored) * 1024 * 1024
        store.close()


SERVERS = {
    "threads": lambda: gunicorn("tests.agents.shared:app", "-c", "python:a2a_sync.gunicorn", threads=16),
    "gevent": lambda: gunicorn_gevent("tests.agents.shared:app"),
}


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", SERVERS)
def test_large_answers_of_one_caller_do_not_delay_another(kind: str) -> None:
    """300 requests for a task of 8 MB, whose answers are not read: other callers waited for more than thirty seconds."""
    with SERVERS[kind]() as server, ExitStack() as stack:
        greedy = stack.enter_context(named(server.url, "greedy"))
        honest = stack.enter_context(named(server.url, "honest"))
        honest.send("hello")
        task = greedy.send("ask " + "x" * 8 * MEGABYTE)
        for operation in ("GetTask", "SubscribeToTask"):
            for _ in range(150):
                attacker = connect(server.address)
                stack.callback(abandon, attacker)
                attacker.send(call(operation, {"id": task.id}, "X-Caller: greedy"))
        for _ in range(10):
            watch = Stopwatch()
            assert honest.send("hello").text == "hello"
            assert watch.within(6)
        with open(f"/proc/{server.pid}/task/{server.pid}/children") as file:
            (worker,) = file.read().split()
        # 300 answers have 2.4 GB.
        assert resident_bytes(worker) < 1000 * MEGABYTE


class SearchedStore(MemoryStore):
    """A store that takes as long to search for tasks as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.searches: list[int] = []

    def list(self, owner: Owner, query: TaskQuery) -> TaskPage:
        page = super().list(owner, query)
        self.searches.append(1)
        self.gate.block()
        self.searches.pop()
        return page


@pytest.mark.parametrize("by_context", [False, True])
def test_searches_of_one_caller_leave_threads_to_another(monkeypatch: pytest.MonkeyPatch, by_context: bool) -> None:
    """40 connections that list 200,000 tasks with a filter: sends of other callers took seconds."""
    # One task is as many as ten thousand are otherwise.
    monkeypatch.setattr("a2a_sync.stores.base.HEAD_BYTES", 2 * SMALL_BYTES)
    store = SearchedStore()
    with A2AApp(agent, auth=caller, store=store, limits=Limits(server_threads=8)) as app:
        session = wsgi_session(app)
        greedy, honest = (named("http://agent.test", name, session=session) for name in ("greedy", "honest"))
        context_id = greedy.send("hello").context_id if by_context else None
        greedy.send("hello", context_id=context_id)
        state = None if by_context else TaskState.COMPLETED
        searches = [Background(lambda: greedy.list_tasks(context_id=context_id, status=state)) for _ in range(8)]
        store.gate.wait()
        eventually(lambda: sum(search.waiting for search in searches) <= 2, "the refusals")
        assert len(store.searches) == 1
        check_served(honest)
        store.gate.open.set()
        answered = 0
        for search in searches:
            with suppress(OverloadedError):
                answered += search.result().total_size
        assert answered in (2, 4)


def resident_bytes(pid: str) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", SERVERS)
def test_large_messages_of_one_caller_do_not_delay_another(kind: str) -> None:
    body = call(
        "SendMessage",
        {**message_of("y" * 9 * MEGABYTE), "configuration": {"returnImmediately": True}},
        "X-Caller: greedy",
    )
    over = threading.Event()

    def flood(address: tuple[str, int]) -> None:
        while not over.is_set():
            with suppress(OSError), socket.create_connection(address, timeout=60) as attacker:
                attacker.sendall(body)
                attacker.recv(100)

    with SERVERS[kind]() as server, named(server.url, "honest") as honest:
        honest.send("hello")
        threads = [threading.Thread(target=flood, args=(server.address,), daemon=True) for _ in range(16)]
        for thread in threads:
            thread.start()
        times = []
        for _ in range(15):
            began = time.monotonic()
            assert honest.send("hello").text == "hello"
            times.append(time.monotonic() - began)
        over.set()
        for thread in threads:
            thread.join(40)
        # Twelve seconds without the limit of one caller.
        assert sorted(times)[10] < 6
