"""Store failures under a working server: callers get an error promptly, nothing is half-written, and the server recovers."""

from __future__ import annotations

import itertools
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from a2a_sync import InputRequired
from a2a_sync.errors import AgentError, InternalError, StoreError
from a2a_sync.lifecycle import Fold
from a2a_sync.stores.base import Owner, StoreConflict
from a2a_sync.stores.sqlite import SQLiteStore, database
from a2a_sync.types import Task, TaskState
from tests.engine import TIMEOUT, Background, Gate, Served, collect, eventually, heartbeats
from tests.stopwatch import Stopwatch

S = TaskState
BUSY = 0.2
#: Callers get an error within this time: twice the busy timeout, plus a margin for a slow machine.
PROMPTLY = 2.0


# -- faults of the database file ----------------------------------------------------------------------------------------


class FileFault:
    """A fault of an SQLite file that the test can start and end; `log_message` is its log message."""

    log_message = ""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.on = False
        original = sqlite3.connect

        def connecting(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = original(*args, **options)
            if self.on:
                self.spoil(connection)
            return connection

        monkeypatch.setattr(database, "sqlite3", SimpleNamespace(**{**vars(sqlite3), "connect": connecting}))

    def begin(self, store: SQLiteStore) -> None:
        self.on = True
        store.close()

    def end(self, store: SQLiteStore) -> None:
        self.on = False
        store.close()

    def spoil(self, connection: sqlite3.Connection) -> None:
        """Apply the fault to a new connection."""


class Full(FileFault):
    """The disk is full."""

    log_message = "the disk is full"

    def begin(self, store: SQLiteStore) -> None:
        super().begin(store)
        with closing(sqlite3.connect(self.path)) as connection:
            # Free pages that are already in the file would allow small writes.
            connection.execute("VACUUM")

    def spoil(self, connection: sqlite3.Connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")


class Locked(FileFault):
    """Another program has locked the file."""

    log_message = "is locked"

    def begin(self, store: SQLiteStore) -> None:
        self.other = sqlite3.connect(self.path, isolation_level=None, timeout=TIMEOUT)
        self.other.execute("BEGIN EXCLUSIVE")

    def end(self, store: SQLiteStore) -> None:
        self.other.execute("ROLLBACK")
        self.other.close()


class ReadOnly(FileFault):
    """The file system has been remounted read-only."""

    log_message = "read-only"

    def spoil(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")


@pytest.fixture(params=[Full, Locked, ReadOnly])
def file_fault(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileFault:
    made: FileFault = request.param(tmp_path / "tasks.db", monkeypatch)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "tasks.db", busy_timeout=BUSY)
    yield store
    store.close()


#: Larger than the free space in the file's pages.
LARGE = "x" * 20_000


def refused(call: Callable[[], Any], log_message: str, caplog: pytest.LogCaptureFixture) -> None:
    """`call` fails promptly with an incident id; the log has the cause, the response does not."""
    watch = Stopwatch()
    with pytest.raises(InternalError, match=r"^internal error \(id \w+\)$") as caught:
        Background(call).result(TIMEOUT)
    assert watch.within(PROMPTLY)
    log_of_incident(caught.value, log_message, caplog)


def log_of_incident(error: InternalError, log_message: str, caplog: pytest.LogCaptureFixture) -> None:
    assert error.jsonrpc_code == -32603
    incident = error.message.removeprefix("internal error (id ").rstrip(")")
    (record,) = [record for record in caplog.records if f"(id {incident})" in record.getMessage()]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert log_message in logging.Formatter().formatException(record.exc_info)


def consistent(served: Served) -> None:
    """Every log adds up to its task, has no gaps and at most one end."""
    for task in served.list(page_size=100, include_artifacts=True).tasks:
        entries = served.log(task.id)
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        fold = Fold(Task(id=task.id, context_id=task.context_id, status=task.status))
        for entry in entries:
            fold.apply(entry.event)
        assert fold.task() == served.get(task.id)
        assert sum(state.terminal for state in served.states(task.id)) <= 1


def test_every_operation_reports_a_fault_of_the_file(
    file_fault: FileFault, store: SQLiteStore, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()

    def handler(message: Any, context: Any) -> Any:
        if message.text.startswith("ask"):
            return InputRequired("and?")
        return hold() if message.text == "hold" else "done"

    def hold() -> Iterator[str]:
        yield "before"
        gate.block()
        yield LARGE

    served = Served(handler, store=store)
    ended, asking = served.send("quick"), served.send("ask")
    stream = served.stream("hold")
    (first,) = stream.poll(TIMEOUT)
    running = first.event.id
    gate.wait()
    eventually(lambda: served.get(running).artifacts, "the first piece")
    before = {task.id: served.log(task.id) for task in served.list().tasks}

    file_fault.begin(store)
    try:
        for call in (
            lambda: served.send(LARGE),
            lambda: served.begin(LARGE),
            lambda: served.stream(LARGE),
            lambda: served.send(LARGE, task_id=asking.id),
            lambda: served.stream(LARGE, task_id=asking.id),
        ):
            refused(call, file_fault.log_message, caplog)
        if not isinstance(file_fault, Full):  # a cancel may still fit on a full disk
            refused(lambda: served.cancel(running), file_fault.log_message, caplog)
            refused(lambda: served.cancel(asking.id), file_fault.log_message, caplog)
        # Stored data can still be read.
        assert served.get(ended.id) == ended
        assert served.list().total_size == 3
        follower = served.subscribe(running)
        # The run fails at its next write, and its subscribers get the error.
        gate.open.set()
        for listener in (stream, follower):
            with pytest.raises(InternalError) as caught:
                collect(listener)
            assert "internal error (id " in caught.value.message
        assert file_fault.log_message in caplog.text
        if not isinstance(file_fault, Full):
            assert {task.id: served.log(task.id) for task in served.list().tasks} == before
    finally:
        file_fault.end(store)

    # The fault has ended: pending ends are written now, and everything works.
    failed = served.until(running, S.FAILED)
    assert failed.status.message.text.startswith("internal error (id ")
    assert [part.text for artifact in failed.artifacts for part in artifact.parts] == ["before"]
    assert served.cancel(asking.id).state is S.CANCELED
    assert served.send("quick").state is S.COMPLETED
    served.quiet()
    consistent(served)
    with closing(sqlite3.connect(file_fault.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    served.close()


def test_a_blocking_send_reports_the_fault_of_its_run(
    file_fault: FileFault, store: SQLiteStore, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()

    def handler(message: Any, context: Any) -> str:
        gate.block()
        return LARGE

    served = Served(handler, store=store)
    sender = served.in_background()
    gate.wait()
    assert served.list().total_size == 1
    file_fault.begin(store)
    try:
        gate.open.set()
        with pytest.raises(InternalError):
            sender.result()
    except BaseException:
        # If a small write fits, the task fails at once, and the caller of the send gets it.
        assert isinstance(file_fault, Full)
        assert sender.result().state is S.FAILED
    finally:
        file_fault.end(store)
    (task,) = served.list().tasks
    assert served.until(task.id, S.FAILED)
    served.close()


def test_a_server_with_a_locked_file_closes_in_time(
    store: SQLiteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(lambda message, context: context.sleep(TIMEOUT), store=store)
    for _ in range(30):
        served.begin()
    file_fault = Locked(tmp_path / "tasks.db", monkeypatch)
    file_fault.begin(store)
    try:
        watch = Stopwatch()
        served.app.close(timeout=0.2)
        assert watch.within(2.5)
    finally:
        file_fault.end(store)


def test_a_long_lock_of_the_file_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = [Gate(), Gate()]

    def handler(message: Any, context: Any) -> str:
        gates[int(message.text)].block()
        return "done"

    path = tmp_path / "tasks.db"
    apps = [Served(handler, store=SQLiteStore(path, busy_timeout=BUSY), worker_heartbeat_interval=0.1) for _ in gates]
    tasks = []
    for number, served in enumerate(apps):
        served.app._engine.start()
        tasks.append(served.begin(str(number)))
        gates[number].wait()
    known = heartbeats(apps[0].store)
    eventually(lambda: _beaten(apps, known, 0.1), "a beat of each")
    file_fault = Locked(path, monkeypatch)
    file_fault.begin(apps[0].store)
    locked = time.monotonic()
    # Ten heartbeat timeouts: the first worker to return finds that the other one has no recent heartbeat.
    over = time.monotonic() + 2.0
    eventually(lambda: time.monotonic() > over, "the end of the lock")
    assert max(heartbeats(apps[0].store).values()) < locked + 0.5
    file_fault.end(apps[0].store)
    eventually(lambda: _beaten(apps, dict.fromkeys(known, over), 0.3), "three beats of each")
    for number, (served, task_id) in enumerate(zip(apps, tasks, strict=True)):
        assert served.get(task_id).state is S.WORKING
        gates[number].open.set()
        served.until(task_id, S.COMPLETED)
    for served in apps:
        served.close()


def _beaten(apps: list[Served], since: dict[str, float], seconds: float) -> bool:
    """Every worker has beaten, and so many seconds after the times of `since`."""
    now = heartbeats(apps[0].store)
    return all(now[worker] > at + seconds for worker, at in since.items())


# -- a store that fails at any of its calls -----------------------------------------------------------------------------


class Failing:
    """Delegates to `part` of a store; calls named in `fail` raise an error, before or after their work."""

    def __init__(self, part: Any, plan: Plan) -> None:
        self._part = part
        self._plan = plan

    @property
    def workers(self) -> Any:
        return Failing(self._part.workers, self._plan)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._part, name)
        if not callable(member) or name in ("close", "mark", "new_token"):
            return member

        def call(*args: Any, **options: Any) -> Any:
            number = next(self._plan.calls) if self._plan.armed else -1
            if number == self._plan.fail and not self._plan.after:
                self._plan.met = name
                raise StoreError("disk on fire")
            result = member(*args, **options)
            if number == self._plan.fail:
                self._plan.met = name
                raise StoreError("disk on fire")
            return result

        return call


class Plan:
    """The call that fails, counted from when the plan is armed."""

    def __init__(self, fail: int, after: bool) -> None:
        self.fail = fail
        self.after = after
        self.armed = False
        self.calls = itertools.count()
        self.met = ""


def script(message: Any, context: Any) -> Any:
    if message.text == "ask":
        context.update("thinking")
        return InputRequired("and?")
    if message.text == "wait":
        context.update("waiting")
        # A cancel that was stored but reported as failed reaches the run with its next step.
        context.sleep(1.0)
    return (f"{n} " for n in range(3))


def every_call(served: Served) -> list[Any]:
    """Calls of all kinds; their results, errors included."""
    outcomes = [_attempt(lambda: served.send("ask"))]
    task_id = getattr(outcomes[0], "id", "") or next(iter(served.list().tasks)).id
    calls = (
        lambda: collect(served.stream("go on", task_id=task_id)),
        lambda: served.get(task_id),
        lambda: collect(served.subscribe(task_id, 2)),
        lambda: served.list(),
        lambda: served.app._engine.sweeper.sweep(),
    )
    outcomes += map(_attempt, calls)
    waiting = _attempt(lambda: served.send("wait", return_immediately=True))
    outcomes.append(waiting)
    if isinstance(waiting, Task):
        outcomes.append(_attempt(lambda: served.cancel(waiting.id)))
    return outcomes


def _attempt(call: Callable[[], Any]) -> Any:
    try:
        return Background(call).result(TIMEOUT / 2)
    except (AgentError, StoreError, StoreConflict) as error:
        return error


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("number", range(18))
def test_a_fault_at_any_call_of_the_store(
    number: int, after: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(number, after)
    store = SQLiteStore(tmp_path / "tasks.db")
    served = Served(script, store=Failing(store, plan), run_timeout=TIMEOUT, busy_task_timeout=0.1)
    served.app._engine.runs._watchdog._interval = 0.02
    served.send("ask")
    plan.armed = True
    outcomes = every_call(served)
    plan.armed = False
    for outcome in outcomes:
        if isinstance(outcome, InternalError):
            incident = outcome.message.removeprefix("internal error (id ").rstrip(")")
            assert f"(id {incident})" in caplog.text
        assert isinstance(outcome, StoreError) or "disk on fire" not in repr(outcome)
    assert plan.met, "the fault was not reached: use a smaller number"
    # The fault has ended: pending ends are written now, also those that the store had stored but reported as failed.
    for task in served.list(status=S.WORKING).tasks:
        if served.app._engine.runs.running:
            _attempt(lambda task=task: served.cancel(task.id))
    served.quiet()
    for task in served.list().tasks:
        eventually(lambda task=task: not store.head(Owner(), task.id).running, "the run's end in the store")
    consistent(served)
    assert served.send("ask").state is S.INPUT_REQUIRED
    served.close()
    store.close()
