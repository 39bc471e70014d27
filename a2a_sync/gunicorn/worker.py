"""A threaded gunicorn worker that buffers requests and responses: a slow client occupies a connection, but no thread.

The main thread of the worker receives requests with non-blocking reads and dispatches complete ones to the thread pool.
Response bytes that a client does not read immediately are parked and sent by the main thread, so that the pool thread
can serve the next request. An event stream without events occupies no thread either. Time and memory are bounded in both
directions. `a2a_sync.gunicorn` selects this worker.
"""

from __future__ import annotations

import errno
import io
import itertools
import math
import os
import queue
import selectors
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from gunicorn import util
from gunicorn.http2 import negotiation
from gunicorn.sock import ssl_context
from gunicorn.workers import gthread

from a2a_sync.gunicorn import ConnectionCounts
from a2a_sync.gunicorn.buffers import STEP, ClientSocket, IncomingRequest, TLSClientSocket, connection_limit, is_whole
from a2a_sync.gunicorn.requests import Heads, Parser, Response
from a2a_sync.limits import Limits
from a2a_sync.wsgi.pausing import PausableBody
from a2a_sync.wsgi.process import Site, served

__all__ = ["BufferedThreadWorker"]

#: The most bytes of requests in the memory of one worker; above it the oldest incomplete request is dropped.
_MAX_RECEIVED_BYTES = 64 * 1024 * 1024
#: The most parked bytes of responses in one worker; above it the client that has not read for longest is dropped.
_MAX_PARKED_BYTES = 128 * 1024 * 1024
#: A connection that is being closed is read for this many seconds and bytes, so that its client receives the whole
#: response; beyond the number of such connections the oldest one is closed.
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 16 * 1024 * 1024
_MAX_LINGERING = 1000
#: The most bytes of a request that a pool thread reads itself; longer or incomplete requests are received by the main
#: thread.
_FIRST_READ = 64 * 1024
#: The members of `Limits` that the worker enforces.
_LIMITS = ("header_timeout", "max_body_bytes", "body_idle_timeout", "body_timeout", "write_timeout")
#: The most connections that are accepted in one turn of the main thread.
_ACCEPTED_IN_TURN = 16
#: Seconds for which a worker with more connections than another leaves new ones to it.
_ACCEPT_PAUSE = 0.001
#: Interval in seconds at which time limits are checked.
_SWEEP_INTERVAL = 0.25
#: A worker that can accept no more connections closes one in so many of them, at least one.
_EVICTED_SHARE = 32
#: Seconds for which the certificates of the server are kept in memory.
_CERTIFICATE_AGE = 60.0
#: Seconds that a stopping worker waits for the next bytes of a request.
_STOP_TIMEOUT = 2.0

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _refusal(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()


_TIMED_OUT = _refusal("408 Request Timeout")
_HEAD_TOO_LARGE = _refusal("431 Request Header Fields Too Large")
_TOO_MANY_CHUNKS = _refusal("400 Bad Request")


class _TLSSocket(ssl.SSLSocket):
    """The socket of a TLS connection that may use HTTP/2, served by a pool thread as in gunicorn. Blocking calls wait `wait` seconds."""

    wait: float

    def setblocking(self, flag: bool) -> None:
        self.settimeout(self.wait if flag else 0.0)


class _Paused(NamedTuple):
    """A response whose body waits, and the rest of its request.

    It waits to be woken, or, if `unread`, for the client to read what was sent before.
    """

    body: PausableBody
    unread: bool
    exchange: _Exchange


#: Yields the body and `_Paused.unread` when a response pauses; returns whether the connection can be kept.
_Exchange = Generator[tuple[PausableBody, bool], None, bool]


class _Connection(gthread.TConn):  # type: ignore[misc]
    """A connection of the worker. Closing it never blocks."""

    parser: Any

    def __init__(self, worker: BufferedThreadWorker, client: socket.socket, address: Any, listener: Any) -> None:
        cfg = worker.cfg
        #: Whether the main thread receives its requests; other connections are served as gunicorn does.
        self.buffered: bool = not (
            (cfg.is_ssl and "h2" in (cfg.http_protocols or ()))
            or getattr(cfg, "protocol", "http") != "http"
            or negotiation.prior_knowledge_allowed(cfg, address)
            or negotiation.upgrade_allowed(cfg, address)
        )
        park = partial(worker.method_queue.defer, worker.send_when_writable, self)
        self._wait = worker.limits.write_timeout if self.buffered or not cfg.is_ssl else worker.header_timeout
        if self.buffered and cfg.is_ssl:
            sock: ClientSocket = TLSClientSocket(client, park, self._wait, worker.tls())
        else:
            sock = ClientSocket(client, park, self._wait)
        sock.resumes = self.buffered
        super().__init__(cfg, sock, address, listener)
        self._worker = worker
        self.registered = False
        #: Whether the main thread has received its next request.
        self.arrived: bool = False
        #: Bytes of an incomplete request that a pool thread has read, for the main thread; None if there are none.
        self.first_bytes: bytes | None = None
        #: The response that was interrupted because its stream has no event; None if there is none.
        self.paused: _Paused | None = None
        #: Whether `_evict` has closed it while it waited for its next request.
        self.evicted = False
        #: The client that a load balancer has named by the PROXY protocol, as gunicorn's parser returns it.
        self.named_client: dict[str, Any] | None = None
        #: Bytes of its current request that are included in the total of the worker.
        self.received_bytes = 0

    def init(self) -> None:
        if self.initialized:
            return
        if self.buffered:
            self.parser = Parser(self._worker.heads, self)
        super().init()
        if type(self.sock) is ssl.SSLSocket:
            self.sock.__class__ = _TLSSocket
            self.sock.wait = self._wait  # type: ignore[attr-defined]

    def set_request(self, incoming: IncomingRequest) -> None:
        """Pass a received request to the parser of the connection."""
        self.init()
        self.data_ready = self.arrived = True
        first = incoming.first_piece
        self.parser.unreader.unread(bytes(incoming.data[:first]))
        self.sock.unread(bytes(incoming.data[first:]))
        self.sock.received = incoming.whole

    def close(self, graceful: bool = False) -> None:
        # It refers to the connection, so that the bytes in it would wait for a garbage collection.
        self.parser = None
        if graceful and isinstance(self.sock, ClientSocket):
            self._worker.linger(self.sock)
        else:
            super().close()


class _Outcome:
    """The result of serving a request, in the place of a future; False closes the connection."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        return self._value

    def cancelled(self) -> bool:
        return False


class RequestThreads:
    """The threads of a worker. Methods are called on the main thread, if not named otherwise.

    They have no futures, which cost a condition for each request, and the exit of the process does not wait for them.
    """

    def __init__(self, size: int, serve: Callable[[Any], None]) -> None:
        self._size = size
        self._serve = serve
        #: Each true value is one connection in `_begun` or `_new`; a false one ends a thread.
        self._queue: queue.SimpleQueue[bool] = queue.SimpleQueue()
        #: Connections whose responses are to be continued, served before those with a new request. Where they may have all
        #: threads, they wait in `_new` like the others, which would not get one.
        self._begun: deque[Any] = deque()
        self._new: deque[Any] = deque()
        self._started = 0
        self._busy = 0
        self._max_resumed: float = max(2, size // 8)
        self._continued = self._begun if size > self._max_resumed else self._new
        self._resumed: set[Any] = set()
        #: Connections that are to be resumed, by caller.
        self._waiting: dict[str, deque[Any]] = {}

    def resume(self, conn: Any, caller: str) -> None:
        """Continue a paused response. Few are continued at a time, because more would only compete for the interpreter.

        Those that wait get their turns by `caller`, so that many streams of one do not delay those of another.
        """
        if len(self._resumed) < self._max_resumed:
            self._resumed.add(conn)
            self._submit(conn, self._continued)
        else:
            self._waiting.setdefault(caller, deque()).append(conn)

    def resume_all(self) -> None:
        """Continue those that wait, and all later ones at once."""
        self._max_resumed = math.inf
        waiting, self._waiting = self._waiting, {}
        for conn in itertools.chain(*waiting.values()):
            self._submit(conn, self._continued)

    def submit(self, conn: Any) -> None:
        """Serve a request of a connection on the next free thread."""
        self._submit(conn, self._new)

    def _submit(self, conn: Any, conns: deque[Any]) -> None:
        conns.append(conn)
        self._busy += 1
        if self._busy > self._started < self._size:
            self._started += 1
            threading.Thread(target=self._run, name=f"a2a-request-{self._started}", daemon=True).start()
        self._queue.put(True)

    def release(self, conn: Any) -> None:
        """A request of a connection has been served."""
        self._busy -= 1
        if conn in self._resumed:
            self._resumed.remove(conn)
            if self._waiting:
                caller = next(iter(self._waiting))
                conns = self._waiting.pop(caller)
                self.resume(conns.popleft(), caller)
                if conns:
                    self._waiting[caller] = conns

    def contended(self) -> bool:
        """Whether requests or streams wait for a thread; on any thread."""
        return self._busy > self._size or bool(self._waiting)

    def _run(self) -> None:
        while self._queue.get():
            try:
                conn = self._begun.popleft()
            except IndexError:
                conn = self._new.popleft()
            self._serve(conn)

    def shutdown(self, wait: bool) -> None:
        """End each thread after what it serves. Connections that are submitted later get new threads."""
        started, self._started = self._started, 0
        for _ in range(started):
            self._queue.put(False)


class BufferedThreadWorker(gthread.ThreadWorker):  # type: ignore[misc]
    """The worker class. Its limits are those of the served app, or the defaults of `Limits`.

    ``Limits.header_timeout`` is the time for the head of a request, ``body_idle_timeout`` and ``body_timeout`` limit
    the time for its body, and ``write_timeout`` the time in which a client reads nothing of a response, all in seconds.
    HTTP/2 and uwsgi connections are served as by gunicorn's own threaded worker, with a timeout for each read and write.
    """

    limits: Limits = Limits()
    nr: int
    nr_conns: int
    alive: bool
    _next_beat = 0.0
    #: Those of all workers; None without the hooks of `a2a_sync.gunicorn`.
    a2a_connections: ConnectionCounts | None = None
    _pausing = True
    _tls: ssl.SSLContext | None = None
    _tls_until = 0.0

    def init_process(self) -> None:
        self._incoming: dict[_Connection, IncomingRequest] = {}
        self._received = 0
        self._writing: dict[_Connection, None] = {}
        #: Outcomes of requests that a thread has finished while the response is still being sent, by connection.
        self._finished: dict[_Connection, Any] = {}
        #: Connections whose responses have paused, and occupy no thread.
        self._paused: dict[_Connection, _Paused] = {}
        self._lingering: dict[ClientSocket, tuple[float, int]] = {}
        self._next_sweep = 0.0
        self.heads: Heads = Heads(self.cfg)
        self._sites: weakref.WeakSet[Site] = weakref.WeakSet()
        self.worker_connections: int = connection_limit(self.cfg.worker_connections)
        super().init_process()

    def run(self) -> None:
        self._read_limits()
        if self.cfg.is_ssl:
            self.tls()  # the worker does not start without certificates
        try:
            super().run()
        except SystemExit:
            self.method_queue.run_callbacks(None, 100_000)
            raise
        finally:
            # The app is closed next, and nothing continues paused streams: they wait for their end on threads.
            self._pausing = False
            self.tpool.resume_all()
            for conn in list(self._paused):
                self._resume(conn)

    @property
    def request_threads(self) -> int:
        """How many requests are served at once at most."""
        return int(self.cfg.threads)

    def get_thread_pool(self) -> RequestThreads:
        return RequestThreads(self.request_threads, self.serve)

    def serve(self, conn: Any) -> None:
        """Serve a request on a pool thread."""
        outcome: Any = False
        try:
            outcome = self.handle(conn)
        except BaseException:
            self.log.exception("Error handling request")
        finally:
            self.method_queue.defer(self.finish_request, conn, _Outcome(outcome))

    def notify(self) -> None:
        """Report to the master process that the worker is alive, at most four times a second: it is a system call.

        Called in each turn of the main thread, in which it accepts one connection where there are other workers.
        """
        if self.a2a_connections is not None:
            self.a2a_connections.set(self, self.nr_conns if self.alive else None)
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + _SWEEP_INTERVAL
            super().notify()

    def _read_limits(self) -> None:
        """Use the limits of the app; with several apps inside another framework, the largest value of each limit.

        Apps inside another framework are not known before their first request.
        """
        sites = [self.wsgi] if isinstance(self.wsgi, Site) else served()
        for site in sites:
            if site not in self._sites:
                self._sites.add(site)
                self.limits = Limits(
                    **{name: max(getattr(one.limits, name) for one in self._sites) for name in _LIMITS}
                )

    def tls(self) -> ssl.SSLContext:
        """The certificates of the server. They are read from their files again after a minute: they are renewed while it runs."""
        now = time.monotonic()
        if now >= self._tls_until:
            self._tls_until = now + _CERTIFICATE_AGE
            try:
                self._tls = ssl_context(self.cfg)
            except (OSError, ValueError):
                if self._tls is None:
                    raise
                self.log.exception("the certificates cannot be read again; those in memory stay in use")
        assert self._tls is not None
        return self._tls

    @property
    def header_timeout(self) -> float:
        """The most seconds in which the head of a request has to arrive."""
        return self.limits.header_timeout

    # -- receiving --

    def accept(self, listener: socket.socket) -> None:
        """Accept connections, and receive their requests without occupying a pool thread.

        Several in a turn: behind a crowd of new connections, the last one would wait for as many turns of the main thread. Only one where
        there are other workers, which get some of them then, and no more than half of those that are left: a worker that is full closes
        connections whose requests it has not received.
        """
        if self.cfg.workers > 1:
            self._let_others_accept()
            self._accept_one(listener)
            return
        left = min(_ACCEPTED_IN_TURN, (self.worker_connections - self.nr_conns) // 2)
        while self._accept_one(listener) and left > 1:
            left -= 1

    def _let_others_accept(self) -> None:
        """Pause for a moment if another worker has clearly fewer connections: it may not have got the processor yet.

        Kept-alive connections stay where they were accepted, so a worker with most of them would be busy and another one idle.
        """
        counts = self.a2a_connections
        if counts is not None and self.nr_conns > (least := counts.least()) + 1 + least // 8:
            time.sleep(_ACCEPT_PAUSE)

    def _accept_one(self, listener: socket.socket) -> bool:
        """Accept a connection; False where none waits, or it cannot be accepted."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._evict()
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return False
        self.nr_conns += 1
        self.enqueue_req(_Connection(self, client, address, listener.getsockname()))
        return True

    def on_client_socket_readable(self, conn: Any, client: Any) -> None:
        """Receive the next request of a kept-alive connection.

        Called by the poller; evicted connections are ignored.
        """
        if not conn.evicted:
            super().on_client_socket_readable(conn, client)

    def enqueue_req(self, conn: Any) -> None:
        """Serve the next request of a connection as soon as it has arrived."""
        if conn.initialized or not conn.buffered:
            # At least a part of the request has arrived, usually all of it; `handle` reads it.
            self.tpool.submit(conn)
        else:
            self._incoming[conn] = IncomingRequest(self.limits.max_body_bytes)
            self._receive(conn, None)

    def handle(self, conn: Any) -> Any:
        """Serve a request on a pool thread.

        Returns False for an incomplete request, which the main thread then receives, and for a response that is `paused`.
        """
        if conn.buffered and not conn.arrived and conn.paused is None:
            unreader = conn.parser.unreader
            data = unreader.take_buffered()
            if not is_whole(data):
                try:
                    data += conn.sock.read_now(_FIRST_READ)
                except OSError:
                    pass  # no data, or a broken connection, which `_receive` detects
                if not is_whole(data):
                    conn.first_bytes = data
                    return False
            conn.sock.received = True
            unreader.unread(data)
        conn.arrived = False
        keepalive = super().handle(conn)
        if conn.buffered:
            conn.parser.free_body()
        if conn.buffered and conn.paused is None and (rest := conn.sock.take_unread()):
            # The beginning of the next request.
            buffer = conn.parser.unreader.buf
            buffer.seek(0, io.SEEK_END)
            buffer.write(rest)
        return keepalive

    def handle_request(self, req: Any, conn: Any) -> bool:
        """As in gunicorn; the response of a buffered connection may be paused, and is continued by the next call."""
        # A load balancer names its client before the first request only, and gunicorn's threaded worker does not keep it.
        req.proxy_protocol_info = conn.named_client = req.proxy_protocol_info or conn.named_client
        if not conn.buffered:
            return bool(super().handle_request(req, conn))
        exchange = self._exchange(req, conn) if conn.paused is None else conn.paused.exchange
        conn.paused = None
        try:
            body, unread = next(exchange)
            conn.paused = _Paused(body, unread, exchange)
        except StopIteration as end:
            return bool(end.value)
        return False

    def _exchange(self, req: Any, conn: _Connection) -> _Exchange:
        """Respond to a request as gunicorn does, with the response of `Parser.create`."""
        environ: dict[str, Any] = {}
        response = None
        try:
            self.cfg.pre_request(self, req)
            started = datetime.now()
            response, environ = conn.parser.create(req)
            environ["wsgi.multithread"] = True
            self._count(response)
            body = self.wsgi(environ, response.start_response)
            try:
                if isinstance(body, environ["wsgi.file_wrapper"]):
                    response.write_file(body)
                else:
                    if pauses := isinstance(body, PausableBody):
                        body.allow_pauses(self.tpool.contended)
                    for data in body:
                        if data or not pauses:
                            response.write(data)
                            data = b""  # it may be large, and what is unread of it is parked
                            if pauses and conn.sock.full and self._pausing:
                                yield body, True
                        elif self._pausing:
                            yield body, False
                        else:
                            body.forbid_pauses()
                response.close()
            finally:
                self.log.access(response, req, environ, datetime.now() - started)
                if hasattr(body, "close"):
                    body.close()
            return not response.should_close()
        except OSError:
            raise
        except (Exception, SystemExit):
            if response is None or not response.headers_sent:
                raise
            # An error page would become a part of the response that has begun.
            self.log.exception("Error handling request")
            util.close_graceful(conn.sock)
            return False
        finally:
            try:
                self.cfg.post_request(self, req, environ, response)
            except Exception:
                self.log.exception("Exception in post_request hook")

    def _count(self, response: Response) -> None:
        """Count a request, and let its response close the connection where it must not be used again."""
        self.nr += 1
        if self.nr >= self.max_requests:
            if self.alive:
                self.log.info("Autorestarting worker after current request.")
            self.alive = False
        if not self.alive or not self.cfg.keepalive or len(self.keepalived_conns) >= self.max_keepalived:
            response.force_close()

    def _receive(self, conn: _Connection, _: Any) -> None:
        """Read the bytes that have arrived, at most about `STEP`. Also called by the poller."""
        incoming = self._incoming.get(conn)
        if incoming is None:
            return  # dropped in favour of another connection after the poller had reported both
        left = STEP
        try:
            while not incoming.complete and left > 0:
                data = conn.sock.read_now(64 * 1024)
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
        elif incoming.too_many_chunks:
            self._drop(conn, _TOO_MANY_CHUNKS)
        elif incoming.complete:
            self._dispatch(conn, incoming)
        elif not conn.registered:
            conn.registered = True
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._receive, conn))

    def _feed(self, conn: _Connection, incoming: IncomingRequest, data: bytes) -> None:
        incoming.feed(data)
        self._received += len(data)
        conn.received_bytes += len(data)
        if incoming.awaits_continue and not incoming.complete:
            incoming.awaits_continue = False
            try:
                conn.sock.sendall(_CONTINUE)
            except OSError:
                self._drop(conn)
        while self._received > _MAX_RECEIVED_BYTES and len(self._incoming) > 1:
            self._drop(next(iter(self._incoming)), _TIMED_OUT)

    def _dispatch(self, conn: _Connection, incoming: IncomingRequest) -> None:
        """Hand a received request to the thread pool."""
        self._stop_receiving(conn, served=True)
        conn.set_request(incoming)
        self.tpool.submit(conn)

    def _stop_receiving(self, conn: _Connection, *, served: bool = False) -> None:
        self._incoming.pop(conn, None)
        if conn.registered:
            conn.registered = False
            self.poller.unregister(conn.sock)
        if not served:
            self._received -= conn.received_bytes
            conn.received_bytes = 0

    def _drop(self, conn: _Connection, answer: bytes = b"") -> None:
        """Close a connection without serving its request; `answer` is written first, without blocking."""
        self._stop_receiving(conn)
        self.nr_conns -= 1
        if answer:
            with suppress(OSError):
                conn.sock.write_now(answer)
        conn.close(graceful=bool(answer))

    def _evict(self) -> None:
        """Close the connections that have waited longest for a complete request, to accept new ones."""
        idle_since = {conn: incoming.started for conn, incoming in self._incoming.items()}
        idle_since.update((conn, conn.timeout - self.cfg.keepalive) for conn in self.keepalived_conns)
        count = max(1, self.worker_connections // _EVICTED_SHARE)
        for conn in sorted(idle_since, key=idle_since.__getitem__)[:count]:
            if conn in self._incoming:
                self._drop(conn)
            else:
                conn.evicted = True
                self.keepalived_conns.remove(conn)
                self.poller.unregister(conn.sock)
                self.nr_conns -= 1
                conn.close()

    # -- answering --

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        """Whether the connection can be reused. It is closed if an unread body does not arrive within 50 ms."""
        return bool(keepalive) and bool(conn.parser.finish_body(deadline=time.monotonic() + 0.05))

    def finish_request(self, conn: Any, fs: Any) -> None:
        """Continue with a connection that its pool thread has finished with. Called on the main thread.

        The rest of an incomplete request is received; else the connection is reused or closed when its response is
        sent.
        """
        self.tpool.release(conn)
        self._received -= conn.received_bytes
        conn.received_bytes = 0
        if conn.first_bytes is not None:
            data, conn.first_bytes = conn.first_bytes, None
            incoming = self._incoming[conn] = IncomingRequest(self.limits.max_body_bytes)
            self._feed(conn, incoming, data)
            if conn in self._incoming:
                self._receive(conn, None)
        elif conn.paused is not None:
            self._paused[conn] = conn.paused
            if conn.paused.unread:
                self._resume(conn)
            else:
                conn.paused.body.resume_when_woken(partial(self.method_queue.defer, self._resume, conn))
        elif conn in self._writing:
            self._finished[conn] = fs
        else:
            super().finish_request(conn, fs)

    def _resume(self, conn: _Connection) -> None:
        """Continue a paused response on a pool thread, unless its next write would wait for the client. Called on the main thread."""
        paused = self._paused.get(conn)
        # A wake-up may belong to an earlier pause. A worker that stops has nothing that would continue the response later.
        if paused is not None and not (paused.unread and conn.sock.full and self._pausing):
            del self._paused[conn]
            self.tpool.resume(conn, paused.body.caller)

    def send_when_writable(self, conn: _Connection) -> None:
        """Send the parked bytes of a connection whenever its socket is writable. Called on the main thread."""
        if conn not in self._writing:
            self._writing[conn] = None
            self.poller.register(conn.sock, selectors.EVENT_WRITE, partial(self._flush, conn))

    def _flush(self, conn: _Connection, _: Any) -> None:
        try:
            done = conn.sock.flush()
        except OSError:
            conn.sock.abort()
            done = True
        paused = self._paused.get(conn)
        if paused is not None and paused.unread:
            self._resume(conn)
        if done:
            del self._writing[conn]
            self.poller.unregister(conn.sock)
            fs = self._finished.pop(conn, None)
            if fs is not None:
                super().finish_request(conn, fs)

    # -- closing --

    def linger(self, sock: ClientSocket) -> None:
        """Close a connection when its client has closed its end, after `_LINGER_SECONDS` seconds at the latest.

        Closing a socket with unread bytes resets the connection, and the client may lose the response (RFC 9112 section
        9.6).
        """
        try:
            sock.end_writing()
            self.poller.register(sock, selectors.EVENT_READ, self._read_lingering)
        except (OSError, ValueError, KeyError):
            sock.close()
            return
        self._lingering[sock] = (time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES)
        if len(self._lingering) > _MAX_LINGERING:
            self._close_lingering(next(iter(self._lingering)))

    def _read_lingering(self, sock: Any) -> None:
        if sock not in self._lingering:
            return  # closed in favour of another connection after the poller had reported both
        until, left = self._lingering[sock]
        try:
            read = len(os.read(sock.fileno(), min(STEP, left)))
        except BlockingIOError:
            return
        except OSError:
            read = 0
        if not read or left <= read:
            self._close_lingering(sock)
        else:
            self._lingering[sock] = (until, left - read)

    def _close_lingering(self, sock: ClientSocket) -> None:
        del self._lingering[sock]
        self.poller.unregister(sock)
        sock.close()

    # -- time limits --

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """As in gunicorn; paused streams are checked as often as time limits."""
        super().wait_for_and_dispatch_events(min(timeout, _SWEEP_INTERVAL) if self._paused else timeout)

    def murder_pending(self) -> None:
        """Close connections that have exceeded a time limit of gunicorn or of this worker.

        Called in each iteration of the main loop.
        """
        if self.nr_conns >= self.worker_connections:
            self._evict()
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_INTERVAL
            super().murder_pending()
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
        for conn, paused in list(self._paused.items()):
            if not paused.unread and paused.body.is_due(now):
                self._resume(conn)
        for sock in [sock for sock, (until, _) in self._lingering.items() if until < now]:
            self._close_lingering(sock)
        self._abort_excess()

    def _abort_excess(self) -> None:
        """Reset the connections that have not read for longest while too many bytes are parked."""
        excess = sum(conn.sock.parked_bytes for conn in self._writing) - _MAX_PARKED_BYTES
        for conn in sorted(self._writing, key=lambda conn: conn.sock.progress):
            if excess <= 0:
                break
            excess -= conn.sock.parked_bytes
            conn.sock.abort()

    def _is_late(self, incoming: IncomingRequest, now: float) -> bool:
        if not self.alive and now - incoming.last_received > (_STOP_TIMEOUT if incoming.data else 0):
            return True
        spent = now - incoming.started
        if not incoming.head_end:
            return spent > self.limits.header_timeout
        return now - incoming.last_received > self.limits.body_idle_timeout or spent > self.limits.body_timeout
