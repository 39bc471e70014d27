"""A gRPC server: callers, errors, limits, threads and its life, with real channels."""

from __future__ import annotations

import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from google.rpc import error_details_pb2, status_pb2  # noqa: E402

from a2a_sync import (  # noqa: E402
    A2AApp,
    AgentHost,
    Client,
    Extension,
    InputRequired,
    Limits,
    Message,
    RateLimit,
    RequestContext,
    Retry,
)
from a2a_sync import types as t  # noqa: E402
from a2a_sync.auth import ApiKeyAuth, BearerAuth, Principal  # noqa: E402
from a2a_sync.auth.schemes import MTLSAuth  # noqa: E402
from a2a_sync.bindings import protobuf  # noqa: E402
from a2a_sync.card import AgentInterface  # noqa: E402
from a2a_sync.codec import by_version  # noqa: E402
from a2a_sync.engine.hub import Waiter  # noqa: E402
from a2a_sync.errors import (  # noqa: E402
    ConnectError,
    InvalidParamsError,
    MalformedResponseError,
    OverloadedError,
    PermissionDeniedError,
    RequestTooLargeError,
    StreamInterruptedError,
    TaskNotFoundError,
    TransportError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from a2a_sync.grpc import TLS, GRPCServer  # noqa: E402
from a2a_sync.multiagent import AgentEvents  # noqa: E402
from a2a_sync.operations import OPERATIONS, AnyCall, Endpoint, interceptor  # noqa: E402
from a2a_sync.server import responses  # noqa: E402
from a2a_sync.server.metrics import Metrics  # noqa: E402
from a2a_sync.testing import wsgi_session  # noqa: E402
from a2a_sync.testing.servers import socket_server  # noqa: E402
from tests.certificates import Authority  # noqa: E402
from tests.engine import Background, eventually  # noqa: E402
from tests.faults.agent import make_app  # noqa: E402
from tests.faults.proxy import proxy  # noqa: E402
from tests.grpc.agent import Worker, channel, client_of, encoded, path, plain, serving  # noqa: E402
from tests.hostile import http2  # noqa: E402
from tests.stopwatch import Stopwatch  # noqa: E402
from tests.test_reference import coverage  # noqa: E402

KNOWN = {"poor": Principal(id="ada")}
MISSING = "0" * 36
SECOND = 1.0


def refusal(call: Any) -> tuple[Any, str, list[str]]:
    """The code, the text and the reasons of a call that fails."""
    with pytest.raises(grpc.RpcError) as failed:
        call()
    return refusal_of(failed.value)


def refusal_of(error: Any) -> tuple[Any, str, list[str]]:
    trailing = dict(error.trailing_metadata() or ())
    reasons = []
    if protobuf.STATUS_DETAILS in trailing:
        for detail in status_pb2.Status.FromString(trailing[protobuf.STATUS_DETAILS]).details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                reasons.append(info.reason)
    return error.code(), error.details(), reasons


# -- callers ----------------------------------------------------------------------------------------------------------


def request(operation: str, task_id: str) -> Any:
    kind = OPERATIONS[operation].request
    if kind is t.SendMessageRequest:
        said = t.Message(role=t.Role.USER, parts=(t.TextPart("more"),), message_id=t.new_id(), task_id=task_id)
        return t.SendMessageRequest(message=said)
    if kind is t.TaskPushNotificationConfig:
        return t.TaskPushNotificationConfig(task_id=task_id, url="https://hooks.example.com/a2a")
    known = {"id": "c-1" if "PushNotification" in operation else task_id, "task_id": task_id}
    members = {name: value for name, value in known.items() if name in kind.__dataclass_fields__}
    return kind(**members)


def test_a_client_sees_the_error_and_its_challenge() -> None:
    with serving(auth=BearerAuth(KNOWN), required_scopes={"*": "use"}) as server:
        with client_of(server) as client, pytest.raises(UnauthenticatedError) as refused:
            client.get_task(MISSING)
        assert refused.value.challenges == ('Bearer realm="agent"',)
        with (
            client_of(server, auth="poor") as client,
            pytest.raises(PermissionDeniedError, match="needs the scope use"),
        ):
            client.get_task(MISSING)


def test_keys_may_be_in_a_header_or_a_cookie() -> None:
    for auth in (ApiKeyAuth({"k": "ada"}, header="X-Key"), ApiKeyAuth({"k": "ada"}, cookie="key")):
        with serving(auth=auth) as server, channel(server) as opened:
            metadata = (("x-key", "k"), ("cookie", "key=k"))
            opened.unary_unary(path("ListTasks"))(b"", metadata=metadata, timeout=10)
            assert refusal(lambda opened=opened: opened.unary_unary(path("ListTasks"))(b"", timeout=10))[2] == [
                "UNAUTHENTICATED"
            ]


def test_a_client_certificate_names_the_caller(tmp_path: Any) -> None:
    authority = Authority(tmp_path)
    callers: list[str] = []

    def identify(subject: str) -> str:
        callers.append(subject)
        return subject

    tls = TLS(*authority.issue("127.0.0.1", "localhost"), client_ca=authority.ca)
    cert = authority.issue("ada", organization="Engines, Ltd")
    app = A2AApp(Worker(), auth=MTLSAuth(identify))
    with serving(app, tls=tls) as server:
        with Client(f"grpcs://localhost:{server.port}", verify=authority.ca, cert=cert) as client:
            assert client.send("hi").text == "worker: hi"
        with (
            Client(f"grpcs://localhost:{server.port}", verify=authority.ca, retry=None) as client,
            pytest.raises(Exception, match="connect"),
        ):
            client.send("hi")
    assert set(callers) == {r"CN=ada,O=Engines\, Ltd"}


# -- what is refused ----------------------------------------------------------------------------------------------------


def test_an_unknown_method_is_unimplemented() -> None:
    with serving() as server, channel(server) as opened:
        code, _, _ = refusal(lambda: opened.unary_unary("/lf.a2a.v1.A2AService/Nothing")(b"", timeout=10))
        assert code is grpc.StatusCode.UNIMPLEMENTED


def test_metadata_that_names_another_version_than_the_method_is_refused() -> None:
    with serving() as server, channel(server) as opened:
        call = opened.unary_unary(path("ListTasks"))
        call(b"", metadata=(("a2a-version", "1.0"),), timeout=10)
        code, text, reasons = refusal(lambda: call(b"", metadata=(("a2a-version", "0.3"),), timeout=10))
        assert (code, reasons) == (grpc.StatusCode.FAILED_PRECONDITION, ["VERSION_NOT_SUPPORTED"])
        assert "send 'a2a-version: 1.0'" in text


def test_an_app_of_one_version_serves_no_other() -> None:
    with serving(protocol_versions=("1.0",)) as server, channel(server) as opened:
        data = b""
        code, _, _ = refusal(lambda: opened.unary_unary(path("GetTask", "0.3"))(data, timeout=10))
        assert code is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_beyond_the_limit_is_refused_and_the_server_goes_on() -> None:
    with serving(limits=Limits(max_body_bytes=1024)) as server, client_of(server, retry=None) as client:
        with pytest.raises(RequestTooLargeError, match="larger than"):
            client.send("x" * 200_000)
        assert client.send("hi").text == "worker: hi"


def test_an_answer_beyond_the_limit_of_the_client_is_refused() -> None:
    with serving() as server, client_of(server, max_response_bytes=100_000, retry=None) as client:
        task = client.send("large 1024")
        assert isinstance(task, t.Task)
        with pytest.raises(MalformedResponseError, match="larger than 100000 bytes"):
            client.get_task(task.id)
        assert client.send("hi").text == "worker: hi"


# -- errors -------------------------------------------------------------------------------------------------------------


def test_errors_have_the_codes_and_reasons_of_the_specification() -> None:
    with serving() as server, client_of(server) as client, channel(server) as opened:
        done = client.send("hi")
        assert isinstance(done, t.Task)

        def code_of(operation: str, data: bytes) -> tuple[Any, list[str]]:
            code, _, reasons = refusal(lambda: opened.unary_unary(path(operation))(data, timeout=10))
            return code, reasons

        get, cancel = encoded("GetTask", t.GetTaskRequest(id=MISSING)), t.CancelTaskRequest(id=done.id)
        hook = encoded("CreateTaskPushNotificationConfig", request("CreateTaskPushNotificationConfig", done.id))
        status = grpc.StatusCode
        assert code_of("GetTask", get) == (status.NOT_FOUND, ["TASK_NOT_FOUND"])
        assert code_of("CancelTask", encoded("CancelTask", cancel)) == (
            status.FAILED_PRECONDITION,
            ["TASK_NOT_CANCELABLE"],
        )
        assert code_of("CreateTaskPushNotificationConfig", hook) == (
            status.FAILED_PRECONDITION,
            ["PUSH_NOTIFICATION_NOT_SUPPORTED"],
        )
        assert code_of("SendMessage", b"") == (status.INVALID_ARGUMENT, ["INVALID_PARAMS"])
        assert code_of("SendMessage", b"\xff\xff") == (status.INVALID_ARGUMENT, ["INVALID_REQUEST"])
        with pytest.raises(TaskNotFoundError):
            client.get_task(MISSING)
        with pytest.raises(InvalidParamsError) as invalid:
            client.list_tasks(page_size=1000)
        assert invalid.value.violations[0].field == "pageSize"


@pytest.mark.parametrize(("column", "version"), [(6, "1.0"), (7, "0.3")])
def test_the_coverage_of_operations_is_as_listed(column: int, version: str) -> None:
    codec = by_version(version, "GRPC")

    def outcome(opened: Any, operation: str) -> str:
        if operation not in protobuf.methods(version):
            return f"not in {version}"
        method = protobuf.methods(version)[operation]
        value = codec.dump_request(OPERATIONS[operation], request(operation, MISSING))
        data = protobuf.encode_request(operation, value, version)
        try:
            if OPERATIONS[operation].streaming:
                list(opened.unary_stream(method.path)(data, timeout=10))
            else:
                opened.unary_unary(method.path)(data, timeout=10)
        except grpc.RpcError as error:
            (reason,) = refusal_of(error)[2]
            return "yes" if reason == "TASK_NOT_FOUND" else reason
        return "yes"

    with serving(push=True) as server, channel(server) as opened:
        assert {row[0]: row[column] for row in coverage()} == {name: outcome(opened, name) for name in OPERATIONS}


def test_an_unexpected_error_has_an_id_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    @interceptor
    def broken(call: AnyCall) -> Generator[AnyCall, Any, Any]:
        yield call
        raise ValueError("secret")

    with serving(interceptors=[broken]) as server, channel(server) as opened:
        code, text, reasons = refusal(lambda: opened.unary_unary(path("ListTasks"))(b"", timeout=10))
        assert (code, reasons) == (grpc.StatusCode.INTERNAL, ["INTERNAL_ERROR"])
        assert "secret" not in text


# -- threads and limits of time -----------------------------------------------------------------------------------------


def busy(server: GRPCServer) -> int:
    """Open streams and blocking sends."""
    assert isinstance(server._site, A2AApp)
    return server._site.open_streams


def held(server: GRPCServer) -> int:
    """Threads that calls hold."""
    return server._call_threads._pool.running


def send_data(text: str, task_id: str = "") -> bytes:
    said = t.Message(role=t.Role.USER, parts=(t.TextPart(text),), message_id=t.new_id(), task_id=task_id)
    return encoded("SendMessage", t.SendMessageRequest(message=said))


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("how", ["deadline", "cancel", "connection"])
def test_a_call_whose_caller_has_left_frees_its_thread(operation: str, how: str) -> None:
    with serving() as server:
        opened = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        data, timeout = send_data("wait"), 0.5 if how == "deadline" else 30
        if operation == "SendMessage":
            call = opened.unary_unary(path(operation)).future(data, timeout=timeout)
        else:
            call = opened.unary_stream(path(operation))(data, timeout=timeout)
        eventually(lambda: busy(server) == 1, "the call")
        eventually(lambda: not held(server), "the call without its thread")
        if how == "cancel":
            call.cancel()
        elif how == "connection":
            opened.close()
        else:
            eventually(call.done, "the deadline")
        watch = Stopwatch()
        eventually(lambda: busy(server) == 0, "the end of the call")
        assert watch.within(SECOND)
        opened.close()


def await_left(server: GRPCServer, *, others: int = 0) -> None:
    """Wait until the server knows that all callers but so many have left."""
    states = server._server._state.rpc_states
    eventually(lambda: sum(one.client != "cancelled" for one in list(states)) == others, "the end of a call")


def counting(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """The calls of a function of `protobuf` from now on."""
    function, calls = getattr(protobuf, name), []

    def counted(*values: Any) -> Any:
        calls.append(values)
        return function(*values)

    monkeypatch.setattr(protobuf, name, counted)
    return calls


def test_a_call_whose_caller_has_left_before_it_has_a_thread_is_not_admitted() -> None:
    admitted: list[Any] = []
    entered, go = threading.Event(), threading.Event()

    def auth(request: Any) -> str:
        admitted.append(request)
        entered.set()
        assert go.wait(60)
        return "ada"

    with serving(auth=auth, threads=1) as server, channel(server) as opened:
        list_tasks = opened.unary_unary(path("ListTasks"))
        first = list_tasks.future(b"", timeout=60)
        assert entered.wait(60)
        second = list_tasks.future(b"", timeout=60)
        eventually(lambda: server._call_threads._pool.waiting == 1, "the second call")
        second.cancel()
        await_left(server, others=1)
        go.set()
        assert first.result(60) is not None
        eventually(lambda: not held(server), "the end of the calls")
        assert len(admitted) == 1


def test_a_large_message_whose_caller_has_left_while_it_waited_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server, channel(server, ("grpc.max_send_message_length", -1)) as opened:
        budget = server._site.service.engine.responses
        budget.reserve(server._site.limits.max_pending_response_bytes, "", response=False)
        parsed = counting(monkeypatch, "parse")
        call = opened.unary_unary(path("SendMessage")).future(send_data("x" * 2_000_000), timeout=60)
        eventually(lambda: len(budget._queue) == 1 and not held(server), "the call without its thread")
        call.cancel()
        await_left(server)
        budget.release()
        eventually(lambda: (budget._taken, budget._owners, budget._places.taken) == (0, {}, 0), "what was reserved")
        assert not parsed


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_an_answer_whose_caller_has_left_is_not_encoded(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Event(), threading.Event()

    @interceptor
    def slow(call: AnyCall) -> Generator[AnyCall, Any, Any]:
        result = yield call
        entered.set()
        assert go.wait(60)
        return result

    with serving(interceptors=[slow]) as server, channel(server) as opened:
        encoded_results = counting(monkeypatch, "encode_result")
        call = opened.unary_unary(path("ListTasks")).future(b"", timeout=1 if how == "deadline" else 60)
        assert entered.wait(60)
        if how == "cancel":
            call.cancel()
        await_left(server)
        go.set()
        eventually(lambda: not held(server), "the end of the call")
        assert not encoded_results


def test_events_whose_reader_has_left_are_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking(Worker):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            for number in range(20):
                context.artifact(str(number)).write("x")
            return InputRequired("and?")

    with serving(A2AApp(Asking())) as server, channel(server) as opened, client_of(server) as client:
        task = client.send("go")
        assert isinstance(task, t.Task)
        encode, times, may_leave = protobuf.encode_result, [], threading.Event()

        def leaving(*values: Any) -> bytes:
            times.append(values)
            assert may_leave.wait(60)
            events.cancel()
            await_left(server)
            return encode(*values)

        monkeypatch.setattr(protobuf, "encode_result", leaving)
        wanted = protobuf.encode_request("SubscribeToTask", {"id": task.id}, "1.0")
        events = opened.unary_stream(path("SubscribeToTask"))(wanted, metadata=[("last-event-id", "1")], timeout=60)
        may_leave.set()
        eventually(lambda: times and not busy(server), "the end of the stream")
        eventually(lambda: not server._sender._open and not held(server), "the end of the call")
        assert len(times) == 1


def test_blocking_sends_hold_no_thread_of_other_calls() -> None:
    limits = Limits(max_open_streams=6, disconnect_check_interval=0.2)
    with serving(limits=limits, threads=2) as server, channel(server) as opened, client_of(server) as client:
        send = opened.unary_unary(path("SendMessage"))
        waiting = [send.future(send_data("wait"), timeout=120) for _ in range(6)]
        # Each of them gives its thread to the next one.
        eventually(lambda: busy(server) == 6, "the sends")
        tasks = client.list_tasks().tasks
        assert len(tasks) == 6
        code, text, reasons = refusal(lambda: send(send_data("wait"), timeout=120))
        assert (code, reasons) == (grpc.StatusCode.RESOURCE_EXHAUSTED, ["RESOURCE_EXHAUSTED"])
        assert "Too many open streams and blocking sends" in text
        for task in tasks:
            client.cancel_task(task.id)
        assert all(one.result(30) for one in waiting)


def test_blocking_sends_that_wait_hold_no_thread() -> None:
    limits = Limits(max_concurrent_runs=200)
    before = set(threading.enumerate())
    with serving(limits=limits) as server, channel(server) as opened, client_of(server) as client:
        send = opened.unary_unary(path("SendMessage"))
        waiting = [send.future(send_data("wait"), timeout=120) for _ in range(200)]
        eventually(lambda: busy(server) == 200, "the sends")
        eventually(lambda: not held(server), "the sends without their threads")
        started = {thread.name for thread in set(threading.enumerate()) - before}
        # A busy machine starts more of them than the 32 of the server, for sends that are slow to begin.
        assert len([name for name in started if name.startswith("a2a-grpc")]) < 150
        for task in client.iter_tasks():
            client.cancel_task(task.id)
        assert all(one.result(30) for one in waiting)


class Turns(Worker):
    """Asks for more, with the second of its messages; the first one takes until `ends` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = threading.Event()

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        if message.text == "first":
            assert self.ends.wait(60)
            return InputRequired("and?")
        return f"{len(message.text)} characters"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["more", "x" * 500_000], ids=["short", "long"])
def test_a_message_for_a_busy_task_waits_without_a_thread(stream: bool, text: str) -> None:
    agent, extension = Turns(), Extension("https://x.test/e")
    before = set(threading.enumerate())
    with serving(A2AApp(agent, extensions=[extension])) as server, client_of(server, retry=None) as client:
        task = client.send("first", return_immediately=True)
        assert isinstance(task, t.Task)
        sends = [Background(lambda: client.send(text, task_id=task.id, stream=stream)) for _ in range(6)]
        eventually(lambda: busy(server) == 6 and not held(server), "the sends without their threads")
        started = {thread.name for thread in set(threading.enumerate()) - before}
        assert len([name for name in started if name.startswith("a2a-grpc")]) < 20
        agent.ends.set()
        answers = []
        for one in sends:
            # The task has ended when the first of them is answered.
            with suppress(UnsupportedOperationError):
                answers.append(one.result().text)
        assert answers == [f"{len(text)} characters"]
        eventually(lambda: busy(server) == 0, "the end of the calls")
        budget = server._site.service.engine.responses
        eventually(lambda: (budget._taken, budget._owners, budget._places.taken) == (0, {}, 0), "what was reserved")


def test_a_message_that_waits_for_a_busy_task_ends_with_its_call() -> None:
    agent = Turns()
    with serving(A2AApp(agent)) as server, channel(server) as opened, client_of(server) as client:
        task = client.send("first", return_immediately=True)
        assert isinstance(task, t.Task)
        for operation in ("SendMessage", "SendStreamingMessage"):
            call = opened.unary_stream(path(operation))(send_data("more", task.id), timeout=60)
            eventually(lambda: busy(server) == 1, "the call")
            call.cancel()
            watch = Stopwatch()
            eventually(lambda: busy(server) == 0, "the end of the call")
            assert watch.within(SECOND)
        agent.ends.set()
        eventually(lambda: client.get_task(task.id).state is t.TaskState.INPUT_REQUIRED, "the end of the run")
        # Nothing of them has reached the task.
        assert [one.text for one in client.get_task(task.id).history] == ["first", "and?"]


def test_blocking_sends_through_a_generator_as_interceptor_hold_no_thread() -> None:
    results = []

    @interceptor
    def note(call: AnyCall) -> Generator[AnyCall, Any, Any]:
        results.append((yield call))
        return results[-1]

    with serving(interceptors=[note]) as server, client_of(server) as client:
        sending = Background(lambda: client.send("wait", stream=False))
        eventually(lambda: busy(server) == 1 and not held(server), "the send without its thread")
        [task] = client.list_tasks().tasks
        client.cancel_task(task.id)
        assert sending.result().id == task.id
        assert [one.state for one in results if isinstance(one, t.Task)] == [t.TaskState.CANCELED] * 2


class Plain:
    """Like `plain`, as an object."""

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        return endpoint


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (plain, "tests.grpc.agent.plain"),
        (Plain(), "tests.grpc.test_server.Plain"),
        (partial(plain), "functools.partial"),
    ],
    ids=["function", "object", "partial"],
)
def test_an_interceptor_that_waits_for_results_is_refused(one: Any, name: str) -> None:
    text = rf"the interceptor {name} takes an endpoint.* with a2a_sync\.operations\.interceptor: result = yield call"
    with A2AApp(Worker(), interceptors=[RateLimit(9), one]) as app, pytest.raises(ValueError, match=text):
        GRPCServer(app)
    with (
        AgentHost({"a": Worker()}) as host,
        AgentHost({"own": A2AApp(Worker(), interceptors=[one]), "b": Worker()}) as apart,
        AgentHost({"all": Worker()}, interceptors=[one]) as shared,
    ):
        host.add("late", Worker(), interceptors=[one])
        for site, agent in ((host, "late"), (apart, "own"), (shared, "all")):
            with pytest.raises(ValueError, match=f"{name} of the agent '{agent}' takes"):
                GRPCServer(site)


@pytest.mark.parametrize("started", [False, True])
def test_an_agent_with_such_an_interceptor_is_not_added_to_a_host(started: bool) -> None:
    with AgentHost({"a": Worker()}) as host, closing(GRPCServer(host, "127.0.0.1:0")) as server:
        if started:
            server.start()
        with pytest.raises(ValueError, match=r"agent.plain of the agent 'late' takes"):
            host.add("late", Worker(), interceptors=[plain])
        own = A2AApp(Worker(), interceptors=[plain])
        with own, pytest.raises(ValueError, match="of the agent 'late' takes"):
            host.add("late", own)
        assert list(host) == ["a"]
        # The name is free.
        late = host.add("late", Worker(), interceptors=[RateLimit(9)])
        server.start()
        cards = late.agent_card("http://agent.test/")
        assert any(one.protocol_binding == "GRPC" for one in cards.supported_interfaces)
        with client_of(server, tenant="late") as client:
            assert client.send("hi").text == "worker: hi"


def test_no_feature_of_the_library_is_refused() -> None:
    events, seen = AgentEvents(), []
    events.on("agent.call", seen.append)
    metrics, auth = Metrics(), BearerAuth({"t": Principal(id="ada", scopes=("use",))})
    watched = events.watch("worker")
    app = A2AApp(
        Worker(),
        auth=auth,
        required_scopes={"*": "use"},
        owner=lambda call: "team",
        metrics=metrics,
        extensions=[Extension("https://x.test/e")],
        limits=Limits(max_history_part_bytes=1000),
        observers=watched["observers"],
        interceptors=[RateLimit(1000), *watched["interceptors"]],
    )
    with serving(app) as server, client_of(server, auth="t") as client:
        sending = Background(lambda: client.send("wait", stream=False))
        eventually(lambda: busy(server) == 1 and not held(server), "the send without its thread")
        assert not seen
        [task] = client.list_tasks().tasks
        client.cancel_task(task.id)
        assert sending.result().state is t.TaskState.CANCELED
        assert events.flush()
    [event] = seen
    assert (event.name, event.agent, event.task_id, event.error) == ("agent.call", "worker", task.id, "")
    labels = {"operation": "SendMessage", "outcome": "ok"}
    assert metrics.registry.get_sample_value("a2a_calls_total", labels) == 1


def test_a_blocking_send_that_waits_has_the_answer_the_headers_and_the_error_of_one_that_does_not() -> None:
    ends = threading.Event()
    extension = Extension("https://x.test/e")

    class Slow(Worker):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            if message.text.startswith("slow"):
                context.update("first")
                assert ends.wait(30)
            return InputRequired("which?")

    with serving(A2AApp(Slow(), extensions=[extension])) as server, channel(server) as opened:
        send = opened.unary_unary(path("SendMessage"))
        metadata = [("a2a-extensions", extension.uri)]
        quick, quick_call = send.with_call(send_data("quick"), metadata=metadata)
        slow_call = send.future(send_data("slow"), metadata=metadata)
        eventually(lambda: busy(server) == 1 and not held(server), "the send without its thread")
        ends.set()
        slow = slow_call.result(30)
        names = [dict(call.initial_metadata()) for call in (quick_call, slow_call)]
        assert names[0] == names[1]
        assert names[0]["a2a-extensions"] == extension.uri
        response = protobuf.methods("1.0")["SendMessage"].response
        answers = [response.FromString(data).task for data in (quick, slow)]
        assert answers[0].status.state == answers[1].status.state
        assert [one.status.message.parts[0].text for one in answers] == ["which?"] * 2


def test_large_answers_of_sends_that_waited_free_what_they_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    # As of a run in another process: the task is read from the store, by one of the threads that send answers.
    monkeypatch.setattr(Waiter, "task", lambda waiter: None)
    ends = threading.Event()

    class Slow(Worker):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            context.update("first")
            assert ends.wait(30)
            return "x" * 3_000_000

    with serving(A2AApp(Slow())) as server, channel(server, ("grpc.max_receive_message_length", -1)) as opened:
        send = opened.unary_unary(path("SendMessage"))
        calls = [send.future(send_data("slow"), timeout=120) for _ in range(8)]
        eventually(lambda: busy(server) == 8 and not held(server), "the sends without their threads")
        ends.set()
        assert all(len(call.result(60)) > 3_000_000 for call in calls)
        eventually(lambda: busy(server) == 0, "the end of the calls")
        budget = server._site.service.engine.responses
        assert (budget._taken, budget._owners, budget._turn) == (0, {}, None)


@pytest.mark.parametrize("last_event_id", [None, "1"])
def test_the_snapshot_of_a_large_task_is_encoded_while_its_bytes_are_reserved(
    monkeypatch: pytest.MonkeyPatch, last_event_id: str | None
) -> None:
    """Streams that were opened ten times a second encoded four snapshots at once, which took 1.9 GB."""
    encode, reserved = protobuf.encode_result, []

    class Asking(Worker):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            context.artifact("a").write("x" * 3_000_000)
            return InputRequired("and?")

    with serving(A2AApp(Asking())) as server, channel(server, ("grpc.max_receive_message_length", -1)) as opened:
        budget = server._site.service.engine.responses
        with client_of(server, retry=None) as client:
            task = client.send("go")
            assert isinstance(task, t.Task)

        def recorded(name: str, value: Any, version: str) -> bytes:
            if "task" in value:
                reserved.append(budget.reserved and budget._turn == threading.get_ident())
            return encode(name, value, version)

        monkeypatch.setattr(protobuf, "encode_result", recorded)
        metadata = [] if last_event_id is None else [("last-event-id", last_event_id)]
        request = protobuf.encode_request("SubscribeToTask", {"id": task.id}, "1.0")
        events = opened.unary_stream(path("SubscribeToTask"))(request, metadata=metadata, timeout=60)
        assert len(next(iter(events))) > 3_000_000
        events.cancel()
        assert reserved == [True]
        eventually(lambda: (budget._taken, budget._owners, budget._places.taken) == (0, {}, 0), "what was reserved")


class Pondering(Worker):
    """Answers with a message and no task, when `answers` is set."""

    direct = True

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()

    def handle_message(self, message: Message, context: RequestContext) -> Message:
        assert self.answers.wait(60)
        return context.agent_message("pong")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["ping", "x" * 2_000_000], ids=["short", "long"])
def test_an_answer_without_a_task_is_waited_for_without_a_thread(stream: bool, text: str) -> None:
    agent = Pondering()
    with (
        serving(A2AApp(agent, limits=Limits(direct_reply_timeout=60.0))) as server,
        client_of(server, retry=None) as client,
    ):
        sends = [Background(lambda: client.send(text, stream=stream)) for _ in range(3)]
        eventually(lambda: busy(server) == 3 and not held(server), "the sends without their threads")
        agent.answers.set()
        answers = [one.result() for one in sends]
        assert [(type(one), one.text) for one in answers] == [(Message, "pong")] * 3
        eventually(lambda: busy(server) == 0, "the end of the calls")
        budget = server._site.service.engine.responses
        eventually(lambda: (budget._taken, budget._owners, budget._places.taken) == (0, {}, 0), "what was reserved")


def test_a_caller_that_leaves_an_agent_without_tasks_leaves_a_task() -> None:
    agent = Pondering()
    with (
        serving(A2AApp(agent, limits=Limits(direct_reply_timeout=60.0))) as server,
        channel(server) as opened,
        client_of(server) as client,
    ):
        call = opened.unary_unary(path("SendMessage")).future(send_data("ping"), timeout=60)
        eventually(lambda: busy(server) == 1 and not held(server), "the send without its thread")
        call.cancel()
        watch = Stopwatch()
        eventually(lambda: busy(server) == 0, "the end of the call")
        assert watch.within(SECOND)
        [task] = client.list_tasks().tasks
        agent.answers.set()
        eventually(lambda: client.get_task(task.id).state is t.TaskState.COMPLETED, "the end of the run")
        assert client.get_task(task.id).status.message.text == "pong"


@pytest.mark.parametrize("refused", [False, True], ids=["in time", "too late"])
def test_a_large_message_waits_for_its_bytes_without_a_thread(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_WAIT_SECONDS", 0.3 if refused else 60.0)
    unbounded = ("grpc.max_receive_message_length", -1)
    with serving() as server, channel(server, unbounded) as opened, client_of(server) as client:
        budget = server._site.service.engine.responses
        budget.reserve(server._site.limits.max_pending_response_bytes, "", response=False)
        calls = [opened.unary_unary(path("SendMessage")).future(send_data("x" * 2_000_000), timeout=60) for _ in "12"]
        if refused:
            for call in calls:
                assert refusal(call.result)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            eventually(lambda: len(budget._queue) == 2 and not held(server), "the calls without their threads")
            assert client.send("hi").text == "worker: hi"
        budget.release()
        if not refused:
            assert all(call.result(60) for call in calls)
        eventually(lambda: (budget._taken, budget._owners, budget._places.taken) == (0, {}, 0), "what was reserved")


def test_a_store_that_fails_at_the_end_of_a_send_that_waits_is_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server, channel(server) as opened, client_of(server) as client:
        call = opened.unary_unary(path("SendMessage")).future(send_data("wait"), timeout=60)
        eventually(lambda: busy(server) == 1 and not held(server), "the send without its thread")
        [task] = client.list_tasks().tasks
        hub = server._site.service.engine.hub
        hub.fail(task.id, TaskNotFoundError("it was removed"))
        code, text, reasons = refusal(call.result)
        assert (code, text, reasons) == (grpc.StatusCode.NOT_FOUND, "it was removed", ["TASK_NOT_FOUND"])
        eventually(lambda: busy(server) == 0, "the end of the call")


def test_the_limit_of_blocking_sends_holds_without_a_thread() -> None:
    with serving(limits=Limits(blocking_send_timeout=0.6)) as server, channel(server) as opened:
        watch = Stopwatch()
        answer = opened.unary_unary(path("SendMessage"))(send_data("wait"), timeout=60)
        assert not protobuf.methods("1.0")["SendMessage"].response.FromString(answer).task.artifacts
        assert watch.within(3)


def test_open_streams_hold_no_thread() -> None:
    before = set(threading.enumerate())
    with serving(threads=4, limits=Limits(max_concurrent_runs=40)) as server, client_of(server) as client:
        streams = [client.stream("wait") for _ in range(30)]
        events = [iter(stream) for stream in streams]
        for one in events:
            assert isinstance(next(one), t.Task)
        assert client.send("hi").text == "worker: hi"
        started = {thread.name for thread in set(threading.enumerate()) - before}
        assert len([name for name in started if name.startswith("a2a-grpc")]) < 15
        for stream in streams:
            assert stream.task is not None
            client.cancel_task(stream.task.id)
        for stream, one in zip(streams, events, strict=True):
            list(one)
            assert stream.task is not None
            assert stream.task.state is t.TaskState.CANCELED


def test_open_streams_are_bounded_for_all_transports_together() -> None:
    app = A2AApp(Worker(), limits=Limits(max_open_streams=2))
    with serving(app) as server, client_of(server, retry=None) as client:
        streams = [client.stream("wait") for _ in range(2)]
        with pytest.raises(OverloadedError, match="open streams"):
            client.stream("wait")
        for stream in streams:
            stream.close()
        eventually(lambda: app.open_streams == 0, "the end of the streams")


def test_streams_of_clients_that_read_nothing_delay_no_other_stream() -> None:
    with serving() as server, channel(server, ("grpc.http2.lookahead_bytes", 1024)) as opened:
        call = opened.unary_stream(path("SendStreamingMessage"))
        stalled = [call(send_data("large 16384"), timeout=60) for _ in range(12)]
        for answers in stalled:
            next(answers)
        eventually(lambda: server._sender._pool.running == 0, "threads that do not wait for these clients")
        with client_of(server) as client:
            stream = client.stream("count 20")
            assert len(list(stream)) > 20
        for answers in stalled:
            answers.cancel()
        eventually(lambda: busy(server) == 0, "the end of the streams")


def test_a_client_that_reads_nothing_is_cut() -> None:
    limits = Limits(write_timeout=0.4, disconnect_check_interval=0.1)
    with serving(limits=limits) as server, channel(server, ("grpc.http2.lookahead_bytes", 1024)) as opened:
        said = t.Message(role=t.Role.USER, parts=(t.TextPart("large 65536"),), message_id=t.new_id())
        call = opened.unary_stream(path("SendStreamingMessage"))
        answers = call(encoded("SendStreamingMessage", t.SendMessageRequest(message=said)), timeout=60)
        next(answers)
        eventually(lambda: busy(server) == 0, "the end of the stream")
        with pytest.raises(grpc.RpcError):
            list(answers)


# -- limits of connections ------------------------------------------------------------------------------------------------


def connected(server: GRPCServer) -> socket.socket:
    """A connection on which nothing is sent."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def received_until_closed(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(4096):
            received += more
    return received


#: The first frames of a client: the preface and empty settings.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def test_a_connection_without_calls_is_closed() -> None:
    with serving(limits=Limits(connection_idle_timeout=0.3)) as server:
        with connected(server) as idle:
            idle.sendall(HELLO)
            # Its last frame says why: GOAWAY (7), graceful.
            assert b"\x07" in received_until_closed(idle)
        with channel(server) as opened:
            states: list[Any] = []
            opened.subscribe(states.append)
            for number in range(1, 3):
                opened.unary_unary(path("ListTasks"))(b"", timeout=30)
                eventually(lambda number=number: states.count(grpc.ChannelConnectivity.READY) >= number, "a connection")
                eventually(lambda: states[-1] is grpc.ChannelConnectivity.IDLE, "its end")


@pytest.mark.parametrize("first", [b"", HELLO], ids=["nothing", "no acknowledgement of the settings"])
def test_a_connection_that_says_too_little_is_closed(first: bytes) -> None:
    with serving(limits=Limits(header_timeout=0.3)) as server, connected(server) as silent:
        silent.sendall(first)
        silent.settimeout(10)
        received_until_closed(silent)


def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    with serving(limits=Limits(max_connections=3)) as server:
        kept = []
        for _ in range(3):
            kept.append(connected(server))
            kept[-1].sendall(HELLO)
            assert kept[-1].recv(9)
        with connected(server) as further:
            assert received_until_closed(further) == b""
        for one in kept:
            one.close()

        def served() -> bool:
            with connected(server) as again:
                again.sendall(HELLO)
                with suppress(ConnectionResetError):
                    return bool(again.recv(9))
                return False

        eventually(served, "a place for a connection")


def test_calls_at_once_on_a_connection_are_bounded_by_the_limits() -> None:
    with serving(limits=Limits(max_open_streams=7), threads=3) as server:
        connection = http2.Connection(server.port)
        with closing(connection.socket):
            # MAX_CONCURRENT_STREAMS
            eventually(lambda: connection.settings.get(3) == 10, "the settings")


@pytest.mark.parametrize("interval", [0.1, 15.0])
def test_pings_of_a_client_on_a_silent_connection_are_bounded_by_the_limits(interval: float) -> None:
    limits = Limits(stream_keepalive_interval=interval, write_timeout=60.0)
    with serving(limits=limits) as server:
        connection = http2.Connection(server.port)
        with closing(connection.socket):
            connection.acknowledge()
            connection.send(http2.whole(1, path("SendStreamingMessage"), send_data("wait")))
            eventually(lambda: busy(server) == 1, "the stream")
            pause = threading.Event()
            for _ in range(8):
                pause.wait(0.15)
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.send(http2.frame(http2.PING, 0, 0, bytes(8)))
            if interval < 1:
                eventually(lambda: connection.pongs == 8, "the answers")
                assert connection.closed is None
            else:
                # ENHANCE_YOUR_CALM
                eventually(lambda: connection.closed == 11, "the end of the connection")


# -- streams ------------------------------------------------------------------------------------------------------------


def numbered(stream: Any) -> list[tuple[int | None, str]]:
    return [(stream.last_event_id, type(event).__name__) for event in stream]


def test_clients_of_both_transports_see_the_same_numbered_events() -> None:
    app = A2AApp(Worker())
    over_http = Client("http://agent.test", session=wsgi_session(app))
    with serving(app) as server, client_of(server) as over_grpc, over_http:
        sent = over_grpc.stream("count 20")
        seen = numbered(sent)
        numbers = [number for number, _ in seen if number is not None]
        assert len(numbers) > 20
        assert numbers == sorted(set(numbers))
        for after in (numbers[0], numbers[len(numbers) // 2]):
            rest = [numbered(one.subscribe(sent.task_id, last_event_id=after)) for one in (over_grpc, over_http)]
            assert rest[0] == rest[1] == [row for row in seen if row[0] is not None and row[0] > after]


def test_streams_of_both_transports_on_a_running_task_have_the_same_numbered_events() -> None:
    app = make_app()
    with serving(app) as server, socket_server(app) as url, client_of(server) as over_grpc, Client(url) as over_http:
        sent = over_grpc.stream("slowly 100")
        first = next(iter(sent))
        assert isinstance(first, t.Task)
        after = sent.last_event_id
        followers = [
            Background(partial(lambda client: numbered(client.subscribe(first.id, last_event_id=after)), client))
            for client in (over_grpc, over_http)
        ]
        assert over_http.get_task(first.id).state is t.TaskState.WORKING
        events = numbered(sent)
        assert len(events) > 100
        assert [follower.result() for follower in followers] == [events, events]


@pytest.mark.parametrize("asked", [True, False])
def test_an_idle_stream_has_heartbeats_for_clients_that_ask_for_numbers_only(asked: bool) -> None:
    limits = Limits(stream_keepalive_interval=0.2, disconnect_check_interval=0.1)
    with serving(limits=limits) as server, channel(server) as opened:
        metadata = ((protobuf.EVENT_NUMBERS, "1"),) if asked else ()
        call = opened.unary_stream(path("SendStreamingMessage"))(send_data("wait"), metadata=metadata, timeout=2)
        answers: list[bytes] = []
        with pytest.raises(grpc.RpcError):
            answers.extend(call)
        assert len(answers) > 1
        assert (b"" in answers) is asked


# -- several agents -----------------------------------------------------------------------------------------------------


def test_the_tenant_or_metadata_names_the_agent_of_a_host() -> None:
    first, second = Worker(), Worker()
    first.name, second.name = "first", "second"
    host = AgentHost({"one": first, "two": second}, root="one")
    with serving(host) as server:
        for name, agent in (("one", "first"), ("two", "second")):
            card = host[name].agent_card("http://agent.test/")
            interfaces = {
                (one.protocol_version, one.tenant)
                for one in card.supported_interfaces
                if one.protocol_binding == "GRPC"
            }
            assert interfaces == {("1.0", name)} | ({("0.3", ""), ("1.0", "")} if name == "one" else set())
            with Client(card, protocol_binding="GRPC", protocol_version="1.0", tenant=name) as client:
                task = client.send("hi")
                assert task.text == f"{agent}: hi"
            # The tenant is the name of the agent, and owns no tasks of its own.
            with Client(host[name]) as local:
                assert isinstance(task, t.Task)
                assert local.get_task(task.id).text == task.text
        with client_of(server) as client:
            assert client.send("hi").text == "first: hi"
            assert client.send("hi", headers={"a2a-agent": "two"}).text == "second: hi"
            assert client.send("hi", tenant="two/sub").text == "second: hi"
            with pytest.raises(InvalidParamsError, match="name one of one, two"):
                client.send("hi", headers={"a2a-agent": "three"})


# -- the life of a server -----------------------------------------------------------------------------------------------


def test_the_card_lists_the_interface_after_those_of_http() -> None:
    app = A2AApp(Worker(), url="https://agent.test/")
    with serving(app) as server:
        listed = [
            (one.protocol_binding, one.protocol_version, one.url) for one in app.agent_card().supported_interfaces
        ]
        assert listed[-2:] == [(("GRPC"), version, f"127.0.0.1:{server.port}") for version in ("1.0", "0.3")]
        assert listed[0] == ("JSONRPC", "1.0", "https://agent.test/")


def test_a_closed_server_ends_streams_and_calls_and_leaves_the_app() -> None:
    app = A2AApp(Worker(), limits=Limits(disconnect_check_interval=0.2))
    with GRPCServer(app, "127.0.0.1:0") as server, client_of(server, retry=None) as client:
        stream = client.stream("wait")
        next(iter(stream))
        blocked = Background(lambda: client.send("wait"))
        eventually(lambda: busy(server) == 2, "both calls")
        watch = Stopwatch()
        server.close(timeout=0.1)
        assert watch.within(3)
        assert server.wait(1)
        # Its stream was ended, or its call was cut before the end had arrived.
        with pytest.raises(StreamInterruptedError):
            blocked.result()
        with Client(app) as local:
            assert local.send("hi").text == "worker: hi"
    app.close(timeout=0)


def test_a_drained_server_finishes_its_calls_and_accepts_no_other() -> None:
    with serving() as server, client_of(server) as client, client_of(server, retry=None) as other:
        sent = Background(lambda: client.send("wait"))
        eventually(lambda: busy(server) == 1, "the call")
        server.drain()
        with pytest.raises(Exception, match="connect"):
            other.send("hi")
        (task,) = Client(server._site).list_tasks().tasks
        Client(server._site).cancel_task(task.id)
        answer = sent.result()
        assert answer.state is t.TaskState.CANCELED


def test_an_address_without_an_agent_is_a_connect_error() -> None:
    with serving() as server:
        port = server.port
    for address in (f"127.0.0.1:{port}", "no-such-host.invalid:50051"):
        with Client(f"grpc://{address}", retry=None) as client, pytest.raises(ConnectError, match="could not connect"):
            client.get_task(MISSING)


def test_a_port_that_is_not_there_is_an_error() -> None:
    app = A2AApp(Worker())
    with pytest.raises(OSError, match=r"gRPC cannot listen at 203\.0\.113\.1:1"):
        GRPCServer(app, "203.0.113.1:1", behind_proxy=True).start()
    app.close(timeout=0)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:0", "[::]:0", "203.0.113.1:1", "agent.example:1", ":1", "ipv4:0.0.0.0:1", "localhost@0.0.0.0:1"],
)
def test_an_address_that_other_machines_reach_needs_client_certificates_or_a_proxy(
    address: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    encrypted = TLS(*authority.issue("localhost"))
    verified = encrypted._replace(client_ca=authority.ca)
    for tls in (None, encrypted):
        with A2AApp(Worker()) as app, pytest.raises(ValueError, match="or behind_proxy=True"):
            GRPCServer(app, address, tls=tls)
    for options in ({"tls": verified}, {"behind_proxy": True}):
        with A2AApp(Worker()) as app:
            GRPCServer(app, address, **options).close()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0", "unix:{}/port", "unix-abstract:{}"])
def test_this_machine_needs_neither(address: str, tmp_path: Path) -> None:
    address = address.format(tmp_path)
    with A2AApp(Worker()) as app, closing(GRPCServer(app, address)) as server:
        server.start()
        target = address if address.startswith("unix") else f"{address.removesuffix('0')}{server.port}"
        with grpc.insecure_channel(target) as opened:
            assert opened.unary_unary(path("SendMessage"))(send_data("hi"), timeout=30)


def test_a_version_of_grpcio_that_lacks_what_is_used_is_refused_when_imported() -> None:
    code = "from grpc import _server\ndel _server._status\nimport a2a_sync.grpc"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ImportError: this grpcio lacks _status; install a version that the extra" in done.stderr


def test_a_server_that_was_forked_after_its_start_is_refused() -> None:
    with serving() as server:
        server._process = os.getppid()
        with pytest.raises(RuntimeError, match="after the fork"):
            server.start()
        server._process = os.getpid()


def test_an_app_without_a_version_of_grpc_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "SERVICES", {"1.0": protobuf.SERVICES["1.0"]})
    with A2AApp(Worker(), protocol_versions=("0.3",)) as app, pytest.raises(ValueError, match="gRPC needs one of"):
        GRPCServer(app)


def test_under_gevent_a_server_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_sync.grpc.server.patched", lambda: True)
    with A2AApp(Worker()) as app, pytest.raises(RuntimeError, match="cannot be served under gevent"):
        GRPCServer(app)


# -- connections that break ---------------------------------------------------------------------------------------------


def test_a_send_through_a_proxy_whose_server_restarts_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "a2a_sync.client")
    app = A2AApp(Worker())
    first, second = GRPCServer(app, "127.0.0.1:0"), GRPCServer(app, "127.0.0.1:0")
    with app, closing(second), first, proxy(("127.0.0.1", first.port)) as between:
        interface = AgentInterface(url=between.url, protocol_binding="GRPC", protocol_version="1.0")
        card = replace(app.agent_card(), supported_interfaces=(interface,))
        with Client(card, retry=Retry(max_backoff=0.5)) as client:
            assert client.send("before").text == "worker: before"
            between.target = None
            first.close(timeout=0)
            again = Background(lambda: client.send("after").text)
            eventually(lambda: "retrying" in caplog.text or not again.waiting, "the first attempt")
            second.start()
            between.target = ("127.0.0.1", second.port)
            assert again.result() == "worker: after"


class Resetting:
    """A server of HTTP/2 that resets the first stream of each connection with a code, as a proxy does."""

    def __init__(self, code: int) -> None:
        self._reset = struct.pack("!HBBBII", 0, 4, 3, 0, 1, code)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="test-resetting", daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), name="test-resetting", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection, connection.makefile("rb") as received:
            connection.sendall(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            received.read(24)
            while True:
                upper, lower, kind, flags, _ = struct.unpack("!HBBBI", received.read(9))
                received.read(upper * 256 + lower)
                if kind == 4 and not flags:
                    connection.sendall(bytes((0, 0, 0, 4, 1, 0, 0, 0, 0)))
                elif kind == 1:
                    connection.sendall(self._reset)
                    return

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize("code", [1, 2, 7, 8, 11])
def test_a_call_that_a_proxy_resets_is_a_broken_connection(code: int) -> None:
    with closing(Resetting(code)) as peer, Client(peer.url, retry=None) as client:
        for call in (lambda: client.send("hi"), lambda: client.get_task(MISSING)):
            with pytest.raises(TransportError, match="broke"):
                call()
