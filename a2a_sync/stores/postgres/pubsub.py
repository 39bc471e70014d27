"""Pub/sub by notifications of PostgreSQL.

A message is a list of task ids. It is sent apart from the writes, on a connection of its own: NOTIFY in a writing transaction
would make commits wait for one another. Each process listens to one channel, so all receive all messages; the server signals
every listener, which costs more with every process. Above about thirty processes use Redis.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

import psycopg

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.stores.base import TaskBatch
from a2a_sync.stores.postgres.database import Connection, Database, described, query
from a2a_sync.telemetry.logs import get_logger

#: All implementations of pub/sub log as part of the engine.
logger: Final = get_logger("a2a_sync.engine")

#: Seconds between two messages of a process that writes all the time; the first message after a pause is sent at once.
_INTERVAL = 0.005
#: A payload of NOTIFY has less than 8,000 bytes.
_MAX_PAYLOAD_BYTES = 7000
#: Ids that wait to be sent. With more, the others would read the log anyway: they poll.
_MAX_WAITING = 10_000
#: Seconds without messages after which the connection is tested.
_TEST_INTERVAL = 10.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class PostgresPubSub:
    """A `PubSub` over the channel ``<prefix>hints``. Two daemon threads, ``a2a-hints`` and ``a2a-hints-send``, begin on first use.

    Behind a pooler such as PgBouncer in transaction mode there are no notifications: give the store's app
    ``pubsub="postgresql://…"`` with the address of the server itself.
    """

    def __init__(self, database: Database, prefix: str) -> None:
        self._database = database
        self._channel = f"{prefix}hints"
        self._on_message: Callable[[str, TaskBatch | None], None] = _ignore
        self._on_gap: Callable[[], None] = lambda: None
        self._closed = False
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: threads and connections are the parent's."""
        self._inherited = getattr(self, "_connections", None)
        self._connections: list[Connection] = []
        #: Names this object, so that it ignores its own messages.
        self._id = secrets.token_hex(6)
        self._lock = threading.Lock()
        self._waiting: dict[str, None] = {}
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._listener: threading.Thread | None = None
        self._sender: threading.Thread | None = None
        self._listening = False

    @property
    def healthy(self) -> bool:
        """See `PubSub.healthy`."""
        return self._listening

    def start(self, on_message: Callable[[str, TaskBatch | None], None], on_gap: Callable[[], None]) -> None:
        """See `PubSub.start`."""
        self._on_message, self._on_gap = on_message, on_gap
        if self._listener is None and not self._closed:
            with self._lock:
                if self._listener is None:
                    self._listener = start_thread("a2a-hints", self._listen)

    def publish(self, batch: TaskBatch) -> None:
        """See `PubSub.publish`. Only the id of the task is sent."""
        if self._closed:
            return
        with self._lock:
            if len(self._waiting) < _MAX_WAITING:
                self._waiting[batch.task_id] = None
            if self._sender is None:
                self._sender = start_thread("a2a-hints-send", self._send)
        if not self._wake.is_set():
            self._wake.set()

    def subscribe(self, task_id: str) -> None:
        """Does nothing: every process receives all messages."""

    def unsubscribe(self, task_id: str) -> None:
        """Does nothing, see `subscribe`."""

    def close(self) -> None:
        """See `PubSub.close`. The threads end within a second."""
        self._closed = True
        self._stop.set()
        self._wake.set()

    # -- sending --

    def _send(self) -> None:
        connection: Connection | None = None
        try:
            while True:
                self._wake.wait()
                self._wake.clear()
                if self._closed:
                    return
                connection = self._send_waiting(connection)
                self._stop.wait(_INTERVAL)
        finally:
            _close(connection)

    def _send_waiting(self, connection: Connection | None) -> Connection | None:
        with self._lock:
            ids, self._waiting = list(self._waiting), {}
        try:
            if connection is None:
                connection = self._connect()
                # A message needs no disk; it is lost with the server, as its listeners are.
                query(connection, "SET synchronous_commit = off")
            query(
                connection,
                "SELECT pg_notify(%s, part) FROM unnest(%s::text[]) AS part",
                (self._channel, self._parts(ids)),
            )
        except psycopg.Error as error:
            # The others poll; whether anything arrives shows the listener.
            logger.debug("a message to other processes was lost: %s", described(error))
            _close(connection)
            self._stop.wait(random.uniform(0.5, 1.0) * _FIRST_PAUSE)
            return None
        return connection

    def _parts(self, ids: list[str]) -> list[str]:
        parts, part = [], self._id
        for task_id in ids:
            if len((part + task_id).encode()) > _MAX_PAYLOAD_BYTES:
                parts.append(part)
                part = self._id
            part += f"\n{task_id}"
        return [*parts, part]

    # -- receiving --

    def _listen(self) -> None:
        pause, reported = _FIRST_PAUSE, False
        while not self._closed:
            try:
                self._receive_until_lost()
            except psycopg.Error as error:
                if not reported and not self._closed:
                    logger.warning("no messages between processes (%s); the store is polled", described(error))
                reported = True
            except Exception:
                logger.exception("no messages between processes; the store is polled")
            if self._listening:
                pause, reported, self._listening = _FIRST_PAUSE, False, False
            self._stop.wait(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _receive_until_lost(self) -> None:
        connection = self._connect()
        try:
            if query(connection, "SELECT pg_backend_pid()")[0][0] != connection.info.backend_pid:
                raise psycopg.OperationalError(
                    'a connection pooler drops notifications; name the server itself with pubsub="postgresql://…"'
                )
            query(connection, f'LISTEN "{self._channel}"')
            self._listening = True
            self._on_gap()
            tested = time.monotonic()
            while not self._closed:
                for notification in connection.notifies(timeout=1.0):
                    self._deliver(notification.payload)
                if time.monotonic() - tested > _TEST_INTERVAL:
                    query(connection, "SELECT 1")
                    tested = time.monotonic()
        finally:
            _close(connection)

    def _deliver(self, payload: str) -> None:
        sender, *ids = payload.split("\n")
        if sender == self._id:
            return
        for task_id in ids:
            try:
                self._on_message(task_id, None)
            except Exception:
                logger.exception("a message of another process could not be handled")

    def _connect(self) -> Connection:
        connection = self._database.connect()
        # Kept, so that a forked child does not close the connection of its parent.
        self._connections = [one for one in self._connections if not one.closed] + [connection]
        return connection


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()


def _ignore(task_id: str, batch: TaskBatch | None) -> None:
    """The initial callback: messages before `PostgresPubSub.start` are discarded."""
