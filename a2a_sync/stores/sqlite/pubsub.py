"""Pub/sub over Unix datagram sockets, between processes on one machine that share an SQLite file.

A message is the id of a task. Each process binds a socket in a folder beside the file. It shows its subscriptions in a second
file there, which the other processes read: they send datagrams only about tasks that it has subscribed to. Where Unix sockets
are not supported or the folder cannot be created, `UnixSocketPubSub.healthy` is False and the store is polled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import stat
import tempfile
import threading
import time
import weakref
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path

from a2a_sync.concurrency.fork import renew_per_process
from a2a_sync.stores.base import TaskBatch
from a2a_sync.stores.pubsub import Receiver, logger

#: The path of a Unix socket may have 108 bytes on Linux and 104 elsewhere; the file name takes 24 of them.
_MAX_FOLDER_BYTES = 75
_MAX_MESSAGE_BYTES = 1024
_SETTLED_NS = 100_000_000
#: How often a socket is given a path in a folder that is removed meanwhile.
_BIND_ATTEMPTS = 10
#: Counters of subscriptions of a process. Tasks whose ids have the same hash share one, which costs a needless message.
_COUNTERS = 4096
_SUFFIX = ".tasks"
#: The byte of a counter at zero in the file. All else, a hole or the end of the file too, stands for a subscription.
_NONE, _SOME = b"\1", b"\0"


def sockets_folder(store_path: str) -> Path:
    """The folder of the sockets for the store at `store_path`: beside it, or in the temp folder if the path is too long.

    Containers that share the volume of the store also share the folder beside it.
    """
    beside = Path(f"{os.path.realpath(store_path)}-hints")
    if len(os.fsencode(beside)) <= _MAX_FOLDER_BYTES:
        return beside
    name = hashlib.sha256(os.fsencode(beside)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"a2a-hints-{os.getuid()}-{name}"


class _OwnSubscriptions:
    """Counters of the subscriptions of this process, whose other values than zero are shown in a file. Used under a lock.

    The file is not mapped: an access to a map kills the process if the file was cut, or if the disk cannot store a page.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._counts = array("I", bytes(4 * _COUNTERS))
        weakref.finalize(self, os.close, fd)

    def add(self, index: int) -> None:
        """Count one more subscription."""
        self._counts[index] += 1
        if self._counts[index] == 1:
            self._show(index, _SOME)

    def remove(self, index: int) -> None:
        """Count one less."""
        if self._counts[index]:
            self._counts[index] -= 1
            if not self._counts[index]:
                self._show(index, _NONE)

    def _show(self, index: int, value: bytes) -> None:
        try:
            os.pwrite(self._fd, value, index)
        except OSError:
            # Others send all messages from now on.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)


