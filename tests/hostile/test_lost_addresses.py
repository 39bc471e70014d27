"""Clients whose address a server may lose do not pass for a proxy: they reset connections, or come through a load balancer."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from a2a_sync import Client
from tests.hostile.slow import abandon
from tests.live import gunicorn, gunicorn_gevent, uvicorn
from tests.wsgi import JSON_HEADERS, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]
#: The header by which a proxy at 127.0.0.1 names the caller.
NAMED = {"X-Client-Subject": "CN=ada"}


def sending() -> bytes:
    """A request that names a caller."""
    body = rpc("SendMessage", message("hi"))
    lines = [f"{name}: {value}" for name, value in {"Host": "x", **JSON_HEADERS, **NAMED}.items()]
    return "\r\n".join(["POST / HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


@pytest.mark.parametrize("serve", [gunicorn, gunicorn_gevent], ids=["threads", "gevent"])
@pytest.mark.parametrize("pipelined", [False, True], ids=["one by one", "pipelined"])
def test_all_requests_through_a_load_balancer_have_the_address_of_its_client(
    serve: Callable[..., AbstractContextManager[Any]], pipelined: bool
) -> None:
    # From the second request on, the threaded worker took the address of the load balancer, which is that of the proxy.
    options = ["--proxy-protocol", "v1", "--keep-alive", "75"]
    with (
        serve("tests.hosts.sites.asgi_site:proxied_app", *options) as server,
        Client(server.url, headers=NAMED) as proxy,
        socket.create_connection(server.address, timeout=10) as balancer,
        balancer.makefile("rb") as answers,
    ):
        balancer.sendall(b"PROXY TCP4 198.51.100.9 127.0.0.1 1234 80\r\n" + sending() * (3 if pipelined else 1))
        for number in range(3):
            if number and not pipelined:
                balancer.sendall(sending())
            assert b" 401 " in answers.readline()
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.lower().partition(b":")
                if name == b"content-length":
                    length = int(value)
            answers.read(length)
        proxy.send("hi")
        assert proxy.list_tasks().total_size == 1


def test_a_reset_connection_is_not_one_of_a_trusted_proxy() -> None:
    request = sending()
    with uvicorn("tests.hosts.sites.asgi_site:proxied") as server, Client(server.url, headers=NAMED) as proxy:
        for _ in range(50):
            stranger = socket.create_connection(server.address, timeout=10, source_address=("127.0.0.9", 0))
            # The second request keeps the server from reading the reset before the first one is answered.
            stranger.sendall(2 * request)
            abandon(stranger)
        proxy.send("hi")
        assert proxy.list_tasks().total_size == 1
