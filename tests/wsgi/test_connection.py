"""The client's end of a request: noticed when it is gone, never read from, and given back as it was."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

import pytest

from a2a_sync.wsgi.connection import Connection
from tests.stopwatch import Stopwatch


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A server's and a client's end of one TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=5)
        server, _ = listener.accept()
    with client, server:
        yield server, client


def connection(server: object, key: str = "gunicorn.socket", stopping: bool = False) -> Connection:
    return Connection({key: server}, lambda: stopping)


def await_news(server: socket.socket) -> None:
    """Until the server's end of the connection has seen what the client did."""
    assert select.select([server], [], [], 5)[0]


@pytest.mark.parametrize("key", ["gunicorn.socket", "werkzeug.socket"])
def test_a_client_that_stays_is_there(key: str, sockets: tuple[socket.socket, socket.socket]) -> None:
    assert not connection(sockets[0], key).gone()


@pytest.mark.parametrize("key", ["gunicorn.socket", "werkzeug.socket"])
def test_a_client_that_left_is_gone(key: str, sockets: tuple[socket.socket, socket.socket]) -> None:
    server, client = sockets
    client.close()
    await_news(server)

    assert connection(server, key).gone()


def test_a_client_that_closed_its_side_is_gone(sockets: tuple[socket.socket, socket.socket]) -> None:
    server, client = sockets
    client.shutdown(socket.SHUT_WR)
    await_news(server)

    assert connection(server).gone()


def test_a_client_that_was_reset_is_gone(sockets: tuple[socket.socket, socket.socket]) -> None:
    server, client = sockets
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    await_news(server)

    assert connection(server).gone()


def test_looking_reads_nothing_and_does_not_wait(sockets: tuple[socket.socket, socket.socket]) -> None:
    server, client = sockets
    client.sendall(b"the next request")
    await_news(server)
    looked = connection(server)
    watch = Stopwatch()

    assert not any(looked.gone() for _ in range(100))
    assert watch.within(1)
    assert server.recv(100) == b"the next request"


def test_a_socket_that_the_server_closed_is_gone(sockets: tuple[socket.socket, socket.socket]) -> None:
    sockets[0].close()

    assert connection(sockets[0]).gone()


def test_a_stopping_server_counts_as_gone_and_the_client_as_there(sockets: tuple[socket.socket, socket.socket]) -> None:
    stopping = connection(sockets[0], stopping=True)

    assert stopping.gone()
    assert not stopping.closed()


def test_without_a_socket_no_client_counts_as_gone() -> None:
    blind = Connection({}, lambda: False)
    blind.limit(0.1)
    blind.restore()

    assert not blind.gone()


def test_a_server_that_reports_the_disconnect_is_trusted() -> None:
    left = threading.Event()
    connection = Connection({"waitress.client_disconnected": left.is_set}, lambda: False)

    assert not connection.gone()
    left.set()
    assert connection.gone()


def test_a_write_to_a_client_that_does_not_read_fails_in_time(sockets: tuple[socket.socket, socket.socket]) -> None:
    server, _ = sockets
    limited = connection(server)
    limited.limit(0.1)
    watch = Stopwatch()

    with pytest.raises(TimeoutError):
        server.sendall(b"x" * 50_000_000)

    assert watch.within(5)


def test_a_read_from_a_silent_client_fails_in_time(sockets: tuple[socket.socket, socket.socket]) -> None:
    server, _ = sockets
    connection(server).limit(0.05)

    with pytest.raises(TimeoutError):
        server.recv(1)


@pytest.mark.parametrize("before", [None, 7.5])
def test_the_socket_gets_its_own_limit_back(before: float | None, sockets: tuple[socket.socket, socket.socket]) -> None:
    server, _ = sockets
    server.settimeout(before)
    limited = connection(server)

    limited.limit(0.1)
    limited.limit(0.2)
    limited.restore()
    assert server.gettimeout() == before

    server.settimeout(3)
    limited.restore()
    assert server.gettimeout() == 3


def test_a_limit_never_set_takes_none_away(sockets: tuple[socket.socket, socket.socket]) -> None:
    server, _ = sockets
    server.settimeout(7.5)

    connection(server).restore()

    assert server.gettimeout() == 7.5


def test_limits_on_a_closed_socket_are_no_error(sockets: tuple[socket.socket, socket.socket]) -> None:
    limited = connection(sockets[0])
    sockets[0].close()

    limited.limit(0.1)
    limited.restore()

    assert limited.gone()


def test_a_connection_that_is_cut_is_over_for_both_and_may_be_cut_again(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    server, client = sockets
    cut = connection(server)

    cut.abort()
    cut.abort()

    assert client.recv(1) == b""
    assert server.recv(1) == b""
    Connection({}, lambda: False).abort()


# -- the last answer ----------------------------------------------------------------------------------------------------

LAST = [
    {"HTTP_CONNECTION": "close"},
    {"HTTP_CONNECTION": "TE, Close"},
    {"SERVER_PROTOCOL": "HTTP/1.0"},
]
NOT_LAST = [
    {},
    {"HTTP_CONNECTION": "keep-alive"},
    {"SERVER_PROTOCOL": "HTTP/1.1"},
    {"SERVER_PROTOCOL": "HTTP/1.0", "HTTP_CONNECTION": "Keep-Alive"},
]


@pytest.mark.parametrize("environ", LAST)
def test_the_server_does_not_wait_for_more_from_a_client_that_wanted_one_answer(
    environ: dict[str, str], sockets: tuple[socket.socket, socket.socket]
) -> None:
    server, client = sockets
    Connection({"gunicorn.socket": server, **environ}, lambda: False).shutdown_read()
    server.settimeout(5)
    assert server.recv(1) == b""
    server.sendall(b"the whole answer")
    server.close()
    assert client.recv(100) == b"the whole answer"
    assert client.recv(100) == b""


@pytest.mark.parametrize("environ", NOT_LAST)
def test_a_connection_that_is_kept_is_read_on(
    environ: dict[str, str], sockets: tuple[socket.socket, socket.socket]
) -> None:
    server, client = sockets
    Connection({"gunicorn.socket": server, **environ}, lambda: False).shutdown_read()
    client.sendall(b"next")
    server.settimeout(5)
    assert server.recv(100) == b"next"


def test_reading_no_more_is_harmless_where_there_is_nothing_to_read(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    Connection({"HTTP_CONNECTION": "close"}, lambda: False).shutdown_read()
    server, _ = sockets
    gone = Connection({"gunicorn.socket": server, "HTTP_CONNECTION": "close"}, lambda: False)
    server.close()
    gone.shutdown_read()
