"""A client that resets its connection, so that an ASGI server no longer sees its address, does not pass for a proxy."""

from __future__ import annotations

import socket

import pytest

from a2a_sync import Client
from tests.hostile.slow import abandon
from tests.live import uvicorn
from tests.wsgi import JSON_HEADERS, message, rpc

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]
#: The header by which a proxy at 127.0.0.1 names the caller.
NAMED = {"X-Client-Subject": "CN=ada"}


def test_a_reset_connection_is_not_one_of_a_trusted_proxy() -> None:
    body = rpc("SendMessage", message("hi"))
    lines = [f"{name}: {value}" for name, value in {"Host": "x", **JSON_HEADERS, **NAMED}.items()]
    request = "\r\n".join(["POST / HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
    with uvicorn("tests.hosts.sites.asgi_site:proxied") as server, Client(server.url, headers=NAMED) as proxy:
        for _ in range(50):
            stranger = socket.create_connection(server.address, timeout=10, source_address=("127.0.0.9", 0))
            # The second request keeps the server from reading the reset before the first one is answered.
            stranger.sendall(2 * request)
            abandon(stranger)
        proxy.send("hi")
        assert proxy.list_tasks().total_size == 1
