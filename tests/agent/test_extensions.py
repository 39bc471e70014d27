"""Extensions: asked for by URI, activated, named in the answer, required; what their hooks see and change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Client, Extension, InputRequired, RequestContext
from a2a_sync import operations as op
from a2a_sync.agent import Timestamps
from a2a_sync.card import AgentCapabilities, AgentCard, AgentExtension
from a2a_sync.errors import ExtensionSupportRequiredError, InvalidParamsError
from a2a_sync.operations import IDEMPOTENT_SEND, Call
from a2a_sync.types import Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskState, TextPart
from tests.engine import Gate, eventually
from tests.wsgi import Peer, message, message_v03, rpc

pytestmark = pytest.mark.timeout(60)

URI = "https://x.example/ext/v1"


class Talking(Agent):
    """Returns the active extensions and their values."""

    name = "talking"
    description = "d"

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        return repr(dict(context.extensions))


class Recording(Extension):
    """Keeps what its hooks were given."""

    uri = URI

    def __init__(self, **declared: Any) -> None:
        super().__init__(**declared)
        self.calls: list[Call] = []
        self.asked: list[Call] = []
        self.events: list[Any] = []

    def activate(self, call: Call) -> Any:
        self.asked.append(call)
        return call.context.headers.get("x-value", True)

    def on_request(self, call: Call) -> Call:
        self.calls.append(call)
        return call

    def on_event(self, event: Any, context: RequestContext) -> Any:
        self.events.append((type(event).__name__, context.task_id, threading.current_thread().name))
        return event


def send(app: A2AApp, way: str, headers: dict[str, str] | None = None, stream: bool = False) -> Any:
    """One message in some version and binding; the answer is read to its end. Gives status, headers and the body."""
    version, _, binding = way.partition(" ")
    peer = Peer(app)
    named = {"A2A-Version": version, "Content-Type": "application/json", **(headers or {})}
    if binding == "REST":
        import json

        path, body = ("/message:stream" if stream else "/message:send"), json.dumps(message("hi")).encode()
    else:
        old = version == "0.3"
        method = (
            ("message/stream" if old else "SendStreamingMessage")
            if stream
            else ("message/send" if old else "SendMessage")
        )
        path, body = "/", rpc(method, message_v03("hi") if old else message("hi"))
    return peer.request("POST", path, body, named)


WAYS = ["1.0 RPC", "1.0 REST", "0.3 RPC"]
ways = pytest.mark.parametrize("way", WAYS)
both = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])


def header(way: str) -> str:
    return "X-A2A-Extensions" if way.startswith("0.3") else "A2A-Extensions"


# -- activation ---------------------------------------------------------------------------------------------------------


@ways
@both
def test_the_answer_names_what_was_activated_of_what_was_asked_for(way: str, stream: bool) -> None:
    with A2AApp(Talking(), extensions=[Extension(URI), Extension("urn:b")]) as app:
        answer = send(app, way, {header(way): f"urn:unknown, {URI},https://x.example/ext/v2"}, stream)
    assert answer.status == 200
    assert answer.headers[header(way)] == URI
    assert [name for name, _ in answer.headers if name.lower().endswith("a2a-extensions")] == [header(way)]
    assert URI in answer.body.decode()
    assert "urn:unknown" not in answer.body.decode()


@ways
@both
def test_an_answer_names_nothing_where_nothing_was_asked_for_or_known(way: str, stream: bool) -> None:
    with A2AApp(Talking(), extensions=[Recording()]) as app:
        for headers in ({}, {header(way): "urn:unknown"}, {header(way): ""}, {header(way): URI.upper()}):
            answer = send(app, way, headers, stream)
            assert answer.status == 200
            assert not [name for name, _ in answer.headers if name.lower().endswith("a2a-extensions")]


@ways
def test_the_error_of_a_call_names_them_too(way: str) -> None:
    old = way.startswith("0.3")
    with A2AApp(Talking(), extensions=[Extension(URI)]) as app:
        headers = {"A2A-Version": "0.3" if old else "1.0", header(way): URI}
        if way.endswith("REST"):
            answer = Peer(app).request("GET", "/tasks/none", b"", headers)
        else:
            answer = Peer(app).post(rpc("tasks/get" if old else "GetTask", {"id": "none"}), headers)
    assert "not found" in answer.body.decode().lower()
    assert answer.headers[header(way)] == URI


def test_what_activate_gives_is_passed_to_the_handler_and_none_or_false_leave_it_out() -> None:
    class Choosy(Extension):
        def __init__(self, uri: str, value: Any) -> None:
            super().__init__(uri)
            self.value = value

        def activate(self, call: Call) -> Any:
            return self.value

    values = {"urn:a": {"budget": 3}, "urn:b": None, "urn:c": False, "urn:d": 0}
    app = A2AApp(Talking(), extensions=[Choosy(uri, value) for uri, value in values.items()])
    with app, Client(app, extensions=list(values)) as client:
        assert client.send("hi").text == "{'urn:a': {'budget': 3}, 'urn:d': 0}"


def test_every_operation_can_activate() -> None:
    recording = Recording()
    app = A2AApp(Talking(), extensions=[recording])
    with app, Client(app) as client:
        task = client.send("hi")
        assert isinstance(task, Task)
        client.get_task(task.id, extensions=[URI])
        client.list_tasks(extensions=[URI])
    assert [call.operation.name for call in recording.calls] == ["GetTask", "ListTasks"]


def test_the_hooks_of_extensions_that_are_not_requested_are_not_called() -> None:
    recording = Recording()
    app = A2AApp(Talking(), extensions=[recording])
    with app, Client(app, extensions=["urn:other"]) as client:
        client.send("hi")
        list(client.stream("hi"))
    assert (recording.asked, recording.calls, recording.events) == ([], [], [])


# -- declaring ----------------------------------------------------------------------------------------------------------


def uris(app: A2AApp) -> list[str]:
    return [one.uri for one in app.agent_card().capabilities.extensions]


def test_the_card_lists_those_of_the_card_the_agent_and_the_app() -> None:
    class Declaring(Talking):
        extensions = [AgentExtension(uri="urn:of-agent", description="a", params={"p": [1]})]

    with A2AApp(Declaring(), extensions=[Extension("urn:of-app", description="b", required=True)]) as app:
        assert uris(app) == [IDEMPOTENT_SEND, "urn:of-agent", "urn:of-app"]
        listed = app.agent_card().capabilities.extensions
        assert listed[1] == AgentExtension(uri="urn:of-agent", description="a", params={"p": [1]})
        assert listed[2] == AgentExtension(uri="urn:of-app", description="b", required=True)
    given = AgentCard(
        name="n",
        description="d",
        version="1",
        capabilities=AgentCapabilities(extensions=(AgentExtension(uri="urn:c"),)),
    )
    with A2AApp(Talking(), card=given) as app, Client(app, extensions=["urn:c"]) as client:
        assert "urn:c" in uris(app)
        assert client.send("hi").text == "{'urn:c': True}"


def test_an_agent_takes_extensions_as_an_argument() -> None:
    agent = Agent("plain", extensions=[Extension("urn:a")])
    agent.message(lambda message, context: " ".join(context.extensions))
    with Client(agent, extensions=["urn:a"]) as client:
        assert client.send("hi").text == "urn:a"
    agent.close()


def test_the_hooks_of_an_extension_that_the_card_declares_already_are_its_hooks() -> None:
    recording = Recording(description="with hooks")
    for order in ([AgentExtension(uri=URI), recording], [recording, AgentExtension(uri=URI)]):
        with A2AApp(Talking(), extensions=order) as app, Client(app, extensions=[URI]) as client:
            assert uris(app).count(URI) == 1
            client.send("hi")
    assert len(recording.calls) == 2


def test_two_with_hooks_for_one_uri_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="two extensions have the URI"):
        A2AApp(Talking(), extensions=[Recording(), Recording()])


@pytest.mark.parametrize("uri", ["", "urn:ü", "urn:a,b", "urn:a b", "urn:a\n"])
def test_a_uri_can_stand_in_the_header(uri: str) -> None:
    with pytest.raises(ValueError, match="URI of an extension"):
        Extension(uri)
    with pytest.raises(ValueError, match="URI of an extension"):
        A2AApp(Talking(), extensions=[AgentExtension(uri=uri)])


# -- required -----------------------------------------------------------------------------------------------------------


@ways
@both
def test_a_message_without_a_required_extension_is_refused(way: str, stream: bool) -> None:
    with A2AApp(Talking(), extensions=[Extension(URI, required=True)]) as app:
        for headers in ({}, {header(way): "https://x.example/ext/v2"}):
            refused = send(app, way, headers, stream)
            if way == "1.0 REST":
                assert refused.status == 400
                assert refused.json["error"]["details"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
            else:
                # Protocol 0.3 has no code for it.
                assert refused.error["code"] == (-32008 if way == "1.0 RPC" else -32004)
            assert f"{header(way)}: {URI}" in refused.body.decode()
        taken = send(app, way, {header(way): URI}, stream)
        assert taken.status == 200
        assert "error" not in taken.body.decode()
        with Client(app) as client:
            assert client.list_tasks().total_size == 1


def test_only_messages_need_it() -> None:
    app = A2AApp(Talking(), extensions=[Extension(URI, required=True)])
    with app, Client(app) as client:
        task = client.send("hi", extensions=[URI])
        assert isinstance(task, Task)
        assert client.get_task(task.id, history_length=1).artifacts == task.artifacts
        with pytest.raises(ExtensionSupportRequiredError) as caught:
            client.send("hi")
        assert caught.value.metadata == {"requiredExtensions": URI}


def test_one_that_declines_to_be_active_was_not_declared_well_enough() -> None:
    class Declining(Extension):
        def activate(self, call: Call) -> Any:
            return None

    app = A2AApp(Talking(), extensions=[Declining(URI, required=True)])
    with app, Client(app, extensions=[URI]) as client, pytest.raises(ExtensionSupportRequiredError):
        client.send("hi")


# -- hooks --------------------------------------------------------------------------------------------------------------


def test_on_request_may_change_the_call_or_refuse_it() -> None:
    class Shouting(Extension):
        uri = URI

        def on_request(self, call: Call) -> Call:
            if call.operation is not op.SEND_MESSAGE:
                return call
            said = call.request.message
            if said.text == "secret":
                raise InvalidParamsError.at("message.parts[0].text", "is not said here")
            return replace(
                call, request=replace(call.request, message=replace(said, parts=(TextPart(said.text.upper()),)))
            )

    agent = Agent("echo")
    agent.message(lambda message, context: message.text)
    app = A2AApp(agent, extensions=[Shouting()])
    with app, Client(app, extensions=[URI]) as client:
        assert client.send("hi").text == "HI"
        with pytest.raises(InvalidParamsError, match="not said here"):
            client.send("secret")
        assert client.list_tasks().total_size == 1


class Marking(Extension):
    """Adds to each event's metadata the name of its kind."""

    uri = URI

    def on_event(self, event: Any, context: RequestContext) -> Any:
        if isinstance(event, TaskArtifactUpdateEvent):
            text = event.artifact.text
            if text == "bad":
                raise ValueError("secret of the extension")
            return replace(event, artifact=replace(event.artifact, parts=(TextPart(text.upper()),)))
        return replace(event, metadata={**event.metadata, URI: context.message.text})


