"""gRPC through a proxy that cuts or stalls connections, and servers that start again: nothing is lost, doubled or held."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from a2a_sync import (  # noqa: E402
    A2AApp,
    Agent,
    Client,
    Message,
    RequestContext,
    Retry,
    Task,
    TaskState,
    Timeout,
)
from a2a_sync.card import AgentCard, AgentInterface  # noqa: E402
from a2a_sync.grpc import GRPCServer  # noqa: E402
from a2a_sync.operations import OPERATIONS, AnyCall, interceptor  # noqa: E402
from a2a_sync.server import responses  # noqa: E402
from a2a_sync.types import new_id  # noqa: E402
from tests.engine import eventually  # noqa: E402
from tests.faults.agent import make_app  # noqa: E402
from tests.faults.proxy import Cut, Proxy, proxy  # noqa: E402
from tests.faults.test_streams import shown  # noqa: E402
from tests.grpc.agent import encoded, path, serving  # noqa: E402
from tests.grpc.test_server import busy, held, request, send_data  # noqa: E402
from tests.live import free_port  # noqa: E402
from tests.stopwatch import Stopwatch  # noqa: E402

PATIENT = Retry(max_elapsed=60, initial_backoff=0.002, max_backoff=0.05)
#: The first bytes of every connection.
PREFACE = b"PRI * HTTP/2.0"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GRPCServer]:
    with serving(make_app(store=f"sqlite:///{tmp_path}/t.db")) as one:
        yield one


def address(server: GRPCServer) -> tuple[str, int]:
    return "127.0.0.1", server.port


def card(server: GRPCServer, between: Proxy | None = None, version: str = "1.0") -> AgentCard:
    """The card of the agent, at the proxy or the server itself: it declares that sends may be repeated."""
    url = between.url.replace("http", "grpc", 1) if between else f"grpc://127.0.0.1:{server.port}"
    app: Any = server._site
    listed = AgentInterface(url=url, protocol_binding="GRPC", protocol_version=version)
    return replace(app.agent_card("http://agent.test/"), supported_interfaces=(listed,))


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_stream_cut_at_any_byte_has_every_event_once(
    server: GRPCServer, how: Literal["close", "reset", "half"], version: str
) -> None:
    key = new_id()
    cuts = [Cut(octets=octets, how=how) for octets in (0, 9, 60, 131, 263, 401, 555, 777)]
    with (
        proxy(address(server), *cuts, match=PREFACE) as between,
        Client(card(server, between, version), retry=PATIENT) as client,
        Client(card(server, None, version)) as uncut,
    ):
        events = shown(client, "slowly 40", key)
        assert events == shown(uncut, "slowly 40", key)
        assert len(events) == 43
        assert not between.cuts


def test_a_send_through_cuts_returns_the_stored_task(server: GRPCServer) -> None:
    cuts = [Cut(octets=octets) for octets in (0, 30, 90, 200, 350)]
    with (
        proxy(address(server), *cuts, match=PREFACE) as between,
        Client(card(server, between), retry=PATIENT) as client,
    ):
        task = client.send("slowly 30", history_length=10)
        assert isinstance(task, Task)
        assert task == client.get_task(task.id, history_length=10)
        assert task.text == "".join(f"{number} " for number in range(30))
        assert not between.cuts


def test_a_stalled_connection_counts_as_cut_after_the_read_timeout(server: GRPCServer) -> None:
    with (
        proxy(address(server), Cut(octets=300, how="stall"), match=PREFACE) as between,
        Client(card(server, between), retry=PATIENT, timeout=Timeout(connect=5, read=1, total=60)) as client,
    ):
        with client.stream("slowly 60") as stream:
            numbers = [(event, stream.last_event_id)[1] for event in stream]
        assert stream.task is not None
        assert stream.task.text == "".join(f"{number} " for number in range(60))
        numbered = [number for number in numbers if number is not None]
        assert numbered == sorted(set(numbered))


@contextmanager
def unreachable(server: GRPCServer, operation: str, data: bytes) -> Iterator[Any]:
    """A call of a client that `server` no longer reaches, and that does not reach it after the call."""
    with (
        # gRPC writes the path of a method as it is: nothing is forwarded from the call on.
        proxy(address(server), Cut(octets=0, how="stall"), match=path(operation).encode()) as between,
        grpc.insecure_channel(between.url.removeprefix("http://")) as channel,
    ):
        make = channel.unary_stream if OPERATIONS[operation].streaming else channel.unary_unary
        method = make(path(operation))
        call = getattr(method, "future", method)(data, timeout=120)
        yield call
        call.cancel()


@contextmanager
def half_open(server: GRPCServer, operation: str, task_id: str = "") -> Iterator[None]:
    """Within, `server` executes a send to the task of a client that it no longer reaches."""
    with unreachable(server, operation, send_data("hold 0", task_id)):
        eventually(lambda: busy(server) == 1, "the call")
        yield


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
def test_the_call_of_a_connection_that_is_half_open_is_ended(operation: str) -> None:
    with serving(make_app(stream_keepalive_interval=0.5)) as one, half_open(one, operation):
        # Its agent goes on for longer than that.
        eventually(lambda: busy(one) == 0, "the end of the call, whose client answers no ping")


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
def test_the_call_of_a_connection_that_is_half_open_frees_its_thread_within_a_second(operation: str) -> None:
    with serving(make_app()) as one, half_open(one, operation):
        watch = Stopwatch()
        eventually(lambda: not held(one), "the call without its thread")
        assert watch.within(1)
        # Nothing is known of the connection yet.
        assert busy(one) == 1


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
def test_a_message_for_a_busy_task_frees_its_thread_within_a_second_too(operation: str) -> None:
    with serving(make_app()) as one, Client(f"grpc://127.0.0.1:{one.port}") as client:
        task = client.send("hold 0", return_immediately=True)
        assert isinstance(task, Task)
        with half_open(one, operation, task.id):
            watch = Stopwatch()
            eventually(lambda: not held(one), "the call without its thread")
            assert watch.within(1)
            # It waits for the task.
            assert busy(one) == 1
            assert len(client.get_task(task.id).history) == 1


class Silent(Agent):
    """Shows a large artifact and asks nothing, until it is cancelled."""

    name = "silent"
    description = "For tests"

    def handle_message(self, message: Message, context: RequestContext) -> Iterator[str]:
        yield "x" * 2_000_000
        context.sleep(120)


#: Operations that read a large task wait for their turn.
_LARGE = ["GetTask", "ListTasks", "CancelTask", "SubscribeToTask"]


@pytest.mark.parametrize("how", ["half open", "cancel", "deadline"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_keeps_a_thread_for_a_second(operation: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_WAIT_SECONDS", 120.0)
    entered = threading.Event()

    @interceptor
    def note(call: AnyCall) -> Generator[AnyCall, Any, Any]:
        if call.operation.name == operation and call.context.peer:
            entered.set()
        return (yield call)

    app = A2AApp(Silent(), push=True, interceptors=[note], extended_card=lambda context: context.card)
    with serving(app) as one, Client(app) as client, ExitStack() as stack:
        task = client.send("hi", return_immediately=True)
        assert isinstance(task, Task)
        eventually(lambda: client.get_task(task.id).text, "the artifact")
        asked: Any = request(operation, task.id)
        if operation == "ListTasks":
            asked = replace(asked, include_artifacts=True)
        budget = app.service.engine.responses
        budget.reserve(1, "")
        entered.clear()
        data = encoded(operation, asked)
        if how == "half open":
            stack.enter_context(unreachable(one, operation, data))
        else:
            opened = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{one.port}"))
            call = opened.unary_stream(path(operation))(data, timeout=1 if how == "deadline" else 60)
            stack.callback(call.cancel)
        assert entered.wait(60)
        watch = Stopwatch()
        if how == "cancel":
            call.cancel()
        eventually(lambda: not held(one), "the call without its thread")
        assert watch.within(1)
        if how == "half open" and operation in _LARGE:
            # Nothing is known of the connection yet.
            assert len(budget._queue) == 1
        elif how != "half open":
            watch = Stopwatch()
            eventually(lambda: not budget._queue and not busy(one), "the end of the call")
            assert watch.within(2 if how == "deadline" else 1)
        budget.release()
        eventually(lambda: not budget._queue and not budget._taken, "the end of what waited")


def test_a_stream_goes_on_at_a_server_that_starts_again(tmp_path: Path) -> None:
    store, port = f"sqlite:///{tmp_path}/t.db", free_port()

    def start(app: A2AApp) -> GRPCServer:
        server = GRPCServer(app, f"127.0.0.1:{port}")
        server.start()
        return server

    with closing(make_app(store=store)) as app, Client(f"grpc://127.0.0.1:{port}", retry=PATIENT) as client:
        server = start(app)
        with client.stream("slowly 60", idempotency_key=new_id()) as stream:
            numbers = [(next(stream), stream.last_event_id)[1] for _ in range(5)]
            server.close(timeout=0)
            server = start(app)
            numbers += [(event, stream.last_event_id)[1] for event in stream]
        server.close(timeout=0)
        assert stream.task is not None
        assert (stream.task.state, len(stream.task.text.split())) == (TaskState.COMPLETED, 60)
        assert numbers == sorted(set(numbers), key=lambda number: number or 0)
