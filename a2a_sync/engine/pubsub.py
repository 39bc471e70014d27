"""Hints between the processes of one machine: "task X has something new", by Unix datagram.

A hint is lossy and says nothing but a task id: the log is the truth, and whoever hears of a task reads it there. Each
process that listens has a socket of its own in one folder beside the shared store; telling the others is one datagram
to each. Where such sockets are missing, or the folder cannot be made, `available` is False and readers poll.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from a2a_sync.concurrency.background import start_thread
from a2a_sync.concurrency.fork import renew_in_child
from a2a_sync.telemetry.logs import get_logger

logger = get_logger(__name__)

#: A path of a Unix socket has to fit into 108 bytes on Linux, 104 elsewhere; its name takes 24 of them.
_LONGEST_FOLDER = 75
_LARGEST_HINT = 1024
_SETTLED_NS = 100_000_000


def hints_folder(store_path: str) -> Path:
    """Where the processes that share the store at `store_path` meet: beside it, or, for a long path, in the temp folder.

    Containers that share the store's volume share the folder beside it too.
    """
    beside = Path(f"{os.path.realpath(store_path)}-hints")
    if len(os.fsencode(beside)) <= _LONGEST_FOLDER:
        return beside
    name = hashlib.sha256(os.fsencode(beside)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"a2a-hints-{os.getuid()}-{name}"


class Hints:
    """This process's socket in `folder`, and how to reach the others'. A forked child begins with a socket of its own.

    `on_hint` is called on a thread of this object with each task id that another process names. Nothing is opened before
    `listen` or `tell`.
    """

    def __init__(self, folder: Path, on_hint: Callable[[str], None]) -> None:
        self._folder = folder
        self._on_hint = on_hint
        self._closed = False
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew: what was inherited belongs to the parent."""
        self._lock = threading.Lock()
        self._sender: socket.socket | None = None
        self._own = ""
        self._failed = False
        self._seen = -1
        self._others: tuple[str, ...] = ()

    @property
    def available(self) -> bool:
        """Hints can be sent and heard here; False after it turned out that they cannot."""
        return not self._failed

    def listen(self) -> bool:
        """Begin to hear the others, if that has not begun. False where it is not possible."""
        if self._sender is None and not self._failed and not self._closed:
            with self._lock:
                if self._sender is None and not self._failed:
                    self._open()
        return self._sender is not None

    def _open(self) -> None:
        bound = None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            own = str(self._folder / f"{os.getpid()}-{secrets.token_hex(4)}")
            bound.bind(own)
            bound.settimeout(1.0)
            # A socket of its own: one with a time-out would wait for a neighbour whose queue is full.
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            sender.setblocking(False)
            threading.Thread(target=self._hear, args=(bound, own), name="a2a-hints", daemon=True).start()
        except (OSError, AttributeError, RuntimeError):
            logger.warning("no hints between processes in %s; other processes are polled", self._folder, exc_info=True)
            self._failed = True
            if bound is not None:
                bound.close()
            return
        self._sender, self._own = sender, own
        self._sweep()

    def _sweep(self) -> None:
        """Remove the sockets of processes that died without doing it."""
        for other in self._neighbours():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
                try:
                    probe.connect(other)
                except ConnectionRefusedError:
                    os.unlink(other)

    def tell(self, task_id: str) -> None:
        """Tell every other process that listens. Never blocks and never fails: a hint may be lost."""
        if not self.listen():
            return
        hint = task_id.encode()[:_LARGEST_HINT]
        for other in self._neighbours():
            self._send(hint, other)

    def _send(self, hint: bytes, other: str) -> None:
        try:
            if self._sender is not None:
                self._sender.sendto(hint, other)
        except (ConnectionRefusedError, FileNotFoundError):
            # Its process died without removing it.
            with contextlib.suppress(OSError):
                os.unlink(other)
        except OSError:
            pass  # its queue is full: it has enough to read, and looks at the log when it does

    def _neighbours(self) -> tuple[str, ...]:
        """The other sockets; the folder is read again only when it has changed."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed != self._seen:
                self._others = tuple(e.path for e in os.scandir(self._folder) if e.path != self._own)
                # The file system's clock is coarse: what comes right after a change may carry the same time.
                self._seen = changed if time.time_ns() - changed > _SETTLED_NS else -1
        except OSError:
            self._others = ()
        return self._others

    def _hear(self, bound: socket.socket, own: str) -> None:
        while not self._closed:
            try:
                hint = bound.recv(_LARGEST_HINT)
            except TimeoutError:
                continue
            except OSError:
                break
            try:
                self._on_hint(hint.decode())
            except Exception:
                logger.exception("a hint could not be followed")
        bound.close()
        with contextlib.suppress(OSError):
            os.unlink(own)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._closed = True
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()
            with contextlib.suppress(OSError):
                os.unlink(self._own)
            with contextlib.suppress(OSError):
                # Only the last one out finds it empty.
                self._folder.rmdir()


class ChangePoll:
    """Looks every `seconds` whether any process has written to the store, and calls `on_change` if so.

    The safety net under hints, which are lossy, and all there is where they cannot be sent. `mark` gives a value that
    changes with every write; while `wanted` is False nothing is looked at.
    """

    def __init__(
        self, mark: Callable[[], object], on_change: Callable[[], None], wanted: Callable[[], bool], *, seconds: float
    ) -> None:
        self._mark = mark
        self._on_change = on_change
        self._wanted = wanted
        self._seconds = seconds
        self._stop = threading.Event()
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Look from now on, if that has not begun."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = start_thread("a2a-poll", self._run)

    def _run(self) -> None:
        last: object = None
        while not self._stop.wait(self._seconds):
            if not self._wanted():
                last = None
                continue
            try:
                mark = self._mark()
                if mark is None or mark != last:
                    last = mark
                    self._on_change()
            except Exception:
                logger.exception("the store could not be polled")

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._stop.set()
