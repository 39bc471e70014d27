"""Gunicorn's threaded worker behind a buffer: a client that sends or reads slowly holds a connection and no thread.

The worker's main thread receives requests without waiting and hands a thread those that have arrived completely. What a thread
writes and a client does not read at once is sent by the main thread as well, so that the thread can serve the next request.
Time and memory are bounded for both. `a2a_sync.gunicorn` selects this worker.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import selectors
import socket
import ssl
import time
import weakref
from functools import partial
from typing import Any

from gunicorn.http2 import negotiation
from gunicorn.workers import gthread

from a2a_sync.gunicorn.buffers import STEP, ClientSocket, IncomingRequest
from a2a_sync.limits import Limits
from a2a_sync.wsgi.process import Site, served

__all__ = ["BufferedThreadWorker"]

#: Bytes of requests that are in memory together, in one worker; beyond it the oldest incomplete request is dropped.
_MAX_RECEIVED_BYTES = 64 * 1024 * 1024
#: Bytes of answers that wait for their clients, in one worker; beyond it the client that has not read for longest is dropped.
_MAX_PARKED_BYTES = 128 * 1024 * 1024
#: How long, and for how many bytes, a connection that is being closed is read, so that its client gets the whole answer.
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 16 * 1024 * 1024
_MAX_LINGERING = 1000
#: How often time limits are checked, in seconds.
_SWEEP_INTERVAL = 0.25
#: The share of its connections that a worker closes, at least one, when it can accept no more.
_EVICTED_SHARE = 32
#: How long a worker that stops waits for the rest of a request, in seconds.
_STOP_TIMEOUT = 2.0

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _refusal(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()


_TIMED_OUT = _refusal("408 Request Timeout")
_HEAD_TOO_LARGE = _refusal("431 Request Header Fields Too Large")


class _TLSSocket(ssl.SSLSocket):
    """With TLS a thread serves the connection as gunicorn has it; no call waits for longer than the connection's time-out."""

    wait: float

    def setblocking(self, flag: bool) -> None:
        self.settimeout(self.wait if flag else 0.0)


class _Connection(gthread.TConn):  # type: ignore[misc]
    """A connection of the worker; it is closed without waiting for its client."""

    def __init__(self, worker: BufferedThreadWorker, client: socket.socket, address: Any, listener: Any) -> None:
        timeout = worker.header_timeout if worker.cfg.is_ssl else worker.limits.write_timeout
        park = partial(worker.method_queue.defer, worker.watch, self)
        super().__init__(worker.cfg, ClientSocket(client, park, timeout), address, listener)
        self._worker = worker
        self._wait = timeout
        cfg = worker.cfg
        #: Its requests are received by the main thread; others are served as gunicorn does.
        self.buffered = not (
            cfg.is_ssl
            or getattr(cfg, "protocol", "http") != "http"
            or negotiation.prior_knowledge_allowed(cfg, address)
            or negotiation.upgrade_allowed(cfg, address)
        )
        self.registered = False
        #: Bytes of its request that are counted as received.
        self.counted = 0

    def init(self) -> None:
        super().init()
        if type(self.sock) is ssl.SSLSocket:
            self.sock.__class__ = _TLSSocket
            self.sock.wait = self._wait  # type: ignore[attr-defined]

    def close(self, graceful: bool = False) -> None:
        if graceful and isinstance(self.sock, ClientSocket):
            self._worker.linger(self.sock)
        else:
            super().close()