class Emitting:
    """An executor that answers in every way there is."""

    def execute(self, context: RequestContext) -> Iterator[Any]:
        context.update("on the way")
        with context.artifact("emitted") as writer:
            writer.write("a")
        yield TaskArtifactUpdateEvent(artifact=artifact(context.message.text))
        yield context.agent_message("done")


def artifact(text: str) -> Any:
    from a2a_sync import Artifact

    return Artifact(parts=(TextPart(text),), artifact_id="yielded")


@pytest.mark.parametrize("store", [None, "sqlite"])
def test_events_go_through_the_hook_before_they_are_stored(store: str | None, tmp_path: Any) -> None:
    card = AgentCard(name="n", description="d", version="1")
    url = None if store is None else f"sqlite:///{tmp_path}/t.db"
    app = A2AApp(Emitting(), card=card, store=url, extensions=[Marking()])
    with app, Client(app) as client:
        with client.stream("hi", extensions=[URI]) as stream:
            events = list(stream)
        stored = client.get_task(stream.task_id)
        assert [one.text for one in stored.artifacts] == ["A", "HI"]
        assert stored.metadata[URI] == "hi"
        assert stream.task is not None
        assert stream.task.artifacts == stored.artifacts
        assert stored.status.message is not None
        assert (stored.status.message.text, stored.status.message.metadata) == ("done", {URI: "hi"})
        assert any(getattr(event, "metadata", None) == {URI: "hi"} for event in events)
        # The same agent for a caller without the extension.
        plain = client.send("hi")
        assert isinstance(plain, Task)
        assert [one.text for one in plain.artifacts] == ["a", "hi"]
        assert plain.metadata == {}


