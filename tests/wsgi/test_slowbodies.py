"""A body that drips ends with its connection, and holds no thread for longer than it may."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from werkzeug.serving import make_server

from a2a_sync import A2AApp, Agent, Limits
from a2a_sync.wsgi import slowbodies
from a2a_sync.wsgi.slowbodies import SlowBodies, Watch
from tests.engine import PATIENCE, eventually


class Line:
    """A connection that remembers being cut."""

    def __init__(self) -> None:
        self.was_cut = threading.Event()

    def cut(self) -> None:
        self.was_cut.set()


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
            thread.join(PATIENCE)
            server.server_close()


def drip(line: socket.socket, piece: bytes) -> None:
    """Send piece after piece until the other side has closed, which is an error."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        line.sendall(piece)
        pause.wait(0.02)
        readable, _, _ = select.select([line], [], [], 0)
        if readable and not line.recv(1000):
            raise ConnectionResetError


@pytest.mark.parametrize("framing", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
def test_a_client_that_is_never_silent_and_never_done_is_cut_off(framing: str) -> None:
    piece = b"1\r\nx\r\n" if "chunked" in framing else b"x"
    with (
        serving(Limits(body_timeout=0.3, body_idle_timeout=30)) as address,
        socket.create_connection(address, timeout=PATIENCE) as line,
    ):
        line.sendall(f"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{framing}\r\n\r\n".encode())
        with pytest.raises(ConnectionError):
            drip(line, piece)


def test_what_takes_too_long_is_cut_and_what_was_read_is_not() -> None:
    bodies = SlowBodies(0.1)
    slow, quick = Line(), Line()
    bodies.end(bodies.begin(quick))
    bodies.begin(slow)

    assert slow.was_cut.wait(PATIENCE)
    assert not quick.was_cut.is_set()
    bodies.close()


def threads_since(others: set[threading.Thread]) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "a2a-bodies" and one not in others]


def test_the_thread_ends_when_it_is_closed_and_comes_back_when_it_is_needed() -> None:
    others = set(threading.enumerate())
    bodies = SlowBodies(60, Watch())
    assert not threads_since(others), "making it starts nothing"
    for _ in range(2):
        bodies.end(bodies.begin(Line()))
        assert len(threads_since(others)) == 1
        bodies.close()
        eventually(lambda: not threads_since(others))


def test_many_apps_share_one_thread_and_each_has_its_own_time() -> None:
    others = set(threading.enumerate())
    watch = Watch()
    patient = [SlowBodies(600, watch) for _ in range(20)]
    waiting = [Line() for _ in patient]
    for bodies, line in zip(patient, waiting, strict=True):
        bodies.begin(line)
    hasty, slow = SlowBodies(0.1, watch), Line()
    hasty.begin(slow)

    assert len(threads_since(others)) == 1
    assert slow.was_cut.wait(PATIENCE)
    assert not any(line.was_cut.is_set() for line in waiting)
    hasty.close()
    assert len(threads_since(others)) == 1, "the others are still watched"
    for bodies in patient:
        bodies.close()
    eventually(lambda: not threads_since(others))


def test_what_was_idle_is_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowbodies, "_LINGER", 0.0)
    bodies = SlowBodies(0.1, Watch())
    bodies.end(bodies.begin(Line()))
    eventually(lambda: not bodies.watched)
    slow = Line()
    bodies.begin(slow)
    assert slow.was_cut.wait(PATIENCE)


def test_a_forked_child_watches_nothing_of_its_parents() -> None:
    bodies = SlowBodies(0.1)
    parents = Line()
    bodies.begin(parents)
    bodies.renew()
    own = Line()
    bodies.begin(own)

    assert own.was_cut.wait(PATIENCE)
    bodies.close()