class BufferedThreadWorker(gthread.ThreadWorker):  # type: ignore[misc]
    """The worker. Its limits are those of the app that it serves, or the defaults of `Limits`.

    ``Limits.header_timeout`` bounds the head of a request, ``body_idle_timeout`` and ``body_timeout`` its body,
    ``write_timeout`` how long a client may read nothing of an answer. TLS, HTTP/2 and uwsgi are served as gunicorn does, with a limit for each
    read and write.
    """

    limits = Limits()

    def init_process(self) -> None:
        self._incoming: dict[_Connection, IncomingRequest] = {}
        self._received = 0
        self._writing: dict[_Connection, None] = {}
        #: Requests that have ended while their answer was being sent.
        self._finished: dict[_Connection, Any] = {}
        self._lingering: dict[ClientSocket, tuple[float, int]] = {}
        self._next_sweep = 0.0
        self._sites: weakref.WeakSet[Site] = weakref.WeakSet()
        # Beyond three quarters of the files that the process may open, the application could not open its own.
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            self.worker_connections: int = min(self.cfg.worker_connections, max(1, files * 3 // 4))
        super().init_process()

    def run(self) -> None:
        self._read_limits()
        super().run()

    def _read_limits(self) -> None:
        """Take the limits of the app; of several, inside another framework, the most generous. They are known once they serve."""
        sites = [self.wsgi] if isinstance(self.wsgi, Site) else served()
        for site in sites:
            if site not in self._sites:
                self._sites.add(site)
                known = [one.limits for one in self._sites]
                self.limits = Limits(
                    header_timeout=max(limits.header_timeout for limits in known),
                    max_body_bytes=max(limits.max_body_bytes for limits in known),
                    body_idle_timeout=max(limits.body_idle_timeout for limits in known),
                    body_timeout=max(limits.body_timeout for limits in known),
                    write_timeout=max(limits.write_timeout for limits in known),
                )

    @property
    def header_timeout(self) -> float:
        """Seconds that a client has for the head of a request."""
        return self.limits.header_timeout

    # -- receiving --

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection, and wait for its request without a thread."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._evict()
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        self.nr_conns += 1
        self.enqueue_req(_Connection(self, client, address, listener.getsockname()))

    def on_client_socket_readable(self, conn: Any, client: Any) -> None:
        """Receive the next request of a connection that was kept alive."""
        if conn in self.keepalived_conns:
            super().on_client_socket_readable(conn, client)

    def enqueue_req(self, conn: Any) -> None:
        """Serve the next request of a connection as soon as it is here."""
        if not conn.buffered:
            super().enqueue_req(conn)
            return
        incoming = self._incoming[conn] = IncomingRequest(self.limits.max_body_bytes)
        conn.sock.received = False
        if conn.parser is not None and (rest := conn.parser.unreader.buf.getvalue()):
            conn.parser.unreader.buf = io.BytesIO()
            self._feed(conn, incoming, rest)
        if conn in self._incoming:
            self._receive(conn, None)

    def _receive(self, conn: _Connection, _: Any) -> None:
        """Read what has arrived; called by the poller."""
        incoming = self._incoming.get(conn)
        if incoming is None:
            return  # dropped for another one after the poller had reported both
        left = STEP
        try:
            while not incoming.complete and left > 0:
                data = os.read(conn.sock.fileno(), 64 * 1024)
                if data:
                    self._feed(conn, incoming, data)
                    if conn not in self._incoming:
                        return
                    left -= len(data)
                elif incoming.data:
                    incoming.end()
                else:
                    self._drop(conn)
                    return
        except BlockingIOError:
            pass
        except OSError:
            self._drop(conn)
            return
        if incoming.head_too_large:
            self._drop(conn, _HEAD_TOO_LARGE)
        elif incoming.complete:
            self._dispatch(conn, incoming)
        elif not conn.registered:
            conn.registered = True
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._receive, conn))

    def _feed(self, conn: _Connection, incoming: IncomingRequest, data: bytes) -> None:
        incoming.feed(data)
        self._received += len(data)
        conn.counted += len(data)
        if incoming.awaits_continue and not incoming.complete:
            incoming.awaits_continue = False
            try:
                conn.sock.sendall(_CONTINUE)
            except OSError:
                self._drop(conn)
        while self._received > _MAX_RECEIVED_BYTES and len(self._incoming) > 1:
            self._drop(next(iter(self._incoming)), _TIMED_OUT)

    def _dispatch(self, conn: _Connection, incoming: IncomingRequest) -> None:
        """Hand a request that has arrived to a thread."""
        self._forget(conn, served=True)
        conn.init()
        conn.data_ready = True
        conn.parser.unreader.unread(bytes(incoming.data))
        conn.sock.received = incoming.whole
        super().enqueue_req(conn)

    def _forget(self, conn: _Connection, *, served: bool = False) -> None:
        self._incoming.pop(conn, None)
        if conn.registered:
            conn.registered = False
            self.poller.unregister(conn.sock)
        if not served:
            self._received -= conn.counted
            conn.counted = 0

    def _drop(self, conn: _Connection, answer: bytes = b"") -> None:
        """End a connection whose request is not served."""
        self._forget(conn)
        self.nr_conns -= 1
        if answer:
            try:
                os.write(conn.sock.fileno(), answer)
            except OSError:
                pass
        conn.close(graceful=bool(answer))

    def _evict(self) -> None:
        """Close the connections that have been without a complete request for longest, to accept others."""
        idle_since = {conn: incoming.started for conn, incoming in self._incoming.items()}
        idle_since.update((conn, conn.timeout - self.cfg.keepalive) for conn in self.keepalived_conns)
        count = max(1, self.worker_connections // _EVICTED_SHARE)
        for conn in sorted(idle_since, key=idle_since.__getitem__)[:count]:
            if conn in self._incoming:
                self._drop(conn)
            else:
                self.keepalived_conns.remove(conn)
                self.poller.unregister(conn.sock)
                self.nr_conns -= 1
                conn.close()

    # -- answering --

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        """A body that the application did not read and that is not here is not awaited: its connection is closed."""
        return bool(keepalive) and bool(conn.parser.finish_body(deadline=time.monotonic() + 0.05))

    def finish_request(self, conn: Any, fs: Any) -> None:
        """A thread is done with a request; the connection is used again when its client has the whole answer."""
        self._received -= conn.counted
        conn.counted = 0
        if conn in self._writing:
            self._finished[conn] = fs
        else:
            super().finish_request(conn, fs)

    def watch(self, conn: _Connection) -> None:
        """Send what is parked, as its client reads it."""
        if conn not in self._writing:
            self._writing[conn] = None
            self.poller.register(conn.sock, selectors.EVENT_WRITE, partial(self._flush, conn))

    def _flush(self, conn: _Connection, _: Any) -> None:
        try:
            done = conn.sock.flush()
        except OSError:
            conn.sock.abort()
            done = True
        if done:
            del self._writing[conn]
            self.poller.unregister(conn.sock)
            fs = self._finished.pop(conn, None)
            if fs is not None:
                super().finish_request(conn, fs)

    # -- closing --

    def linger(self, sock: ClientSocket) -> None:
        """Close a connection once its client has closed it too, and after `_LINGER_SECONDS` at most.

        A connection that is closed with unread bytes is reset, and its client may lose the answer (RFC 9112 section 9.6).
        """
        try:
            sock.shutdown(socket.SHUT_WR)
            self.poller.register(sock, selectors.EVENT_READ, self._discard)
        except (OSError, ValueError, KeyError):
            sock.close()
            return
        self._lingering[sock] = (time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES)
        if len(self._lingering) > _MAX_LINGERING:
            self._close(next(iter(self._lingering)))

    def _discard(self, sock: Any) -> None:
        if sock not in self._lingering:
            return  # closed for another one after the poller had reported both
        until, left = self._lingering[sock]
        try:
            read = len(os.read(sock.fileno(), min(STEP, left)))
        except BlockingIOError:
            return
        except OSError:
            read = 0
        if not read or left <= read:
            self._close(sock)
        else:
            self._lingering[sock] = (until, left - read)

    def _close(self, sock: ClientSocket) -> None:
        del self._lingering[sock]
        self.poller.unregister(sock)
        sock.close()

    # -- time limits --

    def murder_pending(self) -> None:
        """Gunicorn's check of connections that wait, and those of this worker. Called in each round of the main loop."""
        super().murder_pending()
        if self.nr_conns >= self.worker_connections:
            self._evict()
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_INTERVAL
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        self._read_limits()
        for conn, incoming in list(self._incoming.items()):
            if self._is_late(incoming, now):
                self._drop(conn, _TIMED_OUT if incoming.data else b"")
        stalled = now - self.limits.write_timeout
        for conn in list(self._writing):
            if conn.sock.progress < stalled:
                conn.sock.abort()
        for sock in [sock for sock, (until, _) in self._lingering.items() if until < now]:
            self._close(sock)
        excess = sum(conn.sock.parked_bytes for conn in self._writing) - _MAX_PARKED_BYTES
        if excess > 0:
            for conn in sorted(self._writing, key=lambda conn: conn.sock.progress):
                excess -= conn.sock.parked_bytes
                conn.sock.abort()
                if excess <= 0:
                    break

    def _is_late(self, incoming: IncomingRequest, now: float) -> bool:
        if not self.alive and now - incoming.heard > (_STOP_TIMEOUT if incoming.data else 0):
            return True
        spent = now - incoming.started
        if not incoming.head_end:
            return spent > self.limits.header_timeout
        return now - incoming.heard > self.limits.body_idle_timeout or spent > self.limits.body_timeout
