"""Servers that send faster than their response is read: webhooks, key sets and clients end it, and other greenlets go on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress

import pytest

from a2a_sync import Client, Retry, URLGuard
from a2a_sync.errors import TransportTimeoutError
from a2a_sync.outbound.http import NoResponseError, Outbound
from tests.live import ROOT

pytestmark = pytest.mark.timeout(90)
#: Seconds that a call may take; and how long a server sends, which is longer than any call may take.
LIMIT, FLOOD = 2.0, 15.0


def compressed_comments() -> tuple[bytes, bytes]:
    """A stream that is compressed, and a chunk of it that becomes eight megabytes of comments."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    begin, comments = (
        packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH) for text in (b":\n\n", b":\n\n" * 2_700_000)
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n" % (len(begin), begin), b"%x\r\n%b\r\n" % (len(comments), comments)


#: What comes first, and what is repeated.
FLOODS = {
    "compressed": compressed_comments(),
    "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"x: y\r\n" * 5000),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 5000),
}


def flood(listener: socket.socket, kind: str) -> None:
    """Answer one connection after the other, until the peer has closed it or a time is over."""
    first, again = FLOODS[kind]
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(FLOOD)
            connection.recv(65536)
            connection.sendall(first)
            end = time.monotonic() + FLOOD
            while time.monotonic() < end:
                connection.sendall(again)


@pytest.fixture(params=list(FLOODS))
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """The kind and the port of a server in a process of its own: one of this process would share the interpreter."""
    command = [sys.executable, "-m", "tests.hostile.test_floods", "serve", request.param]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield request.param, int(child.stdout.readline())
        child.kill()


def call(kind: str, port: int) -> None:
    """A post to a webhook, and a call of a client."""
    with suppress(NoResponseError):
        # Its limit of time is longer than that of the test: its limit of bytes comes first.
        Outbound(URLGuard(["127.0.0.1"])).request("POST", f"http://127.0.0.1:{port}/", timeout=FLOOD, max_bytes=1000)
    # The client has a limit of interim responses of its own.
    if kind != "interim":
        with (
            Client.for_endpoint(f"http://127.0.0.1:{port}/", timeout=LIMIT, retry=Retry.off, streaming=True) as client,
            suppress(TransportTimeoutError),
        ):
            client.send("hi")


def test_a_flood_ends_at_the_limits_of_its_reader(server: tuple[str, int]) -> None:
    began = time.monotonic()
    call(*server)
    assert time.monotonic() - began < 2 * LIMIT + 3


def test_other_greenlets_run_during_a_flood(server: tuple[str, int]) -> None:
    """In a separate process: to read data that has arrived gives the thread of gevent's hub no pause."""
    pytest.importorskip("gevent")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    kind, port = server
    command = [sys.executable, "-m", "tests.hostile.test_floods", "call", kind, str(port)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    longest, whole = map(float, done.stdout.split())
    assert longest < 1.5
    assert whole < 2 * LIMIT + 3


def main(action: str, kind: str, port: str = "0") -> None:
    """Serve a flood; or print the longest wait of another greenlet for its turn, and the seconds of `call`."""
    if action == "serve":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            threading.Timer(4 * FLOOD, os._exit, [0]).start()
            flood(listener, kind)
        return
    from gevent import monkey, sleep, spawn

    monkey.patch_all()
    began = last = time.monotonic()
    longest = 0.0
    calling = spawn(call, kind, int(port))
    while not calling.dead:
        sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    print(longest, time.monotonic() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
