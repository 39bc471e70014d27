"""``a2a-sync serve --grpc``: gRPC in each worker of gunicorn, its drain, its health, and the kill of a worker."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

from a2a_sync import A2AApp, Client, Retry, SQLiteStore, TaskState  # noqa: E402
from a2a_sync.cli import main  # noqa: E402
from a2a_sync.stores.base import Owner  # noqa: E402
from tests.cli.test_live import TIMEOUT, process, read_until  # noqa: E402
from tests.engine import eventually  # noqa: E402
from tests.grpc.agent import Worker, serving  # noqa: E402
from tests.live import free_port  # noqa: E402

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
        (["--grpc", ":50051", "--gevent"], "does not work with --gevent"),
    ],
)
def test_options_that_cannot_work_are_refused(options: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["serve", "tests.cli.agents:Actor", *options])
    assert done.exit_code == 2
    assert text in done.output