class _ShownSubscriptions:
    """The subscriptions of another process; on any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    def may_have(self, index: int) -> bool:
        """Whether the process has subscribed to a task with this index, or cannot show it."""
        try:
            return os.pread(self._fd, 1, index) != _NONE
        except OSError:
            return True


class UnixSocketPubSub(Receiver):
    """A `PubSub` over sockets in `folder`; a forked child opens its own socket.

    A message is sent to the processes that subscribe to its task, and to those whose subscriptions cannot be read. A daemon
    thread named ``a2a-hints`` receives messages and calls ``on_message``. No socket is opened before `start` or `publish`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        renew_per_process(self)

    def renew(self) -> None:
        """Discard the sockets of the parent in a forked child."""
        self._lock = threading.Lock()
        self._sender: socket.socket | None = None
        self._own = ""
        self._failed = False
        self._seen = -1
        #: The sockets of other processes, with their subscriptions.
        self._others: dict[str, _ShownSubscriptions | None] = {}
        self._subscriptions: _OwnSubscriptions | None = None

    @property
    def healthy(self) -> bool:
        """See `PubSub.healthy`."""
        return self._sender is not None

    def start(self, on_message: Callable[[str, TaskBatch | None], None], on_gap: Callable[[], None]) -> None:
        """See `PubSub.start`. The loss of a datagram cannot be detected, so `on_gap` is not called."""
        self._on_message = on_message
        self._listen()

    def _listen(self) -> bool:
        if self._sender is None and not self._failed and not self._closed:
            with self._lock:
                if self._sender is None and not self._failed:
                    self._open()
        return self._sender is not None

    def _open(self) -> None:
        bound = None
        try:
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            own = self._bind(bound)
            subscriptions = _create_subscriptions(own + _SUFFIX)
            bound.settimeout(1.0)
            # A separate non-blocking socket: a send with a timeout would wait for a process whose queue is full.
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            sender.setblocking(False)
            threading.Thread(target=self._receive, args=(bound, own), name="a2a-hints", daemon=True).start()
        except (OSError, AttributeError, RuntimeError):
            logger.warning("no messages between processes through %s; the store is polled", self._folder, exc_info=True)
            self._failed = True
            if bound is not None:
                bound.close()
            return
        self._sender, self._own, self._subscriptions = sender, own, subscriptions
        self._sweep()

    def _bind(self, bound: socket.socket) -> str:
        """Give the socket a path in the folder. Returns the path."""
        own = str(self._folder / f"{os.getpid()}-{secrets.token_hex(4)}")
        for left in reversed(range(_BIND_ATTEMPTS)):
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_private(self._folder)
                bound.bind(own)
                break
            except FileNotFoundError:
                # The last other process has closed and removed the folder meanwhile.
                if not left:
                    raise
        return own

    def _sweep(self) -> None:
        """Remove the sockets of dead processes."""
        for other in self._other_sockets():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
                try:
                    probe.connect(other)
                except ConnectionRefusedError:
                    _remove(other)

    def publish(self, batch: TaskBatch) -> None:
        """See `PubSub.publish`. Only the id of the task is sent."""
        if not self._listen():
            return
        message = batch.task_id.encode()[:_MAX_MESSAGE_BYTES]
        index = _index(batch.task_id)
        # The batch is stored already. A process that subscribes after this look reads the log after that, and finds it there.
        for other, subscriptions in self._other_sockets().items():
            if subscriptions is None or subscriptions.may_have(index):
                self._send(message, other)

    def subscribe(self, task_id: str, *, soon: bool = False) -> None:
        """See `PubSub.subscribe`."""
        if self._subscriptions is not None:
            index = _index(task_id)
            with self._lock:
                self._subscriptions.add(index)

    def unsubscribe(self, task_id: str) -> None:
        """See `PubSub.unsubscribe`."""
        if self._subscriptions is not None:
            index = _index(task_id)
            with self._lock:
                self._subscriptions.remove(index)

    def _send(self, message: bytes, other: str) -> None:
        try:
            if self._sender is not None:
                self._sender.sendto(message, other)
        except (ConnectionRefusedError, FileNotFoundError):
            # The process died without removing its socket.
            _remove(other)
        except OSError:
            pass  # its queue is full; the messages in the queue make it read the log

    def _other_sockets(self) -> dict[str, _ShownSubscriptions | None]:
        """The sockets of other processes; the folder is read again only after it has changed."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed != self._seen:
                known = self._others
                with os.scandir(self._folder) as entries:
                    paths = [e.path for e in entries if e.path != self._own and _is_socket(e)]
                self._others = {path: known.get(path) or _open_subscriptions(path + _SUFFIX) for path in paths}
                # File times are coarse: two changes in quick succession may have the same time.
                self._seen = changed if time.time_ns() - changed > _SETTLED_NS else -1
        except OSError:
            self._others = {}
        return self._others

    def _receive(self, bound: socket.socket, own: str) -> None:
        while not self._closed:
            try:
                message = bound.recv(_MAX_MESSAGE_BYTES)
            except TimeoutError:
                continue
            except OSError:
                break
            self._deliver(message.decode(errors="replace"))
        bound.close()
        _remove(own)

    def close(self) -> None:
        """See `PubSub.close`."""
        self._closed = True
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()
            _remove(self._own)
            with contextlib.suppress(OSError):
                # Succeeds for the last process only, as the folder is empty then.
                self._folder.rmdir()


def _check_private(folder: Path) -> None:
    """Check that no other user can put sockets into `folder`, or a link in its place: unused ones are deleted.

    Raises:
        PermissionError: it is a link, or another user can write to it.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder that only this user can write to")


def _index(task_id: str) -> int:
    """The index of the counter of a task, the same in all processes."""
    return zlib.crc32(task_id.encode()) % _COUNTERS


def _create_subscriptions(path: str) -> _OwnSubscriptions | None:
    """The subscriptions of this process, none yet, which others read at `path`; None where there can be no such file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    subscriptions = _OwnSubscriptions(fd)
    try:
        os.pwrite(fd, _NONE * _COUNTERS, 0)
    except OSError:
        _unlink(path)
        return None
    return subscriptions


def _open_subscriptions(path: str) -> _ShownSubscriptions | None:
    """The subscriptions of another process, or None: it shows none, or not yet."""
    try:
        return _ShownSubscriptions(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return None


def _remove(own: str) -> None:
    """Delete a socket and its counters."""
    for path in (own + _SUFFIX, own):
        _unlink(path)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False  # its process removed it after the folder was read; the other sockets still count
