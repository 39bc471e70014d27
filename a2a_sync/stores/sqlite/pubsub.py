"""Pub/sub over Unix datagram sockets, between processes on one machine that share an SQLite file.

A message is the id of a task. Each process binds a socket in a folder beside the file, and publishes by sending a datagram to
every other socket in it. Where Unix sockets are not supported or the folder cannot be created, `UnixSocketPubSub.healthy` is
False and the store is polled.
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


def sockets_folder(store_path: str) -> Path:
    """The folder of the sockets for the store at `store_path`: beside it, or in the temp folder if the path is too long.

    Containers that share the volume of the store also share the folder beside it.
    """
    beside = Path(f"{os.path.realpath(store_path)}-hints")
    if len(os.fsencode(beside)) <= _MAX_FOLDER_BYTES:
        return beside
    name = hashlib.sha256(os.fsencode(beside)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"a2a-hints-{os.getuid()}-{name}"


class UnixSocketPubSub(Receiver):
    """A `PubSub` over sockets in `folder`; a forked child opens its own socket.

    Every message is sent to all other processes. A daemon thread named ``a2a-hints`` receives messages and calls
    ``on_message``. No socket is opened before `start` or `publish`.
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
        self._others: tuple[str, ...] = ()

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
        self._sender, self._own = sender, own
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
                    os.unlink(other)

    def publish(self, batch: TaskBatch) -> None:
        """See `PubSub.publish`. Only the id of the task is sent."""
        if not self._listen():
            return
        message = batch.task_id.encode()[:_MAX_MESSAGE_BYTES]
        for other in self._other_sockets():
            self._send(message, other)

    def subscribe(self, task_id: str, *, soon: bool = False) -> None:
        """Does nothing: every process receives all messages."""

    def unsubscribe(self, task_id: str) -> None:
        """Does nothing, see `subscribe`."""

    def _send(self, message: bytes, other: str) -> None:
        try:
            if self._sender is not None:
                self._sender.sendto(message, other)
        except (ConnectionRefusedError, FileNotFoundError):
            # The process died without removing its socket.
            with contextlib.suppress(OSError):
                os.unlink(other)
        except OSError:
            pass  # its queue is full; the messages in the queue make it read the log

    def _other_sockets(self) -> tuple[str, ...]:
        """The sockets of other processes; the folder is read again only after it has changed."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed != self._seen:
                with os.scandir(self._folder) as entries:
                    self._others = tuple(e.path for e in entries if e.path != self._own and _is_socket(e))
                # File times are coarse: two changes in quick succession may have the same time.
                self._seen = changed if time.time_ns() - changed > _SETTLED_NS else -1
        except OSError:
            self._others = ()
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
        with contextlib.suppress(OSError):
            os.unlink(own)

    def close(self) -> None:
        """See `PubSub.close`."""
        self._closed = True
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()
            with contextlib.suppress(OSError):
                os.unlink(self._own)
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


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False  # its process removed it after the folder was read; the other sockets still count