def test_what_the_hook_raises_counts_as_raised_by_the_agent() -> None:
    app = A2AApp(Emitting(), card=AgentCard(name="n", description="d", version="1"), extensions=[Marking()])
    with app, Client(app, extensions=[URI]) as client:
        task = client.send("bad")
        assert isinstance(task, Task)
        assert (task.state, "secret" in task.to_json()) == (TaskState.FAILED, False)


def test_a_run_that_goes_on_after_its_request_keeps_its_extensions() -> None:
    gate, recording = Gate(), Recording()

    class Slow(Talking):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            gate.block()
            return repr(dict(context.extensions))

    app = A2AApp(Slow(), extensions=[recording])
    with app, Client(app, extensions=[URI], headers={"X-Value": "7"}) as client:
        task = client.send("hi", return_immediately=True)
        assert isinstance(task, Task)
        gate.wait()
        gate.open.set()
        done = (
            eventually(lambda: (task := client.get_task(task_id)).state.terminal and task)
            if (task_id := task.id)
            else None
        )
        assert done.text == f"{{'{URI}': '7'}}"
    assert {kind for kind, _, _ in recording.events} == {"TaskArtifactUpdateEvent", "Message", "TaskStatusUpdateEvent"}
    assert {where for _, where, _ in recording.events} == {task.id}
    assert all(thread.startswith("a2a-run") for _, _, thread in recording.events)


