"""Test harness: an app over a real store, its operations as plain calls, and waits with a limit."""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from a2a_sync import A2AApp, Agent, Limits
from a2a_sync import operations as op
from a2a_sync.card import AgentCard
from a2a_sync.lifecycle import Entry
from a2a_sync.operations import Call, CallContext
from a2a_sync.stores.base import Owner
from a2a_sync.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)

#: The limit of every wait in a test, in seconds.
TIMEOUT = 60.0


def eventually(condition: Callable[[], Any], what: str = "it", seconds: float = TIMEOUT) -> Any:
    """Poll `condition` until it is true and return its value. For conditions that no event signals.

    Raises:
        AssertionError: it was not true within `seconds`.
    """
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        pause.wait(0.002)
    return value


def heartbeats(store: Any) -> dict[str, float]:
    """When each worker of a shared store has beaten last, by the monotonic clock; -inf for those that are lost."""
    found, now = store.inspection.workers(), time.monotonic()
    return {one.id: float("-inf") if one.left else now - one.age_s for one in found}


class Background:
    """A call that runs on its own thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="test-caller", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    @property
    def waiting(self) -> bool:
        return self._thread.is_alive()

    def result(self, timeout: float = TIMEOUT) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the call did not return"
        if self._error is not None:
            raise self._error
        return self._result


class Gate:
    """Blocks a handler at a point of the test's choice: the handler calls `block`, the test waits for it and opens the gate."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def block(self) -> None:
        self.reached.set()
        assert self.open.wait(TIMEOUT), "the gate was not opened"

    def wait(self) -> None:
        assert self.reached.wait(TIMEOUT), "the gate was not reached"


class Served:
    """An app and its operations. `handler` is a function of message and context, an `Agent`, or an executor."""

    def __init__(
        self, handler: Any, *, store: Any = None, push: Any = False, job_queue: Any = None, **limits: Any
    ) -> None:
        executor = hasattr(handler, "execute")
        agent = handler if executor else Agent("tested", description="test agent")
        if not executor:
            agent.message(handler)
        card = None if isinstance(agent, Agent) else AgentCard(name="tested", description="d", version="1")
        limits.setdefault("disconnect_check_interval", 0.05)
        self.app = A2AApp(agent, card=card, store=store, limits=Limits(**limits), push=push, job_queue=job_queue)
        self.store = self.app.store
        self.endpoint = self.app.endpoint()
        self.pool = self.app._engine.runs.pool

    def call(self, operation: op.Operation, request: Any, **context: Any) -> Any:
        return self.endpoint(Call(operation, request, CallContext(**context)))

    def request(self, text: str, *, task_id: str = "", context_id: str = "", **configuration: Any) -> Any:
        message = Message(role=Role.USER, parts=(TextPart(text),), task_id=task_id, context_id=context_id)
        return SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))

    def send(self, text: str = "go", **members: Any) -> Any:
        return self.call(op.SEND_MESSAGE, self.request(text, **members))

    def begin(self, text: str = "go", **members: Any) -> str:
        """Send without waiting for the result; return the task's id."""
        return self.send(text, return_immediately=True, **members).id

    def in_background(self, text: str = "go", **members: Any) -> Background:
        return Background(lambda: self.send(text, **members))

    def stream(self, text: str = "go", **members: Any) -> Any:
        return self.call(op.SEND_STREAMING_MESSAGE, self.request(text, **members))

    def subscribe(self, task_id: str, after: int | None = None) -> Any:
        return self.call(op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id=task_id), last_event_id=after)

    def get(self, task_id: str, history: int | None = None) -> Any:
        return self.call(op.GET_TASK, GetTaskRequest(id=task_id, history_length=history))

    def cancel(self, task_id: str, **members: Any) -> Any:
        return self.call(op.CANCEL_TASK, CancelTaskRequest(id=task_id, **members))

    def list(self, **members: Any) -> Any:
        return self.call(op.LIST_TASKS, ListTasksRequest(**members))

    def log(self, task_id: str) -> list[Entry]:
        return list(self.store.log(Owner(), task_id, limit=1_000_000).entries)

    def states(self, task_id: str) -> list[TaskState]:
        """The states of the task in order, from its log."""
        events = [entry.event for entry in self.log(task_id)]
        return [event.status.state for event in events if isinstance(event, TaskStatusUpdateEvent)]

    def until(self, task_id: str, state: TaskState) -> Any:
        return eventually(lambda: (task := self.get(task_id)).state is state and task, f"state {state}")

    def quiet(self) -> None:
        """Wait until no run is left and all slots of the pool are free."""
        eventually(lambda: not (self.app._engine.runs.running or self.pool.running or self.pool.waiting), "quiet")

    def close(self) -> None:
        self.app.close(0.0)


def collect(stream: Any, timeout: float = TIMEOUT) -> list[Any]:
    """Read all items of a stream on a separate thread. `timeout` is the limit for each item, in seconds."""
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    end = object()

    def read() -> None:
        try:
            for item in stream:
                items.put(item)
        finally:
            items.put(end)

    reader = Background(read)
    try:
        collected = list(iter(lambda: items.get(timeout=timeout), end))
    except queue.Empty:
        raise AssertionError(f"neither an event nor the end of the stream within {timeout} seconds") from None
    reader.result(timeout)
    return collected


def texts(history: Any) -> list[str]:
    return [f"{message.role}: {message.text}" for message in history]


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child and assert that it succeeds there."""
    with warnings.catch_warnings():
        # Python 3.12 warns about a fork in a process with threads, which is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    exited: list[int] = []
    eventually(lambda: exited or _reap(pid, exited), "the child's end")
    assert exited == [0], "the child failed; its traceback is on standard error"


def _reap(pid: int, exited: list[int]) -> bool:
    found, status = os.waitpid(pid, os.WNOHANG)
    if found:
        exited.append(os.waitstatus_to_exitcode(status))
    return bool(found)


STORES = ("memory", "sqlite")


def serving_over(kind: str, folder: Path) -> Iterator[Callable[..., Served]]:
    """Like `serving`; each app has its own store of this kind (one of `STORES`)."""
    numbers = itertools.count()
    return serving(None if kind == "memory" else lambda: f"sqlite:///{folder}/{next(numbers)}.db")


def serving(store_factory: Callable[[], Any] | None = None) -> Iterator[Callable[..., Served]]:
    """For fixtures: create `Served` apps and close them at the end."""
    made: list[Served] = []

    def serve(handler: Any, **options: Any) -> Served:
        if store_factory is not None:
            options.setdefault("store", store_factory())
        made.append(Served(handler, **options))
        return made[-1]

    yield serve
    for served in made:
        served.close()
