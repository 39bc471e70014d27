"""Pub/sub by notifications of PostgreSQL.

A message is a list of task ids. It is sent apart from the writes, on a connection of its own: NOTIFY in a writing transaction
would make commits wait for one another. Each process listens to one channel, so all receive all messages; the server signals
every listener, which costs more with every process. Above about thirty processes use Redis.

One connection sends and listens: a process that listened on a second one would be woken by each of its own messages.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

import psycopg

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.stores.base import TaskBatch
from a2a_sync.stores.postgres.database import Connection, Database, described, query
from a2a_sync.stores.pubsub import ConnectedReceiver

#: Seconds for each message of a process that writes all the time, and how many may precede their time after a pause.
_INTERVAL = 0.005
_BURST = 8
#: A payload of NOTIFY has less than 8,000 bytes.
_MAX_PAYLOAD_BYTES = 7000
#: Ids that wait to be sent. With more, the others would read the log anyway: they poll.
_MAX_WAITING = 10_000
#: Seconds after which the connection is tested, unless a message was sent.
_TEST_INTERVAL = 10.0


class PostgresPubSub(ConnectedReceiver):
    """A `PubSub` over the channel ``<prefix>hints``. A daemon thread, ``a2a-hints``, begins on first use.

    Behind a pooler such as PgBouncer in transaction mode there are no notifications: give the store's app
    ``pubsub="postgresql://…"`` with the address of the server itself.
    """

    def __init__(self, database: Database, prefix: str) -> None:
        self._database = database
        self._channel = f"{prefix}hints"
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: the thread and the connection are the parent's."""
        # Kept, so that the child does not close the connection of its parent.
        self._inherited = getattr(self, "_connection", None)
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._waiting: dict[str, None] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._waker: _Waker | None = None
        self.healthy = False
        #: When the next message would be sent at even intervals.
        self._due = 0.0

    def start(self, on_message: Callable[[str, TaskBatch | None], None], on_gap: Callable[[], None]) -> None:
        """See `PubSub.start`."""
        self._on_message, self._on_gap = on_message, on_gap
        self._start_thread()

    def _start_thread(self) -> None:
        if self._thread is None and not self._closed:
            with self._lock:
                if self._thread is None:
                    self._thread = start_thread(
                        "a2a-hints", self._receive, self._work_until_lost, psycopg.Error, described
                    )

    def publish(self, batch: TaskBatch) -> None:
        """See `PubSub.publish`. Only the id of the task is sent."""
        if self._closed:
            return
        with self._lock:
            if len(self._waiting) < _MAX_WAITING:
                self._waiting[batch.task_id] = None
        self._start_thread()
        self._wake()

    def _wake(self) -> None:
        # A thread without one looks for what is waiting when it has connected.
        if (waker := self._waker) is not None:
            waker.wake()

    def subscribe(self, task_id: str, *, soon: bool = False) -> None:
        """Does nothing: every process receives all messages."""

    def unsubscribe(self, task_id: str) -> None:
        """Does nothing, see `subscribe`."""

    def close(self) -> None:
        """See `PubSub.close`. The thread ends at once, or when the server has answered it."""
        self._closed = True
        self._stop.set()
        self._wake()

    # -- the thread --

    def _work_until_lost(self) -> None:
        self._connection = connection = self._database.connect()
        try:
            if query(connection, "SELECT pg_backend_pid()")[0][0] != connection.info.backend_pid:
                raise psycopg.OperationalError(
                    'a connection pooler drops notifications; name the server itself with pubsub="postgresql://…"'
                )
            # A message needs no disk; it is lost with the server, as its listeners are.
            query(connection, "SET synchronous_commit = off")
            query(connection, f'LISTEN "{self._channel}"')
            self._begin_listening()
            with closing(_Waker()) as waker, selectors.DefaultSelector() as selector:
                selector.register(connection, selectors.EVENT_READ)
                selector.register(waker, selectors.EVENT_READ)
                self._waker = waker
                tested = time.monotonic()
                while not self._closed:
                    if self._round(connection, selector, waker, tested + _TEST_INTERVAL):
                        tested = time.monotonic()
        finally:
            connection.close()

    def _round(self, connection: Connection, selector: selectors.BaseSelector, waker: _Waker, test: float) -> bool:
        """Wait until there is something to send or to receive, or until `test`, and do it; whether the server has answered."""
        now = time.monotonic()
        may_send = max(now, self._due - _BURST * _INTERVAL)
        for key, _ in selector.select(max(0.0, min(test, may_send if self._waiting else test) - now)):
            if key.fileobj is waker:
                waker.drain()
        now = time.monotonic()
        asked = bool(self._waiting) and now >= may_send
        if asked or not self._waiting:
            # Before the ids are taken. Until then, what is published needs to wake nothing.
            waker.arm()
        if asked:
            self._send_waiting(connection)
            self._due = max(self._due, now) + _INTERVAL
        elif asked := now >= test:
            query(connection, "SELECT 1")
        for notification in connection.notifies(timeout=0):
            if notification.pid != connection.info.backend_pid:
                for task_id in set(notification.payload.split("\n")):
                    self._deliver(task_id)
        return asked

    def _send_waiting(self, connection: Connection) -> None:
        with self._lock:
            ids, self._waiting = list(self._waiting), {}
        statement = "SELECT pg_notify(%s, part) FROM unnest(%s::text[]) AS part"
        query(connection, statement, (self._channel, _parts(ids)))


class _Waker:
    """Wakes a thread that waits with a selector."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._sent = False

    def fileno(self) -> int:
        return self._receiver.fileno()

    def wake(self) -> None:
        """Make the receiver readable. Does not block."""
        if not self._sent:
            self._sent = True
            with suppress(OSError):
                self._sender.send(b"\0")

    def drain(self) -> None:
        """The receiver is readable no more, and `wake` does nothing until `arm` was called."""
        self._receiver.recv(64)

    def arm(self) -> None:
        """Wake the thread again from now on."""
        self._sent = False

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()


def _parts(ids: list[str]) -> list[str]:
    """Payloads that name the tasks."""
    parts, part = [], ids[0]
    for task_id in ids[1:]:
        if len(part.encode()) + 1 + len(task_id.encode()) > _MAX_PAYLOAD_BYTES:
            parts.append(part)
            part = task_id
        else:
            part += f"\n{task_id}"
    return [*parts, part]
