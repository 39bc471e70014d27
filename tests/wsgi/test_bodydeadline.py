"""A request body that takes too long ends with its connection, and frees the thread of the server."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from werkzeug.serving import make_server

from a2a_sync import A2AApp, Agent, Limits
from a2a_sync.concurrency.alarms import AlarmClock
from a2a_sync.wsgi import bodydeadline
from a2a_sync.wsgi.bodydeadline import BodyDeadline
from tests.engine import TIMEOUT, eventually


class Line:
    """A connection that records its abort."""

    def __init__(self) -> None:
        self.aborted = threading.Event()

    def abort(self) -> None:
        self.aborted.set()


@contextmanager
def serving(limits: Limits) -> Iterator[tuple[str, int]]:
    agent = Agent("echo")
    agent.message(lambda message, context: "yes")
    with A2AApp(agent, limits=limits) as app:
        server = make_server("127.0.0.1", 0, app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield "127.0.0.1", server.port
        finally:
            server.shutdown()
            thread.join(TIMEOUT)
            server.server_close()


def drip(line: socket.socket, piece: bytes) -> None:
    """Send piece after piece until the other side has closed, which is an error."""
    pause = threading.Event()
    for _ in range(int(TIMEOUT / 0.02)):
        line.sendall(piece)
        pause.wait(0.02)
        readable, _, _ = select.select([line], [], [], 0)
        if readable and not line.recv(1000):
            raise ConnectionResetError


@pytest.mark.parametrize("framing", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
def test_the_connection_of_an_endless_body_is_aborted(framing: str) -> None:
    piece = b"1\r\nx\r\n" if "chunked" in framing else b"x"
    with (
        serving(Limits(body_timeout=0.3, body_idle_timeout=30)) as address,
        socket.create_connection(address, timeout=TIMEOUT) as line,
    ):
        line.sendall(f"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{framing}\r\n\r\n".encode())
        with pytest.raises(ConnectionError):
            drip(line, piece)


def test_a_slow_body_is_aborted_and_one_that_was_read_is_not() -> None:
    deadline = BodyDeadline(1.0)
    slow, quick = Line(), Line()
    deadline.end(deadline.begin(quick))
    deadline.begin(slow)

    assert slow.aborted.wait(TIMEOUT)
    assert not quick.aborted.is_set()
    deadline.close()


def threads_since(others: set[threading.Thread]) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "a2a-bodies" and one not in others]


def test_the_thread_ends_on_close_and_starts_again_with_the_next_body() -> None:
    others = set(threading.enumerate())
    deadline = BodyDeadline(60, AlarmClock("a2a-bodies"))
    assert not threads_since(others), "making it starts nothing"
    for _ in range(2):
        deadline.end(deadline.begin(Line()))
        assert len(threads_since(others)) == 1
        deadline.close()
        eventually(lambda: not threads_since(others))


def test_many_apps_share_one_thread_and_each_has_its_own_time_limit() -> None:
    others = set(threading.enumerate())
    checks = AlarmClock("a2a-bodies")
    patient = [BodyDeadline(600, checks) for _ in range(20)]
    waiting = [Line() for _ in patient]
    for deadline, line in zip(patient, waiting, strict=True):
        deadline.begin(line)
    hasty, slow = BodyDeadline(0.1, checks), Line()
    hasty.begin(slow)

    assert len(threads_since(others)) == 1
    assert slow.aborted.wait(TIMEOUT)
    assert not any(line.aborted.is_set() for line in waiting)
    hasty.close()
    assert len(threads_since(others)) == 1, "the others are still checked"
    for deadline in patient:
        deadline.close()
    eventually(lambda: not threads_since(others))


def test_a_deadline_that_was_idle_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodydeadline, "_LINGER", 0.0)
    deadline = BodyDeadline(0.1, AlarmClock("a2a-bodies"))
    deadline.end(deadline.begin(Line()))
    eventually(lambda: not deadline.watched)
    slow = Line()
    deadline.begin(slow)
    assert slow.aborted.wait(TIMEOUT)


def test_a_forked_child_checks_no_body_of_its_parent() -> None:
    deadline = BodyDeadline(0.1)
    parents = Line()
    deadline.begin(parents)
    deadline.renew()
    own = Line()
    deadline.begin(own)

    assert own.aborted.wait(TIMEOUT)
    deadline.close()
