"""Pub/sub over Redis, for many processes on many machines.

Each task is a channel of its own (sharded pub/sub, Redis 7 or newer), so a process receives only the messages of the tasks that
have streams, blocked calls or runs in it. With a key, a message carries the entries themselves where they are small, and proves
that it comes from a process with the key. They count only where their numbers follow what is known; whatever Redis loses, repeats,
reorders or invents, the log is read instead.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.stores import rows
from a2a_sync.stores.base import Owner, TaskBatch
from a2a_sync.stores.pubsub import FIRST_PAUSE, ConnectedReceiver, logger
from a2a_sync.types import TaskState

try:
    import redis
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError("RedisPubSub needs redis: pip install 'a2a-sync[redis]'") from _missing

#: Entries of a message above this size, in bytes, are left out: the log has them.
_MAX_BODY_BYTES = 32 * 1024
#: Messages that wait to be sent; further ones are dropped, as the log has what they say.
_MAX_WAITING = 10_000
#: How long the listener waits for messages before it subscribes to further tasks, in seconds.
_TICK = 0.1
_SOCKET_TIMEOUT = 5.0
#: A message that carries entries begins with its code of so many bytes, in hexadecimal digits.
_CODE_BYTES = 2 * hashlib.sha256().digest_size
_MIN_KEY_LENGTH = 16


class RedisPubSub(ConnectedReceiver):
    """A `PubSub` over Redis: ``A2AApp(agent, store="postgresql://…", pubsub="redis://host:6379/0")``.

    Needs the extra ``redis``. Two daemon threads, ``a2a-hints`` and ``a2a-hints-send``, begin on first use. Without a key, messages
    only name tasks, which are then read from the store. With one they contain what the tasks contain: use TLS (``rediss://``) and an
    account of its own.

    Parameters:
        url: of Redis, with its user and password.
        prefix: begins the names of the channels.
        key: a secret of 16 characters or more that all processes share and Redis does not know: messages carry entries, signed with
            it, and those that are not signed with it only make a process read the store.

    Raises:
        ValueError: the URL cannot be parsed, or the key is too short. The message contains neither of them.
        ModuleNotFoundError: the extra ``redis`` is not installed.
    """

    def __init__(self, url: str, *, prefix: str = "a2a:", key: str | None = None) -> None:
        if key is not None and len(key) < _MIN_KEY_LENGTH:
            raise ValueError(f"the key of RedisPubSub must have at least {_MIN_KEY_LENGTH} characters")
        self._key = None if key is None else key.encode()
        self._prefix = prefix
        self._url = url
        try:
            self._connect().close()
        except ValueError:
            parsed = False
        else:
            parsed = True
        if not parsed:
            raise ValueError("the Redis URL cannot be parsed: write redis://user:password@host:6379/0")
        renew_per_process(self)

    def renew(self) -> None:
        """In a forked child: threads, connections and subscriptions are the parent's."""
        #: Names this object, so that it ignores its own messages.
        self._id = secrets.token_hex(6)
        #: A channel for messages to this object. No task has this id.
        self._own = f"\0{self._id}"
        self._lock = threading.Lock()
        self._waiting: deque[TaskBatch] = deque(maxlen=_MAX_WAITING)
        self._wanted: Counter[str] = Counter()
        #: A message to this object is to be sent, so that it subscribes to what is wanted now.
        self._rouses = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._listener: threading.Thread | None = None
        self._sender: threading.Thread | None = None
        self.healthy = False

    def __repr__(self) -> str:
        return "<RedisPubSub>"

    def start(self, on_message: Callable[[str, TaskBatch | None], None], on_gap: Callable[[], None]) -> None:
        """See `PubSub.start`."""
        self._on_message, self._on_gap = on_message, on_gap
        if self._listener is None and not self._closed:
            with self._lock:
                if self._listener is None:
                    lost = (redis.RedisError, lambda error: type(error).__name__, " through Redis")
                    self._listener = start_thread("a2a-hints", self._receive, self._receive_until_lost, *lost)

    def publish(self, batch: TaskBatch) -> None:
        """See `PubSub.publish`."""
        if self._closed:
            return
        self._waiting.append(batch)
        self._wake_sender()

    def _wake_sender(self) -> None:
        if self._sender is None:
            with self._lock:
                if self._sender is None:
                    self._sender = start_thread("a2a-hints-send", self._send)
        if not self._wake.is_set():
            self._wake.set()

    def subscribe(self, task_id: str, *, soon: bool = False) -> None:
        """See `PubSub.subscribe`. It takes effect within a tenth of a second, or at once; then the log of the task is read."""
        with self._lock:
            self._wanted[task_id] += 1
        if soon and not self._closed:
            self._rouses = True
            self._wake_sender()

    def unsubscribe(self, task_id: str) -> None:
        """See `PubSub.unsubscribe`."""
        with self._lock:
            self._wanted[task_id] -= 1
            if self._wanted[task_id] <= 0:
                del self._wanted[task_id]

    def close(self) -> None:
        """See `PubSub.close`. The threads end within a second."""
        self._closed = True
        self._stop.set()
        self._wake.set()

    def _connect(self) -> Any:
        timeouts = {"socket_timeout": _SOCKET_TIMEOUT, "socket_connect_timeout": _SOCKET_TIMEOUT}
        return redis.Redis.from_url(self._url, **timeouts)

    # -- sending --

    def _send(self) -> None:
        client = self._connect()
        try:
            while True:
                self._wake.wait()
                self._wake.clear()
                if self._closed:
                    return
                try:
                    self._send_waiting(client)
                except redis.RedisError as error:
                    # The others poll; whether anything arrives shows the listener.
                    logger.debug("messages to other processes were lost: %s", type(error).__name__)
                    self._stop.wait(FIRST_PAUSE)
        finally:
            client.close()

    def _send_waiting(self, client: Any) -> None:
        batches = [self._waiting.popleft() for _ in range(len(self._waiting))]
        rouses, self._rouses = self._rouses, False
        if batches or rouses:
            with client.pipeline(transaction=False) as pipeline:
                if rouses:
                    pipeline.execute_command("SPUBLISH", self._prefix + self._own, b"")
                for batch in batches:
                    pipeline.execute_command("SPUBLISH", self._prefix + batch.task_id, self._dump(batch))
                pipeline.execute()

    # -- receiving --

    def _receive_until_lost(self) -> None:
        client = self._connect()
        pubsub = client.pubsub()
        try:
            # It also shows that Redis answers, and that it has sharded channels.
            pubsub.ssubscribe(self._prefix + self._own)
            subscribed: set[str] = set()
            while not self._closed:
                message = pubsub.get_message(timeout=_TICK)
                if message is not None:
                    self._handle(message)
                self._update(pubsub, subscribed)
        finally:
            pubsub.close()
            client.close()

    def _update(self, pubsub: Any, subscribed: set[str]) -> None:
        with self._lock:
            wanted = set(self._wanted)
        if wanted != subscribed:
            if new := wanted - subscribed:
                pubsub.ssubscribe(*(self._prefix + task_id for task_id in new))
            if old := subscribed - wanted:
                pubsub.sunsubscribe(*(self._prefix + task_id for task_id in old))
            subscribed.clear()
            subscribed |= wanted

    def _handle(self, message: dict[str, Any]) -> None:
        task_id = message["channel"].decode().removeprefix(self._prefix)
        if message["type"] == "ssubscribe":
            if task_id == self._own:
                self._begin_listening()
            else:
                # What was written before this is only in the log.
                self._deliver(task_id)
        elif message["type"] == "smessage" and task_id != self._own:
            try:
                sender, batch = self._load(task_id, message["data"])
            except (ValueError, KeyError, TypeError, RecursionError):
                sender, batch = "", None
            if sender != self._id:
                self._deliver(task_id, batch)

    def _dump(self, batch: TaskBatch) -> bytes:
        if self._key is None:
            return json.dumps({"sender": self._id}).encode()
        data = _dump(self._id, batch)
        return self._code(batch.task_id, data) + data

    def _load(self, task_id: str, data: bytes) -> tuple[str, TaskBatch | None]:
        """The sender of a message and its batch, which nothing but a valid signature makes credible."""
        if self._key is None:
            return json.loads(data)["sender"], None
        code, rest = data[:_CODE_BYTES], data[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(task_id, rest)):
            raise ValueError("the message is not signed with the key")
        return _load(task_id, rest)

    def _code(self, task_id: str, data: bytes) -> bytes:
        """The code of a message for the channel of `task_id`: it proves nothing on another one."""
        assert self._key is not None
        return hmac.new(self._key, f"{task_id}\n".encode() + data, hashlib.sha256).hexdigest().encode()


def _dump(sender: str, batch: TaskBatch) -> bytes:
    """The message with the entries of a batch; only its sender where they are large."""
    head = {"sender": sender, "owner": list(batch.owner), "before": batch.before.value, "ended": batch.ended}
    bodies = [rows.dump_entry(entry) for entry in batch.entries]
    if sum(map(len, bodies)) > _MAX_BODY_BYTES:
        return json.dumps({"sender": sender}).encode()
    head["entries"] = [
        [entry.number, entry.at_ms, len(body)] for entry, body in zip(batch.entries, bodies, strict=True)
    ]
    return b"".join([json.dumps(head).encode(), b"\n", *bodies])


def _load(task_id: str, data: bytes) -> tuple[str, TaskBatch | None]:
    """The sender of a message and its batch; None where the message does not carry it."""
    text, _, rest = data.partition(b"\n")
    head = json.loads(text)
    if "entries" not in head:
        return head["sender"], None
    entries, start = [], 0
    for number, at_ms, size in head["entries"]:
        entries.append(rows.entry(number, rest[start : start + size], at_ms))
        start += size
    tenant, owner = head["owner"]
    batch = TaskBatch(Owner(tenant, owner), task_id, tuple(entries), TaskState(head["before"]), head["ended"], False)
    return head["sender"], batch
