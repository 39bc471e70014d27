"""Many concurrent clients; each call uses a new connection, so that the kernel selects the worker.

Each action checks its result: a task that is not found, an event that is missing, duplicated or out of order, and a cancel
without effect are failures. A server that is overloaded may refuse an action, which is then retried.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from a2a_sync import Client, Task, TaskState
from a2a_sync.errors import OverloadedError, TaskNotCancelableError, UnsupportedOperationError
from a2a_sync.types import Message

S = TaskState


class Crowd:
    """Clients of the server at `url`, which runs `tests.faults.agent`. Set `lost` if workers are killed."""

    def __init__(self, url: str, *, seed: int = 0, limit: float = 60.0) -> None:
        self._url = url
        self._seed = seed
        self._limit = limit
        #: Less than the task limit of the store.
        self._known: deque[tuple[str, str]] = deque(maxlen=200)
        self._over = threading.Event()
        #: Whether tasks may fail because their worker was killed.
        self.lossy = False
        self.done: Counter[str] = Counter()
        self.refused = 0
        self.failures: list[BaseException] = []

    def run(self, clients: int, enough: Callable[[int], bool]) -> None:
        """Run `clients` concurrently until `enough(number of actions of this client)`; `failures` collects errors."""
        threads = [
            threading.Thread(target=self._act, args=(number, enough), name=f"crowd-{number}", daemon=True)
            for number in range(clients)
        ]
        deadline = time.monotonic() + self._limit
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._over.set()
        left = [thread.name for thread in threads if thread.is_alive()]
        if left:
            self.failures.append(AssertionError(f"{len(left)} clients did not finish: {left[:5]}"))

    def _act(self, number: int, enough: Callable[[int], bool]) -> None:
        choice = random.Random(f"{self._seed}/{number}")
        actions = [self.send, self.stream, self.get, self.subscribe, self.cancel]
        made = 0
        while not (enough(made) or self._over.is_set() or self.failures):
            action = choice.choice(actions)
            try:
                action(choice)
                self.done[action.__name__] += 1
                made += 1
            except OverloadedError as full:
                self.refused += 1
                self._over.wait((full.retry_after or 1.0) * choice.uniform(0.2, 1.0))
            except BaseException as error:
                error.add_note(f"client {number}, {action.__name__}")
                self.failures.append(error)

    @contextmanager
    def _client(self) -> Any:
        with Client(self._url, timeout=60) as client:
            yield client

    # -- actions of a client --

    def send(self, choice: random.Random) -> None:
        """A blocking send returns the complete task."""
        count = choice.randrange(5)
        with self._client() as client:
            self._ended_well(client.send(f"count {count}"), count)

    def stream(self, choice: random.Random) -> None:
        """A stream has every number once and in order."""
        count = choice.randrange(8)
        with self._client() as client, client.stream(f"{choice.choice(('count', 'slowly'))} {count}") as stream:
            self._whole(stream, count)

    def get(self, choice: random.Random) -> None:
        """Every worker finds every task."""
        with self._client() as client:
            if not self._known:
                return
            task_id, text = choice.choice(self._known)
            task = client.get_task(task_id)
            assert task.history[0].text == text, task

    def subscribe(self, choice: random.Random) -> None:
        """A subscriber of a task at another worker receives its remaining events."""
        count = choice.randrange(5, 25)
        task_id = self._begin(f"slowly {count}")
        with self._client() as client:
            try:
                stream = client.subscribe(task_id, timeout=60)
            except UnsupportedOperationError:
                # The task has ended.
                self._ended_well(client.get_task(task_id), count)
                return
            with stream:
                self._whole(stream, count)

    def cancel(self, choice: random.Random) -> None:
        """A cancel is effective immediately and permanently, at any worker."""
        task_id = self._begin("hold 2")
        with self._client() as client:
            try:
                task = client.cancel_task(task_id)
            except TaskNotCancelableError:
                task = client.get_task(task_id)
                if not (self.lossy and task.state is S.FAILED):
                    raise
        with self._client() as client:
            assert client.get_task(task_id).state is task.state, task
        assert task.state is S.CANCELED or (self.lossy and task.state is S.FAILED), task

    # -- checks --

    def _begin(self, text: str) -> str:
        with self._client() as client:
            task = client.send(text, return_immediately=True)
        assert isinstance(task, Task), task
        self._known.append((task.id, text))
        return task.id

    def _whole(self, stream: Any, count: int) -> None:
        numbers = [stream.last_event_id for _ in stream]
        assert numbers == sorted(set(numbers)), numbers
        self._ended_well(stream.task, count)

    def _ended_well(self, task: Task | Message | None, count: int) -> None:
        assert isinstance(task, Task), task
        if self.lossy and task.state is S.FAILED:
            assert task.status.message is not None, task
            assert task.status.message.text == "worker lost", task
            return
        text = "".join(artifact.text for artifact in task.artifacts)
        assert (task.state, text) == (S.COMPLETED, "".join(f"{number} " for number in range(count))), task
