"""``a2a-sync serve --grpc``: gRPC in each worker of gunicorn, its drain, its health, and the kill of a worker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # noqa: E402

from a2a_sync import A2AApp, Client, Retry, SQLiteStore, TaskState  # noqa: E402
from a2a_sync.cli import main  # noqa: E402
from a2a_sync.errors import TaskNotFoundError, TransportError  # noqa: E402
from a2a_sync.grpc import GRPCServer  # noqa: E402
from a2a_sync.stores.base import Owner  # noqa: E402
from tests.certificates import Authority  # noqa: E402
from tests.engine import eventually  # noqa: E402
from tests.grpc.agent import Worker, serving  # noqa: E402
from tests.grpc.proxies import nginx  # noqa: E402
from tests.live import free_port  # noqa: E402
from tests.servers.test_commands import TIMEOUT, process, read_until  # noqa: E402

AGENT = """
import os

from a2a_sync import Agent, Message, RequestContext

agent = Agent("counter", description="Counts, and names its process")


@agent.message
def count(message: Message, context: RequestContext):
    yield f"{os.getpid()} "
    for number in range(int(message.text)):
        context.sleep(0.05)
        yield f"{number} "
"""
PATIENT = Retry(max_elapsed=30, initial_backoff=0.02, max_backoff=0.2)


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[tuple[Any, str, str]]:
    """The process, its URL, and the address of its gRPC."""
    (folder / "counter.py").write_text(AGENT)
    port = free_port()
    arguments = ["counter:agent", "--port", "0", "--store", f"sqlite:///{folder / 'tasks.db'}", "--grpc", f":{port}"]
    with process("serve", *arguments, *options, cwd=folder) as child:
        printed = read_until(child, "gRPC: ")
        found = re.search(r"Agent card: (http://127\.0\.0\.1:\d+)/", printed)
        assert found, printed
        yield child, found[1], f"127.0.0.1:{port}"


def health(address: str, service: str = "") -> Any:
    with grpc.insecure_channel(address) as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT).status


def test_both_transports_are_served_and_the_card_lists_them(tmp_path: Path) -> None:
    with serve(tmp_path, "--workers", "2") as (child, url, address):
        with Client(url) as over_http, Client(url, prefer=["GRPC"]) as over_grpc:
            listed = [one.url for one in over_http.card().supported_interfaces if one.protocol_binding == "GRPC"]
            assert listed == [f"http://{address}"] * 2
            task = over_grpc.send("3").task
            assert task.text.split()[1:] == ["0", "1", "2"]
            assert over_http.get_task(task.id).text == task.text
        assert health(address) == health_pb2.HealthCheckResponse.SERVING
        child.send_signal(signal.SIGTERM)
        assert child.wait(TIMEOUT) == 0


def test_a_stopped_server_ends_streams_of_grpc_soon(tmp_path: Path) -> None:
    with serve(tmp_path, "--", "--graceful-timeout", "5") as (child, _, address), Client(f"grpc://{address}") as client:
        stream = client.stream("1000")
        next(iter(stream))
        child.send_signal(signal.SIGTERM)
        assert child.wait(TIMEOUT) == 0


def test_a_stream_whose_worker_is_killed_is_resumed_without_a_lost_or_doubled_event(tmp_path: Path) -> None:
    with serve(tmp_path, "--workers", "2") as (_, _, address):
        with Client(f"grpc://{address}", retry=PATIENT) as client:
            stream = client.stream("400")
            numbers, killed = [], False
            for _event in stream:
                numbers.append(stream.last_event_id)
                text = stream.task.text if stream.task is not None else ""
                if not killed and len(numbers) > 5 and text:
                    os.kill(int(text.split()[0]), signal.SIGKILL)
                    killed = True
            assert killed
            assert stream.task is not None
            assert (stream.task.state, stream.task.status.message.text) == (TaskState.FAILED, "worker lost")
        # One number for each event, from that of the snapshot to the last entry of the log.
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        with closing(SQLiteStore(tmp_path / "tasks.db")) as store:
            assert store.log(Owner(), stream.task.id).version == numbers[-1]


def test_health_names_services_and_readiness() -> None:
    with serving() as server:
        address = f"127.0.0.1:{server.port}"
        for service in ("", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"):
            assert health(address, service) == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            health(address, "other")
        error: Any = unknown.value
        assert error.code() is grpc.StatusCode.NOT_FOUND


def test_the_port_is_encrypted_with_the_options_for_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.issue("127.0.0.1", "localhost"))
    options = ("--grpc-tls-cert", certificate, "--grpc-tls-key", key, "--grpc-tls-ca", str(authority.ca))
    with serve(tmp_path, *options) as (_, url, address):
        with Client(url) as over_http:
            listed = [one.url for one in over_http.card().supported_interfaces if one.protocol_binding == "GRPC"]
            assert listed == [f"https://{address}"] * 2
        named = f"grpcs://localhost:{address.rpartition(':')[2]}"
        with Client(named, verify=str(authority.ca), cert=authority.issue("ada")) as client:
            assert client.send("2").task.text.split()[1:] == ["0", "1"]
        with Client(named, verify=str(authority.ca), retry=None) as client, pytest.raises(TransportError):
            client.send("2")


def test_a_port_behind_a_proxy_listens_at_all_addresses(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    options = ("--grpc", address.replace("127.0.0.1", "0.0.0.0"), "--grpc-url", address, "--grpc-behind-proxy")
    with serve(tmp_path, *options), Client(f"grpc://{address}", retry=PATIENT) as client:
        assert client.send("2").task.text.split()[1:] == ["0", "1"]


def services(address: str) -> list[str]:
    """The services that reflection lists, and that of their methods it knows the messages."""
    with grpc.insecure_channel(address) as opened:
        stub = reflection_pb2_grpc.ServerReflectionStub(opened)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="lf.a2a.v1.A2AService"),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="google.rpc.ErrorInfo"),
        ]
        # A call of its own for each: none lasts for a second.
        listed, found, details = (
            answer for one in asked for answer in stub.ServerReflectionInfo(iter([one]), timeout=TIMEOUT)
        )
        assert b"SendMessageRequest" in b"".join(found.file_descriptor_response.file_descriptor_proto)
        assert b"ErrorInfo" in b"".join(details.file_descriptor_response.file_descriptor_proto)
        return [one.name for one in listed.list_services_response.service]


def test_reflection_lists_the_services_on_request_only() -> None:
    app = A2AApp(Worker())
    with GRPCServer(app, "127.0.0.1:0", reflection=True) as server:
        found = services(f"127.0.0.1:{server.port}")
        server.close(timeout=0)
    app.close(timeout=0)
    assert {"lf.a2a.v1.A2AService", "a2a.v1.A2AService", "grpc.health.v1.Health"} < set(found)
    with serving() as plain, pytest.raises(grpc.RpcError) as refused:
        services(f"127.0.0.1:{plain.port}")
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_silent_call_of_reflection_frees_its_thread() -> None:
    asks = threading.Event()
    app = A2AApp(Worker())
    with app, closing(GRPCServer(app, "127.0.0.1:0", reflection=True)) as server:
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as opened:

            def requests() -> Iterator[Any]:
                asks.wait(TIMEOUT)
                yield reflection_pb2.ServerReflectionRequest(list_services="")

            call = reflection_pb2_grpc.ServerReflectionStub(opened).ServerReflectionInfo(requests(), timeout=TIMEOUT)
            assert call.exception(TIMEOUT).code() is grpc.StatusCode.CANCELLED
            eventually(lambda: server._call_threads._pool.running == 0, "the call without its thread")
            asks.set()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_passes_sends_streams_and_errors(tmp_path: Path) -> None:
    with (
        serving() as server,
        nginx(tmp_path, server.port) as port,
        Client(f"grpc://127.0.0.1:{port}", retry=PATIENT) as client,
    ):
        assert client.send("hi").text == "worker: hi"
        stream = client.stream("count 20")
        numbers = [stream.last_event_id for _ in stream]
        assert numbers == sorted(set(numbers))
        assert stream.task is not None
        assert len(stream.task.text.split()) == 20
        with pytest.raises(TaskNotFoundError):
            client.get_task("0" * 36)


def test_a_store_that_was_deleted_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with serving(A2AApp(Worker(), store=f"sqlite:///{path}")) as server:
        address = f"127.0.0.1:{server.port}"
        assert health(address) == health_pb2.HealthCheckResponse.SERVING
        path.unlink()
        eventually(lambda: health(address) == health_pb2.HealthCheckResponse.NOT_SERVING, "the state")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--grpc", "50051"], "needs the address of a port"),
        (["--grpc", ":0"], "needs the address of a port"),
        (["--grpc-url", "agent.example:443"], "needs the address of a port"),
        (["--grpc", "0.0.0.0:50051"], "with --grpc-url"),
        (["--grpc", "0.0.0.0:50051", "--grpc-url", "a.example:443"], "give --grpc-tls-ca, or --grpc-behind-proxy"),
        (["--host", "::", "--grpc", ":50051", "--grpc-url", "a.example:443"], "other machines reach [::]:50051"),
        (["--grpc-behind-proxy"], "needs the address of a port"),
        (["--grpc", ":50051", "--gevent"], "does not work with --gevent"),
        (["--grpc", ":50051", "--grpc-tls-cert", __file__], "belong together"),
        (["--grpc", ":50051", "--grpc-tls-ca", __file__], "needs --grpc-tls-cert and --grpc-tls-key"),
        (["--grpc", ":50051", "--grpc-tls-cert", "absent.pem"], "does not exist"),
        (["--grpc-reflection"], "needs the address of a port"),
    ],
)
def test_options_that_cannot_work_are_refused(options: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["serve", "tests.cli.agents:Actor", *options])
    assert done.exit_code == 2
    assert text in done.output


def test_an_interceptor_that_waits_for_results_is_refused_with_its_name() -> None:
    done = CliRunner().invoke(main, ["serve", "tests.grpc.agent:intercepted", "--grpc", f":{free_port()}"])
    assert done.exit_code == 2
    assert "--grpc: GRPCServer: the interceptor tests.grpc.agent.plain takes an endpoint" in done.output