def test_each_message_of_a_task_activates_for_its_own_run() -> None:
    class Asking(Talking):
        def handle_message(self, message: Message, context: RequestContext) -> Any:
            return InputRequired(repr(sorted(context.extensions)))

    app = A2AApp(Asking(), extensions=[Extension(URI)])
    with app, Client(app) as client:
        chat = client.chat()
        assert chat.send("one", extensions=[URI]).text == f"['{URI}']"
        assert chat.send("two").text == "[]"


# -- timestamps ---------------------------------------------------------------------------------------------------------


def stamp(item: Any) -> Any:
    return item.metadata.get(Timestamps.member)


@pytest.mark.parametrize("method", ["send", "stream"])
def test_timestamps_are_on_messages_and_artifacts_if_requested(method: str) -> None:
    times = iter(datetime(2026, 1, 1, 12, 0, second, 123456, tzinfo=UTC) for second in range(60))
    agent = Agent("stamped")

    @agent.message
    def stamped(message: Message, context: RequestContext) -> Any:
        context.update("soon")
        with context.artifact("piecemeal") as writer:
            writer.write("a")
            writer.write("b")
        return "text"

    app = A2AApp(agent, extensions=[Timestamps(lambda: next(times))])
    with app, Client(app, extensions=[Timestamps.uri]) as client:
        if method == "send":
            sent = client.send("hi")
        else:
            with client.stream("hi") as stream:
                sent = list(stream) and stream.task
        assert isinstance(sent, Task)
        task = client.get_task(sent.id)
        said, answered = task.history
        assert stamp(said) == "2026-01-01T12:00:00.123Z"
        assert [stamp(one) for one in task.artifacts] == ["2026-01-01T12:00:03.123Z", "2026-01-01T12:00:04.123Z"]
        assert stamp(answered) == "2026-01-01T12:00:05.123Z"
        assert {one.extensions for one in (said, answered, *task.artifacts)} == {(Timestamps.uri,)}

        with Client(app) as other:
            plain = other.send("hi")
        assert isinstance(plain, Task)
        assert not any(map(stamp, (*plain.history, *plain.artifacts)))


def test_an_existing_time_is_kept() -> None:
    agent = Agent("echo")
    agent.message(lambda message, context: message.metadata[Timestamps.member])
    app = A2AApp(agent, extensions=[Timestamps()])
    parts: tuple[Part, ...] = (TextPart("hi"),)
    with app, Client(app, extensions=[Timestamps.uri]) as client:
        stamped = Message(role=Role.USER, parts=parts, metadata={Timestamps.member: "yesterday"})
        assert client.send(stamped).text == "yesterday"


def test_a_send_that_comes_again_is_the_same_whatever_hooks_add() -> None:
    agent = Agent("echo")
    agent.message(lambda message, context: message.text)
    app = A2AApp(agent, extensions=[Timestamps()])
    with app, Client(app, extensions=[Timestamps.uri]) as client:
        first = client.send("hi", idempotency_key="k")
        assert client.send("hi", idempotency_key="k") == first


# -- idempotent sends are one of them -----------------------------------------------------------------------------------


@ways
@both
def test_the_key_alone_asks_for_idempotent_sends_and_the_answer_names_them(way: str, stream: bool) -> None:
    with A2AApp(Talking()) as app:
        first = send(app, way, {"Idempotency-Key": "k"}, stream)
        again = send(app, way, {"Idempotency-Key": "k", header(way): IDEMPOTENT_SEND}, stream)
        assert first.headers[header(way)] == again.headers[header(way)] == IDEMPOTENT_SEND
        with Client(app) as client:
            assert client.list_tasks().total_size == 1


def test_to_ask_for_it_without_a_key_is_no_key() -> None:
    app = A2AApp(Talking())
    with app, Client(app, extensions=[IDEMPOTENT_SEND]) as client:
        client.send("hi")
        client.send("hi")
        assert client.list_tasks().total_size == 2


def test_calls_in_one_process_need_no_headers_to_write_to() -> None:
    with A2AApp(Talking(), extensions=[Extension(URI)]) as app:
        context = op.CallContext(extensions=(URI,))
        request = op.t.SendMessageRequest(message=Message(role=Role.USER, parts=(TextPart("hi"),)))
        assert app.endpoint()(Call(op.SEND_MESSAGE, request, context)).text == f"{{'{URI}': True}}"
