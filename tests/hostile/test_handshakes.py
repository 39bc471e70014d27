"""Servers that never end the handshake of TLS: requests to them end at their time limit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from a2a_sync import Client, TransportTimeoutError
from a2a_sync.outbound.http import NoResponseError, Outbound
from a2a_sync.outbound.urlguard import URLGuard
from tests.live import ROOT

#: Records of TLS with a HelloRequest each, which OpenSSL ignores, and reads the next one in the same call.
FLOOD = b"\x16\x03\x03\x00\x04\x00\x00\x00\x00" * 1000
#: Seconds that a server floods, and the limit of a request.
LASTS, LIMIT = 20.0, 1.0


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server that floods its clients."""
    until = time.monotonic() + LASTS

    def flood(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(LASTS)
            connection.recv(4096)
            while time.monotonic() < until:
                connection.sendall(FLOOD)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=flood, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


def post(port: int) -> None:
    Outbound(URLGuard(["127.0.0.1"])).request("POST", f"https://127.0.0.1:{port}/", body=b"{}", timeout=LIMIT)


def test_a_webhook_is_given_up(port: int) -> None:
    began = time.monotonic()
    with pytest.raises(NoResponseError, match="not established in time"):
        post(port)
    assert time.monotonic() - began < LIMIT + 3


@pytest.mark.parametrize("guard", [None, URLGuard(["127.0.0.1"])], ids=["no guard", "guard"])
def test_a_call_of_a_client_is_given_up(port: int, guard: URLGuard | None) -> None:
    began = time.monotonic()
    with (
        Client(f"https://127.0.0.1:{port}", timeout=LIMIT, retry=None, url_guard=guard) as client,
        pytest.raises(TransportTimeoutError),
    ):
        client.send("hi")
    assert time.monotonic() - began < LIMIT + 3


def test_other_greenlets_go_on(port: int) -> None:
    """In a separate process: such a handshake gives the thread of gevent's hub no pause."""
    pytest.importorskip("gevent")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.hostile.test_handshakes", str(port)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < LIMIT + 3


def main(port: int) -> None:
    """The seconds until another greenlet has had its turn, and the handshake is over."""
    from gevent import monkey, sleep, spawn

    monkey.patch_all()

    def give_up() -> None:
        with suppress(NoResponseError):
            post(port)

    began = time.monotonic()
    posting = spawn(give_up)
    sleep(0)  # the handshake begins, and this greenlet waits for its turn
    posting.join()
    print(time.monotonic() - began)


if __name__ == "__main__":
    main(int(sys.argv[1]))
