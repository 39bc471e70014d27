"""System C: the whole of protocol 0.3, server and client. The ids are those of docs/reference/feature-comparison.md."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid

import pytest

from a2a_sync import (
    A2AApp,
    Agent,
    AgentCard,
    AgentSkill,
    Artifact,
    Client,
    DataPart,
    Failed,
    FilePart,
    InputRequired,
    Limits,
    MemoryStore,
    Message,
    PushOptions,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskNotFoundError,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    TextPart,
    errors,
)
from a2a_sync import operations as op
from a2a_sync import types as t
from a2a_sync.auth import BearerAuth
from a2a_sync.card import AgentCapabilities, AgentInterface, AgentProvider, create_agent_card
from a2a_sync.engine.stamp import status_event
from a2a_sync.errors import AgentError, InvalidParamsError, TaskNotCancelableError
from a2a_sync.stores.base import Owner
from a2a_sync.testing import wsgi_session
from a2a_sync.types import AuthenticationInfo, from_dict, new_id
from tests.client.peer import peer
from tests.engine import TIMEOUT, Background, Gate, eventually, texts
from tests.parity.wire import HEADERS, METHODS, app_of, handler, send_params
from tests.push.receiver import LOOPBACK, receiving
from tests.wsgi import rpc

S = TaskState


# -- methods ------------------------------------------------------------------------------------------------------------


def test_c1_all_ten_methods_are_implemented(wire):
    extended = create_agent_card("tested", "And more", skills={"more": "More"})
    gate = Gate()

    def held(message, context):
        if message.text != "hold":
            return handler(message, context)
        gate.block()
        return "held"

    app = wire(held, push=LOOPBACK, extended_card=extended, auth=BearerAuth({"t": "me"}))
    headers = {**HEADERS, "Authorization": "Bearer t"}

    def call(method, params):
        return app.post(rpc(method, params), headers).result

    def frames(method, params):
        with app.stream(method, params, headers=headers) as stream:
            assert stream.headers["Content-Type"].startswith("text/event-stream"), method
            yield from (frame.json["result"] for frame in stream.frames() if frame.field("data") is not None)

    task = call("message/send", send_params("ask"))
    assert (task["kind"], task["status"]["state"]) == ("task", "input-required")
    config = {"taskId": task["id"], "pushNotificationConfig": {"url": "http://127.0.0.1:9/", "id": "p"}}
    assert call("tasks/pushNotificationConfig/set", config)["pushNotificationConfig"]["id"] == "p"
    one = {"id": task["id"], "pushNotificationConfigId": "p"}
    assert call("tasks/pushNotificationConfig/get", one)["taskId"] == task["id"]
    listed = call("tasks/pushNotificationConfig/list", {"id": task["id"]})
    assert [known["pushNotificationConfig"]["id"] for known in listed] == ["p"]
    assert call("tasks/pushNotificationConfig/delete", one) is None
    assert call("tasks/pushNotificationConfig/list", {"id": task["id"]}) == []
    assert call("tasks/get", {"id": task["id"]})["id"] == task["id"]
    assert call("tasks/cancel", {"id": task["id"]})["status"]["state"] == "canceled"
    assert call("agent/getAuthenticatedExtendedCard", {})["description"] == "And more"

    streamed = list(frames("message/stream", send_params("stream")))
    assert [event["kind"] for event in streamed] == ["task", *["artifact-update"] * 3, "status-update"]
    running = call("message/send", {**send_params("hold"), "configuration": {"blocking": False}})
    gate.wait()
    again = frames("tasks/resubscribe", {"id": running["id"]})
    assert (now := next(again))["id"] == running["id"]
    assert now["status"]["state"] == "working"
    gate.open.set()
    assert list(again)[-1]["status"]["state"] == "completed"


def test_c2_unknown_methods_are_refused(wire):
    app = wire(handler, push=LOOPBACK)
    for method in METHODS:
        assert app.call(method).json.get("error", {}).get("code") != -32601, method
    for unknown in ("no/such", "tasks/list", "Message/Send", "message/send/"):
        assert app.call(unknown).error["code"] == -32601, unknown
    assert app.call("").error["code"] == -32600


# -- interfaces ---------------------------------------------------------------------------------------------------------


class Counting:
    """An executor with a parameter."""

    def __init__(self, step):
        self.step = step
        self.cancelled = []

    def execute(self, context):
        yield TaskStatusUpdateEvent(status=TaskStatus(state=S.WORKING))
        yield TaskArtifactUpdateEvent(artifact=Artifact(parts=(TextPart(str(self.step)),)))
        if context.message.text == "ask":
            yield TaskStatusUpdateEvent(status=TaskStatus(state=S.INPUT_REQUIRED))

    def cancel(self, context):
        self.cancelled.append(context.task_id)


def test_c3_an_executor_is_an_object_or_a_function(wire):
    executor = Counting(step=5)
    app = wire(executor)
    task = app.call("message/send", send_params("go")).result
    assert (task["artifacts"][0]["parts"][0]["text"], task["status"]["state"]) == ("5", "completed")
    waiting = app.call("message/send", send_params("ask")).result
    app.call("tasks/cancel", {"id": waiting["id"]})
    assert executor.cancelled == [waiting["id"]]
    assert (
        wire(handler).call("message/send", send_params("hi")).result["artifacts"][0]["parts"][0]["text"] == "echo: hi"
    )


def test_c4_the_context_of_a_run_has_ids_message_task_and_metadata(wire):
    seen = {}

    def look(message, context):
        seen.update(task=context.task, ids=(context.task_id, context.context_id), metadata=dict(context.metadata))
        return "ok"

    task = wire(look).call("message/send", {**send_params("hi"), "metadata": {"k": 1}}).result
    assert seen["ids"] == (task["id"], task["contextId"]) == (seen["task"].id, seen["task"].context_id)
    assert (seen["metadata"], texts(seen["task"].history)) == ({"k": 1}, ["user: hi"])


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_c5_every_reader_sees_a_write_immediately(wire, sqlite, store):
    kept = MemoryStore() if store == "memory" else sqlite()
    app = wire(handler, store=kept)
    with A2AApp(echoing(), store=kept) as other, Client(other) as reader, Client(app_of(app)) as writer:
        writes = [Background(lambda n=n: writer.send(f"{n}")) for n in range(8)]
        ids = {write.result().id for write in writes}
        assert len(ids) == 8
        assert {task.id for task in reader.iter_tasks()} == ids
        assert {reader.get_task(id).text for id in ids} == {f"echo: {n}" for n in range(8)}
        gone = next(iter(ids))
        kept.delete(Owner(), gone)
        with pytest.raises(TaskNotFoundError):
            reader.get_task(gone)
    kept.close()


def echoing():
    agent = Agent("reader")
    agent.message(handler)
    return agent


def started(store):
    """Start a run on a new task; return its token."""
    message = Message(role=Role.USER, parts=(TextPart("go"),), task_id=new_id(), context_id="c")
    request = op.RunRequest(message=message)
    events = [status_event(request, state) for state in (S.SUBMITTED, S.WORKING)]
    return store.start_run(Owner(), request, events, create=True).token


def pieces(writer):
    return [Message(role=Role.AGENT, parts=(TextPart(f"{writer} {n}"),)) for n in range(3)]


class PausedBatch(list):
    """A batch of events whose second iteration waits for a gate: the store measures it first, then writes it."""

    def __init__(self, events, gate):
        super().__init__(events)
        self._gate = gate
        self._measured = False

    def __iter__(self):
        if self._measured:
            self._gate.block()
        self._measured = True
        return super().__iter__()


def test_c5_writes_to_the_memory_store_are_serialized():
    store, gate = MemoryStore(), Gate()
    token = started(store)
    first = Background(lambda: store.append(token, PausedBatch(pieces("one"), gate)))
    gate.wait()
    written = threading.Event()
    second = Background(lambda: store.append(token, pieces("two")) and written.set())
    assert not written.wait(0.2)
    gate.open.set()
    first.result()
    second.result()
    entries = store.log(Owner(), token.task_id).entries
    assert [entry.number for entry in entries] == list(range(1, 9))
    assert [entry.event.text for entry in entries[2:]] == [
        f"{writer} {n}" for writer in ("one", "two") for n in range(3)
    ]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_c5_a_batch_of_events_is_written_atomically(sqlite, store):
    kept = MemoryStore() if store == "memory" else sqlite()
    token = started(kept)
    writers = [Background(lambda w=w: [kept.append(token, pieces(f"{w}")) for _ in range(10)]) for w in range(4)]
    while any(writer.waiting for writer in writers):
        seen = kept.log(Owner(), token.task_id).entries
        assert (len(seen) - 2) % 3 == 0
    for writer in writers:
        writer.result()
    entries = kept.log(Owner(), token.task_id).entries
    assert [entry.number for entry in entries] == list(range(1, 4 * 10 * 3 + 3))
    texts = [entry.event.text for entry in entries[2:]]
    for start in range(0, len(texts), 3):
        writer = texts[start].split()[0]
        assert texts[start : start + 3] == [f"{writer} {n}" for n in range(3)]


def test_c6_early_and_late_subscribers_receive_the_whole_task(wire):
    gate = Gate()

    def slow(message, context):
        yield "a"
        gate.block()
        yield "b"

    app = app_of(wire(slow))
    with Client(app) as one, Client(app) as two:
        with one.stream("go") as stream:
            gate.wait()
            events = iter(stream)
            task_id = next(events).id
            with two.subscribe(task_id) as late:
                gate.open.set()
                assert [task.state for task in (late.task,) if task] in ([], [S.WORKING])
                list(late)
                assert late.task.artifacts[0].text == "ab"
            list(events)
            assert stream.task.artifacts == late.task.artifacts
        with pytest.raises(TaskNotFoundError):
            two.subscribe("unknown")
        stream.close()  # closing twice is allowed


def test_c7_an_app_is_configured_with_executor_store_cards_and_webhooks(wire):
    card = create_agent_card("a", "b", skills={"x": "X"})
    extended = create_agent_card("a", "c", skills={"x": "X"})
    app = A2AApp(Counting(1), card=card, store="memory:", push=LOOPBACK, extended_card=extended)
    with app, Client(app) as client:
        assert client.send("go").text == "1"
        capabilities = client.card().capabilities
        assert (capabilities.push_notifications, capabilities.extended_agent_card) == (True, True)
        assert client.extended_card().description == "c"
    with pytest.raises(TypeError, match="needs card="):
        A2AApp(Counting(1))


def test_c8_webhooks_are_stored_by_task_and_id_and_called(wire):
    with receiving() as receiver:
        app = app_of(wire(handler, push=LOOPBACK, limits=Limits(store_poll_interval=0.2)))
        with Client(app) as client:
            task = client.send("ask")
            credentials = AuthenticationInfo(scheme="Bearer", credentials="s3cret")
            config = TaskPushNotificationConfig(url=receiver.url, token="t0ken", authentication=credentials)
            made = client.create_push_config(task.id, config)
            assert made.id
            assert client.list_push_configs(task.id) == [made]
            assert client.send("go", task_id=task.id).state is S.COMPLETED
            posts = receiver.await_posts(lambda posts: any("completed" in json.dumps(p.body).lower() for p in posts))
            headers = {name.lower(): value for name, value in posts[0].headers.items()}
            assert headers["x-a2a-notification-token"] == "t0ken"
            assert headers["authorization"] == "Bearer s3cret"
            client.delete_push_config(task.id, made.id)
            assert client.list_push_configs(task.id) == []


def test_c9_json_rpc_ids_are_strings_integers_or_null(wire):
    app = wire(handler)
    task = app.call("message/send", send_params("hi")).result
    for id in (None, "a", 7):
        found = app.call("tasks/get", {"id": task["id"]}, id=id).json
        assert found == {"jsonrpc": "2.0", "id": id, "result": task}
        unknown = app.call("tasks/get", {"id": "unknown"}, id=id).json
        assert unknown.keys() == {"jsonrpc", "id", "error"}
        assert (unknown["id"], unknown["error"]["code"]) == (id, -32001)
        assert unknown["error"]["message"] == "Task not found: unknown"
    for body, code in ((b'{"jsonrpc":"2.0","id":[1],"method":"x"}', -32600), (b"{", -32700)):
        refused = app.post(body, HEADERS).json
        assert (refused["id"], refused["error"]["code"]) == (None, code)


ERRORS = {
    "parse": (errors.JSONParseError, -32700),
    "invalid_request": (errors.InvalidRequestError, -32600),
    "method_not_found": (errors.MethodNotFoundError, -32601),
    "invalid_params": (errors.InvalidParamsError, -32602),
    "internal": (errors.InternalError, -32603),
    "server": (errors.OverloadedError, -32000),
    "task_not_found": (errors.TaskNotFoundError, -32001),
    "task_not_cancelable": (errors.TaskNotCancelableError, -32002),
    "push": (errors.PushNotificationNotSupportedError, -32003),
    "unsupported": (errors.UnsupportedOperationError, -32004),
    "content_type": (errors.ContentTypeNotSupportedError, -32005),
    "invalid_agent_response": (errors.InvalidAgentResponseError, -32006),
    "extended_card": (errors.ExtendedAgentCardNotConfiguredError, -32007),
    "unauthenticated": (errors.UnauthenticatedError, -31401),
    "unauthorized": (errors.PermissionDeniedError, -31403),
}


@pytest.mark.parametrize("name", ERRORS)
def test_c10_each_error_round_trips_with_its_code(wire, name):
    cls, code = ERRORS[name]
    assert (cls.jsonrpc_code, bool(cls().message)) == (code, True)

    def refusing(endpoint):
        def refuse(call):
            raise cls("why")

        return refuse

    app = wire(handler, interceptors=[refusing])
    error = app.call("tasks/get", {"id": "t"}).error
    assert (error["code"], error["message"]) == (code, "why")
    session = wsgi_session(app_of(app))
    with (
        Client("http://agent.test", protocol_version="0.3", session=session, retry=None) as client,
        pytest.raises(AgentError) as raised,
    ):
        client.get_task("t")
    assert (raised.value.jsonrpc_code, raised.value.message) == (code, "why")
    assert type(raised.value) is cls


# -- types --------------------------------------------------------------------------------------------------------------

MESSAGE = Message(
    role=Role.USER,
    parts=(
        TextPart("hi", metadata={"k": 1}),
        FilePart(raw=b"\x00", filename="a.bin", media_type="application/octet-stream"),
        FilePart(url="https://example.com/a", filename="a", media_type="text/plain"),
        DataPart({"n": 1}),
    ),
    context_id="c",
    task_id="t",
    reference_task_ids=("r",),
    extensions=("urn:x",),
    metadata={"k": 1},
)
ARTIFACT = Artifact(parts=(TextPart("a"),), name="n", description="d", metadata={"k": 1}, extensions=("urn:x",))
STATUS = TaskStatus(state=S.WORKING, message=MESSAGE)
CONFIG = TaskPushNotificationConfig(
    url="https://example.com/", id="p", task_id="t", token="x", authentication=AuthenticationInfo(scheme="Bearer")
)
TYPES = {
    "message": MESSAGE,
    "task": Task(id="t", context_id="c", status=STATUS, artifacts=(ARTIFACT,), history=(MESSAGE,), metadata={"k": 1}),
    "artifact": ARTIFACT,
    "status-update": TaskStatusUpdateEvent(task_id="t", context_id="c", status=STATUS),
    "artifact-update": TaskArtifactUpdateEvent(
        task_id="t", context_id="c", artifact=ARTIFACT, append=True, last_chunk=True
    ),
    "push": CONFIG,
    "card": AgentCard(
        name="a",
        description="b",
        version="1",
        supported_interfaces=(AgentInterface(url="http://a/", protocol_binding="JSONRPC", protocol_version="0.3"),),
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        skills=(AgentSkill.of("x", "X", examples=["e"], input_modes=["text/plain"]),),
        provider=AgentProvider(organization="o", url="http://o/"),
        documentation_url="http://d/",
        icon_url="http://i/",
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_c11_each_type_round_trips(name):
    value = TYPES[name]
    for version in ("0.3", "1.0"):
        written = json.loads(json.dumps(value.to_dict(version)))
        assert type(value).from_dict(written, version) == value


def test_c11_events_have_a_kind_and_states_know_whether_they_are_terminal():
    for name in ("message", "task", "status-update", "artifact-update"):
        assert from_dict(t.StreamResponse, TYPES[name].to_dict("0.3"), "0.3") == TYPES[name]
        assert TYPES[name].to_dict("0.3")["kind"] == name
    assert {state for state in S if state.terminal} == {S.COMPLETED, S.CANCELED, S.FAILED, S.REJECTED}
    assert {"auth-required", "unspecified"} <= set(S)
    with pytest.raises(InvalidParamsError, match="parts"):
        Message.from_dict({**MESSAGE.to_dict("0.3"), "parts": [{"kind": "hologram"}]}, "0.3")


REQUESTS = {
    "message/send": t.SendMessageRequest(
        message=MESSAGE,
        configuration=t.SendMessageConfiguration(
            accepted_output_modes=("text/plain",), history_length=3, return_immediately=True
        ),
        metadata={"k": 1},
    ),
    "tasks/get": t.GetTaskRequest(id="t", history_length=2),
    "tasks/cancel": t.CancelTaskRequest(id="t", metadata={"k": 1}),
    "tasks/resubscribe": t.SubscribeToTaskRequest(id="t"),
    "tasks/pushNotificationConfig/set": CONFIG,
    "tasks/pushNotificationConfig/get": t.GetTaskPushNotificationConfigRequest(task_id="t", id="p"),
    "tasks/pushNotificationConfig/list": t.ListTaskPushNotificationConfigsRequest(task_id="t"),
    "tasks/pushNotificationConfig/delete": t.DeleteTaskPushNotificationConfigRequest(task_id="t", id="p"),
}


@pytest.mark.parametrize("method", REQUESTS)
def test_c11_the_parameters_of_each_method_round_trip(method):
    request = REQUESTS[method]
    for version in ("0.3", "1.0"):
        written = json.loads(json.dumps(request.to_dict(version)))
        assert type(request).from_dict(written, version) == request


def test_c12_members_are_camel_case_and_absent_ones_are_omitted():
    written = TYPES["artifact-update"].to_dict("0.3")
    assert (written["kind"], written["taskId"], written["lastChunk"]) == ("artifact-update", "t", True)
    bare = TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=ARTIFACT).to_dict("0.3")
    assert not {"append", "lastChunk", "metadata"} & bare.keys()
    message = Message(role=Role.USER, parts=(TextPart("x"),), message_id="m").to_dict("0.3")
    assert message == {
        "kind": "message",
        "messageId": "m",
        "role": "user",
        "parts": [{"kind": "text", "text": "x"}],
    }


def test_c13_ids_are_unique_uuids_ordered_by_time():
    begun = time.time_ns() // 1_000_000
    ids = [new_id() for _ in range(1000)]
    ended = time.time_ns() // 1_000_000
    assert len(set(ids)) == 1000
    made = [uuid.UUID(id) for id in ids]
    assert [str(one) for one in made] == ids
    assert {(one.version, one.variant) for one in made} == {(7, uuid.RFC_4122)}
    assert all(begun <= one.int >> 80 <= ended for one in made)
    # Ordered by time, as far as the clock distinguishes them.
    moments = [one.int >> 64 for one in made]
    assert moments == sorted(moments)
    assert len({one.int & 2**62 - 1 for one in made}) == 1000


# -- the server ---------------------------------------------------------------------------------------------------------


def test_c14_routes_of_card_calls_and_streams(wire):
    app = wire(handler)
    cards = [app.request("GET", path) for path in ("/.well-known/agent.json", "/.well-known/agent-card.json")]
    assert [card.status for card in cards] == [200, 200]
    assert cards[0].json == cards[1].json
    assert app.call("message/send", send_params("hi")).status == 200
    with app.stream("message/stream", send_params("stream"), headers=HEADERS) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert list(stream.frames())
    missing = app.request("GET", "/no/such/path")
    assert (missing.status, missing.json["error"]["code"]) == (404, 404)


def test_c15_a_send_waits_for_the_end_and_the_log_is_independent_of_subscribers(wire):
    gate = Gate()

    def slow(message, context):
        yield "a"
        gate.block()
        yield "b"

    app = wire(slow)
    at_once = {**send_params("go"), "configuration": {"blocking": False}}
    task = app.call("message/send", at_once).result
    assert task["status"]["state"] in ("submitted", "working")
    gate.wait()
    gate.open.set()
    done = eventually(
        lambda: (now := app.call("tasks/get", {"id": task["id"]}).result)["status"]["state"] == "completed" and now
    )
    assert [part["text"] for part in done["artifacts"][0]["parts"]] == ["ab"]
    assert app.call("message/send", send_params("go")).result["status"]["state"] == "completed"


def test_c16_each_subscriber_receives_each_event_once(wire):
    gate = Gate()

    def slow(message, context):
        gate.block()
        yield "a"
        yield "b"

    app = wire(slow)
    with app.stream("message/stream", send_params("go"), headers=HEADERS) as stream:
        frames = stream.frames()
        task_id = next(frames).json["result"]["id"]
        gate.wait()
        others = [app.stream("tasks/resubscribe", {"id": task_id}, headers=HEADERS) for _ in range(2)]
        heard = [one.frames() for one in others]
        assert {next(one).json["result"]["kind"] for one in heard} == {"task"}
        gate.open.set()
        for one in (frames, *heard):
            events = [frame.json["result"] for frame in one if frame.field("data") is not None]
            artifacts = [event for event in events if event["kind"] == "artifact-update"]
            assert [part["text"] for event in artifacts[:2] for part in event["artifact"]["parts"]] == ["a", "b"]
            assert len({event["artifact"]["artifactId"] for event in artifacts}) == 1
            assert [event.get("append", False) for event in artifacts] == [False, True, False]
            # The last event is the whole artifact.
            assert [part["text"] for part in artifacts[2]["artifact"]["parts"]] == ["ab"]
            ends = [event for event in events if event.get("final")]
            assert ends == events[-1:]
            assert ends[0]["status"]["state"] == "completed"
        for one in others:
            one.close()
    stored = app.call("tasks/get", {"id": task_id}).result
    assert ["".join(part["text"] for part in one["parts"]) for one in stored["artifacts"]] == ["ab"]


def test_c16_an_idle_stream_is_kept_alive(wire):
    gate = Gate()

    def slow(message, context):
        gate.block()
        return "late"

    app = wire(slow, limits=Limits(stream_keepalive_interval=0.02, disconnect_check_interval=0.01))
    with app.stream("message/stream", send_params("go"), headers=HEADERS) as stream:
        frames = stream.frames()
        beats = 0
        for frame in frames:
            beats += frame.field("data") is None
            if beats == 3:
                gate.open.set()
        assert frame.json["result"]["status"]["state"] == "completed"
        assert beats >= 3


def test_c17_resubscribing_to_an_unknown_or_terminal_task_is_refused(wire):
    app = wire(handler)
    unknown = app.stream("tasks/resubscribe", {"id": "unknown"}, headers={**HEADERS, "Accept": "text/event-stream"})
    with unknown:
        assert unknown.headers["Content-Type"].startswith("text/event-stream")
        assert [frame.json["error"]["code"] for frame in unknown.frames()] == [-32001]
    ended = app.call("message/send", send_params("hi")).result
    assert app.call("tasks/resubscribe", {"id": ended["id"]}).error["code"] == -32004


@pytest.mark.parametrize(("length", "kept"), [(None, 4), (0, 0), (1, 1), (3, 3), (9, 4)])
def test_c18_history_length_limits_the_history(wire, length, kept):
    app = wire(lambda message, context: "ok" if len(context.history) > 1 else InputRequired("?"))
    with Client("http://agent.test", session=wsgi_session(app_of(app))) as client:
        task = client.get_task(client.send("two", task_id=client.send("one").id).id)
        got = client.get_task(task.id, history_length=length).history
        assert texts(got) == texts(task.history)[4 - kept :]
    assert app.call("tasks/get", {"id": task.id, "historyLength": -1}).error["code"] == -32602
    if length:  # 0.3 does not distinguish 0 from an absent limit
        assert len(app.call("tasks/get", {"id": task.id, "historyLength": length}).result["history"]) == kept


def test_c19_a_cancel_stops_the_run_and_is_refused_for_terminal_tasks(wire):
    gate, stopped = Gate(), []

    def slow(message, context):
        if message.text == "go":
            context.on_cancel(lambda: stopped.append(context.task_id))
            gate.reached.set()
            context.sleep(TIMEOUT)
        return "ok"

    app = wire(slow)
    task = app.call("message/send", {**send_params("go"), "configuration": {"blocking": False}}).result
    gate.wait()
    assert app.call("tasks/cancel", {"id": task["id"]}).result["status"]["state"] == "canceled"
    assert stopped == [task["id"]]
    assert app.call("tasks/cancel", {"id": task["id"]}).error["code"] == -32002
    done = app.call("message/send", send_params("quick")).result
    assert app.call("tasks/cancel", {"id": done["id"]}).error["code"] == -32002


@pytest.mark.parametrize("member", ["messageId", "role", "parts"])
def test_c20_a_missing_member_of_a_message_is_named(wire, member):
    params = send_params("hi")
    del params["message"][member]
    error = wire(handler).call("message/send", params).error
    assert error["code"] == -32602
    assert f"message.{member}" in error["message"]


def test_c20_a_message_to_an_unknown_or_terminal_task_is_refused(wire):
    app = wire(handler)
    assert app.call("message/send", send_params("x", parts=[])).error["code"] == -32602
    ended = app.call("message/send", send_params("hi")).result
    assert app.call("message/send", send_params("more", taskId=ended["id"])).error["code"] == -32004
    assert app.call("message/send", send_params("more", taskId="unknown")).error["code"] == -32001
    waiting = app.call("message/send", send_params("ask")).result
    other = send_params("more", taskId=waiting["id"], contextId="another")
    assert app.call("message/send", other).error["code"] == -32602


def test_c21_an_exception_of_an_executor_fails_the_task_and_ends_its_streams(wire):
    def broken(message, context):
        yield "a"
        raise RuntimeError("secret")

    app = wire(broken)
    events = [frame["result"] for frame in app.events("message/stream", send_params("go"))]
    assert (events[-1]["status"]["state"], events[-1]["final"]) == ("failed", True)
    assert "secret" not in json.dumps(events)
    public = wire(lambda message, context: Failed("out of stock")).call("message/send", send_params("go")).result
    assert public["status"]["message"]["parts"][0]["text"] == "out of stock"


def test_c22_the_id_of_a_webhook_is_optional_and_its_task_must_exist(wire):
    app = wire(handler, push=LOOPBACK)
    task = app.call("message/send", send_params("ask")).result
    for id in ("one", "two"):
        hook = {"id": id, "url": "http://127.0.0.1:9/"}
        app.call("tasks/pushNotificationConfig/set", {"taskId": task["id"], "pushNotificationConfig": hook})
    first = app.call("tasks/pushNotificationConfig/get", {"id": task["id"]}).result
    assert first["pushNotificationConfig"]["id"] == "one"
    gone = {"id": task["id"], "pushNotificationConfigId": "one"}
    assert app.call("tasks/pushNotificationConfig/delete", gone).result is None
    assert app.call("tasks/pushNotificationConfig/delete", {**gone, "id": "unknown"}).error["code"] == -32001


# -- the client ---------------------------------------------------------------------------------------------------------


def test_c23_a_client_has_every_operation_and_raises_errors(wire):
    app = app_of(wire(handler, push=LOOPBACK))
    with Client("http://agent.test///", protocol_version="0.3", session=wsgi_session(app)) as client:
        assert client.card().name == "tested"
        task = client.send("ask")
        assert client.get_task(task.id).state is S.INPUT_REQUIRED
        config = client.create_push_config(task.id, "http://127.0.0.1:9/")
        assert client.get_push_config(task.id, config.id) == config
        assert client.list_push_configs(task.id) == [config]
        client.delete_push_config(task.id, config.id)
        assert client.cancel_task(task.id).state is S.CANCELED
        with client.stream("stream") as stream:
            assert [type(event) for event in stream][-1] is TaskStatusUpdateEvent
        with pytest.raises(TaskNotCancelableError):
            client.cancel_task(task.id)
        with pytest.raises(TaskNotFoundError), client.subscribe("unknown") as stream:
            list(stream)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_c24_the_sse_parser_accepts_every_framing(newline, size):
    ids = {"taskId": "t", "contextId": "c"}
    updates = [
        {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}},
        {
            "kind": "artifact-update",
            **ids,
            "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "\u2028 x"}]},
        },
        {"kind": "status-update", **ids, "final": True, "status": {"state": "completed"}},
    ]
    lines = [": comment"]
    for number, update in enumerate(updates):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": update}, indent=1, ensure_ascii=False)
        lines += [f"id: {number}", *(f"data: {line}" for line in body.split("\n")), "", "event: ping", ": comment", ""]
    text = newline.join([*lines, ""]).encode()

    def serve(asked, line):
        line.start_stream()
        for start in range(0, len(text), size):
            line.piece(text[start : start + size])
        line.end_stream()

    with (
        peer(serve) as served,
        Client.for_endpoint(served.url, protocol_version="0.3", streaming=True) as client,
        client.stream("go") as stream,
    ):
        events = list(stream)
    assert [event.to_dict("0.3") for event in events] == updates
    assert (stream.text, stream.state) == ("\u2028 x", S.COMPLETED)


WAYS = [(version, binding) for version in ("0.3", "1.0") for binding in ("JSONRPC", "HTTP+JSON")]


@pytest.mark.parametrize(("version", "binding"), WAYS)
def test_c28_two_agents_call_each_other(make, version, binding):
    """Two agents that call each other."""
    apps = {}

    def client_of(name):
        return Client(
            "http://agent.test", protocol_version=version, protocol_binding=binding, session=wsgi_session(apps[name])
        )

    def ping(message, context):
        if message.text == "name":
            return "ping"
        with client_of("pong") as client:
            return client.send("hi").text

    def pong(message, context):
        if message.text == "stream":
            return (piece for piece in ("a", "b"))
        with client_of("ping") as client:
            return f"pong to {client.send('name').text}"

    for name, function in (("ping", ping), ("pong", pong)):
        apps[name] = A2AApp(make(function, name))
    with apps["ping"], apps["pong"], client_of("ping") as one, client_of("pong") as other:
        assert (one.card().name, other.card().name) == ("ping", "pong")
        assert one.send("hi").text == "pong to ping"
        with other.stream("stream") as stream:
            pieces = [event.artifact.text for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
        assert pieces == ["a", "b", "ab"]
        assert other.get_task(stream.task.id).artifacts == stream.task.artifacts


def test_c29_few_dependencies():
    from importlib.metadata import requires

    core = [line for line in requires("a2a-sync") or [] if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0].lower() for line in core}
    assert names == {
        "werkzeug",
        "gunicorn",
        "requests",
        "urllib3",
        "sseclient-py",
        "dataclasses-json",
        "click",
    }


@pytest.mark.parametrize(("version", "binding"), WAYS)
def test_c30_an_endpoint_without_a_card_can_be_called(wire, version, binding):
    app, asked = app_of(wire(handler)), []

    def cardless(environ, start_response):
        asked.append(environ["PATH_INFO"])
        if "well-known" in environ["PATH_INFO"]:
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        return app(environ, start_response)

    for streaming in (False, True):
        with Client.for_endpoint(
            "http://agent.test/",
            protocol_version=version,
            protocol_binding=binding,
            streaming=streaming,
            session=wsgi_session(cardless),
        ) as client:
            task = client.send("hi")
            assert (task.text, client.get_task(task.id).text) == ("echo: hi", "echo: hi")
            with client.stream("stream") as stream:
                pieces = sum(isinstance(event, TaskArtifactUpdateEvent) for event in stream)
            assert (stream.text, pieces) == ("ab", 3 if streaming else 0)
    assert asked
    assert not [path for path in asked if "well-known" in path]


@pytest.mark.parametrize("value", [True, False, None])
def test_c31_members_that_only_0_3_has_can_be_read(value):
    ids = {"taskId": "t", "contextId": "c"}
    capabilities = {"streaming": True, **({} if value is None else {"stateTransitionHistory": value})}
    final = {} if value is None else {"final": value}
    card = {
        "name": "old",
        "description": "d",
        "version": "1",
        "protocolVersion": "0.3.0",
        "skills": [],
        "capabilities": capabilities,
        "defaultInputModes": [],
        "defaultOutputModes": [],
    }

    def serve(asked, line):
        if asked.method == "GET":
            return line.answer({**card, "url": served.url})
        return line.stream(
            {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}},
            {"kind": "status-update", **ids, **final, "status": {"state": "completed"}},
        )

    with peer(serve) as served, Client(served.url) as client:
        assert client.card().capabilities.state_transition_history is value
        with client.stream("go") as stream:
            *_, last = stream
    assert isinstance(last, TaskStatusUpdateEvent)
    assert last.final is value


def test_c32_a_custom_sender_delivers_notifications_with_retries(wire):
    taken, refused = [], []

    def send(notification):
        if not refused:
            refused.append(notification)
            raise ConnectionError("the queue is not there")
        taken.append(notification)

    push = PushOptions(sender=send, initial_backoff=0.01, max_backoff=0.05)
    with Client(app_of(wire(handler, push=push, limits=Limits(store_poll_interval=0.2)))) as client:
        config = TaskPushNotificationConfig(url="https://93.184.216.34/hook", token="t0ken")
        task = client.send("stream", push_config=config)
        eventually(lambda: taken and "COMPLETED" in str(taken[-1].body))
    assert refused[0].body == taken[0].body
    assert {(one.task_id, one.config.url, one.headers["X-A2A-Notification-Token"]) for one in taken} == {
        (task.id, config.url, "t0ken")
    }
    events = [from_dict(t.StreamResponse, json.loads(one.body)) for one in taken]
    assert [event.artifact.text for event in events if isinstance(event, TaskArtifactUpdateEvent)] == ["a", "b", "ab"]
