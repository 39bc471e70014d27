"""A process that writes to tasks and follows them, controlled step by step: ``python -m tests.faults.node STORE``.

It reads calls of `Node` from standard input, ``["method", arguments…]`` per line, and writes one line for each result.
Processes see each other's changes only through the store, and through `hint` where the test sends one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from a2a_sync.engine.hub import EventHub, Subscription, TaskEventStream
from a2a_sync.lifecycle import Entry, LogEvent
from a2a_sync.operations import RunRequest
from a2a_sync.stores import open_store
from a2a_sync.stores.base import Expiry, Owner, RunToken
from a2a_sync.types import (
    Artifact,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
)

SCOPE = Owner()


class Node:
    """A store, a hub, run tokens, and followers by their index. Results are JSON values."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url)
        self._hub = EventHub()
        self._tokens: dict[str, RunToken] = {}
        self._held: list[tuple[str, Sequence[Entry], bool]] = []
        self._followers: list[TaskEventStream] = []

    # -- writing --

    def start(self, task_id: str, create: bool, publish: str) -> None:
        message = Message(role=Role.USER, parts=(TextPart("go"),), task_id=task_id, context_id="c")
        submitted = [self._status(task_id, TaskState.SUBMITTED)] if create else []
        events = [message, *submitted, self._status(task_id, TaskState.WORKING)]
        started = self._store.start_run(SCOPE, RunRequest(message=message), events, create=create)
        self._tokens[task_id] = started.token
        self._pass_on(task_id, started.entries, False, publish)

    def write(self, task_id: str, count: int, publish: str) -> None:
        """Append chunks one by one."""
        for _ in range(count):
            artifact = Artifact(artifact_id="a", parts=(TextPart("x"),))
            event = TaskArtifactUpdateEvent(task_id=task_id, context_id="c", artifact=artifact, append=True)
            self._append(task_id, event, publish=publish)

    def pause(self, task_id: str, state: str, publish: str) -> None:
        """End the run in a state; release the token separately if the state does not end the run."""
        self._append(task_id, self._status(task_id, TaskState(state)), publish=publish)
        if TaskState(state) is TaskState.AUTH_REQUIRED:
            self._append(task_id, publish=publish, end=True)

    def _append(self, task_id: str, *events: LogEvent, publish: str, end: bool = False) -> None:
        entries = self._store.append(self._tokens[task_id], events, end=end)
        paused = any(
            isinstance(e, TaskStatusUpdateEvent) and e.status.state is not TaskState.AUTH_REQUIRED for e in events
        )
        self._pass_on(task_id, entries, end or paused, publish)

    def _status(self, task_id: str, state: TaskState) -> TaskStatusUpdateEvent:
        return TaskStatusUpdateEvent(task_id=task_id, context_id="c", status=TaskStatus(state=state))

    def _pass_on(self, task_id: str, entries: Sequence[Entry], ended: bool, when: str) -> None:
        if when == "late":
            self._held.append((task_id, entries, ended))
        elif when == "now":
            self._hub.publish(SCOPE, task_id, entries, ended=ended)

    def publish_late(self, index: int) -> None:
        """Publish a batch that was held back, possibly out of order."""
        if self._held:
            task_id, entries, ended = self._held.pop(index % len(self._held))
            self._hub.publish(SCOPE, task_id, entries, ended=ended)

    def compact(self) -> int:
        """Compact all eligible logs."""
        return self._store.sweep(Expiry(replay=time.time_ns() // 1_000_000 + 1_000_000)).compacted

    # -- following --

    def hint(self, task_id: str) -> None:
        """Signal a change, as another process or the store poll would."""
        self._hub.hint(task_id)

    def follow(self, task_id: str, size: int) -> list[int]:
        """Open a stream from the current position; return its index and cursor."""
        subscription = Subscription(self._hub, task_id, size=size)
        stored = self._store.load(SCOPE, task_id)
        return self._add(task_id, subscription, stored.version, stored.running)

    def resume(self, task_id: str, cursor: int, size: int) -> list[int]:
        """Open a stream from an event number."""
        subscription = Subscription(self._hub, task_id, size=size)
        subscription.hint()
        return self._add(task_id, subscription, cursor, True)

    def _add(self, task_id: str, subscription: Subscription, cursor: int, running: bool) -> list[int]:
        stream = TaskEventStream(self._store, SCOPE, task_id, subscription, cursor=cursor, running=running)
        self._followers.append(stream)
        return [len(self._followers) - 1, cursor]

    def read(self, follower: int) -> list[int] | None:
        """The numbers that have arrived, or None at the end."""
        items = self._followers[follower].poll(0)
        return None if items is None else [item.number for item in items if item.number is not None]

    def reset(self) -> None:
        """Reset: the next task gets new followers."""
        for stream in self._followers:
            stream.close()
        self._followers, self._held = [], []


class RemoteNode:
    """A `Node` in a subprocess."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.node", url],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any) -> Any:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, "the process has exited; see its traceback on standard error"
            return json.loads(answer)

        return call

    def close(self) -> None:
        """Stop the process."""
        self._process.communicate(timeout=60)


def main(url: str) -> None:
    node = Node(url)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(getattr(node, method)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
