"""gRPC with the JavaScript SDKs: their clients against `GRPCServer`, and our client against their servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

pytest.importorskip("grpc", reason="needs the extra grpc, which `make interop` installs")

from a2a_sync import A2AApp
from a2a_sync.grpc import GRPCServer
from a2a_sync.testing import socket_server
from tests.interopjs.formats import Format03
from tests.interopjs.node import JsClient, JsError, js_client, js_server
from tests.interopjs.server_tests import ServerTests
from tests.live import free_port
from tests.peers.client_tests import ClientTests
from tests.peers.our_agent import AGENT, LIMITS
from tests.peers.record import GRPC_03, GRPC_10, Transport

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


def over(*transports: Transport) -> pytest.MarkDecorator:
    """One client in Node for all tests of a class."""
    return pytest.mark.parametrize("transport", transports, ids=str, scope="class")


# -- their clients, our server ------------------------------------------------------------------------------------------


class Served(ServerTests):
    @pytest.fixture(scope="class")
    @classmethod
    def client(cls, transport: Transport) -> Iterator[JsClient]:
        extended = replace(AGENT.describe(), description="For authenticated callers")
        app = A2AApp(AGENT, limits=LIMITS, push=True, extended_card=extended)
        with (
            app,
            GRPCServer(app, "127.0.0.1:0"),
            socket_server(app) as url,
            js_client(cls.package, url, transport) as client,
        ):
            yield client


@over(GRPC_10, GRPC_03)
class TestNewestClient(Served):
    package = "a2a-newest"


@over(GRPC_03)
class TestClientOf03(Served):
    package, format = "a2a-03", Format03()

    def test_a_finished_task_cannot_be_cancelled_or_continued(self, client: JsClient) -> None:
        task = self.send_task(client, "echo Ada")
        with pytest.raises(JsError) as cancelled:
            client.call("cancelTask", {"id": task["id"]})
        assert cancelled.value.kind == "TaskNotCancelableError"
        # It has no class for a refused message.
        with pytest.raises(JsError, match="UnsupportedOperationError: The task is completed"):
            self.send_task(client, "more", taskId=task["id"])


# -- our client, their servers ------------------------------------------------------------------------------------------


@over(GRPC_10, GRPC_03)
class TestNewestServer(ClientTests):
    name = "official-js"

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls) -> Iterator[str]:
        with js_server("agent_newest.mjs", str(free_port())) as server:
            yield server.url


@over(GRPC_03)
class TestServerOf03(ClientTests):
    name = "official-js-0.3"
    refused_send: ClassVar[dict[str, Any]] = {"return_immediately": True}
    # Its conversion to protobuf makes null a zero.
    data: ClassVar[dict[str, Any]] = {"n": 1, "deep": [{"x": True}]}

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls) -> Iterator[str]:
        with js_server("agent_0_3.mjs", str(free_port())) as server:
            yield server.url
