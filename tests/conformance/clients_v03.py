"""Section G, fifth part: the client and agents of 0.3."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from a2a_sync import Task, TaskState
from a2a_sync import errors as e
from tests.client.peer import Asked, Line, Script
from tests.conformance.clients import call_everything
from tests.conformance.stage import (
    Stage,
    enveloped,
    old_card,
    old_status,
    old_task,
    said,
    staged,
)
from tests.conformance.suite import G, Level, Way
from tests.conformance.system import Lab
from tests.conformance.wire import TIMEOUT
from tests.stopwatch import Stopwatch

_CLIENT = (Way.CLIENT,)
_ERRORS: dict[int, type[e.AgentError]] = {
    -32700: e.JSONParseError,
    -32600: e.InvalidRequestError,
    -32601: e.MethodNotFoundError,
    -32602: e.InvalidParamsError,
    -32603: e.InternalError,
    -32001: e.TaskNotFoundError,
    -32002: e.TaskNotCancelableError,
    -32003: e.PushNotificationNotSupportedError,
    -32004: e.UnsupportedOperationError,
    -32005: e.ContentTypeNotSupportedError,
    -32006: e.InvalidAgentResponseError,
    -32007: e.ExtendedAgentCardNotConfiguredError,
}


def _at(stage: Stage, **members: Any) -> Stage:
    stage.card = old_card(f"{stage.url}/api", **members)
    return stage


@G.line("V03-C-01", Level.MUST, "the client reads a card of 0.3 and selects a supported transport", ways=_CLIENT)
def a_transport_is_chosen(lab: Lab) -> None:
    with staged() as stage:
        main = f"{stage.url}/main"
        other = {"url": f"{stage.url}/other", "transport": "JSONRPC"}
        for members, path in (
            ({"url": main, "preferredTransport": "JSONRPC", "additionalInterfaces": [other]}, "/main"),
            ({"url": main, "preferredTransport": "SLIMRPC", "additionalInterfaces": [other]}, "/other"),
        ):
            with lab.client(_at(stage, **members).url) as client:
                assert client.get_task("t-1").state is TaskState.COMPLETED
            assert stage.asked[-1].path == path


@G.line("V03-C-02", Level.MUST, "its requests are those of 0.3", ways=_CLIENT)
def requests_are_of_0_3(lab: Lab) -> None:
    with staged() as stage, lab.client(_at(stage).url) as client:
        call_everything(client, version="0.3")
        methods = [asked.rpc["method"] for asked in stage.asked]
        assert set(methods) == {"message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"}
        for method, params in zip(methods, said(stage.asked), strict=True):
            if not method.startswith("message/"):
                assert params == {"id": "t-1"}
                continue
            sent = params["message"]
            assert sent.keys() == {"kind", "messageId", "role", "parts"}
            assert (sent["kind"], sent["role"]) == ("message", "user")
            assert sent["parts"] == [{"kind": "text", "text": "hi"}]
        assert said(stage.asked)[0]["configuration"]["blocking"] is False


@G.line("V03-C-03", Level.MUST, "it raises every error of the table", ways=_CLIENT)
def errors_are_raised(lab: Lab) -> None:
    for number, cls in _ERRORS.items():
        no = _refusing(number)
        with staged(parts={"GetTask": no}) as stage, lab.client(_at(stage).url, retry=None) as client:
            with pytest.raises(e.AgentError) as caught:
                client.get_task("t-1")
            assert caught.type is cls


def _refusing(number: int) -> Any:
    return lambda asked, line: line.error(number)


@G.line("V03-C-04", Level.MUST, "a stream ends with its final event, or with the connection", ways=_CLIENT)
def streams_end(lab: Lab) -> None:
    held, left = threading.Event(), []

    def held_open(state: str) -> Script:
        def script(asked: Asked, line: Line) -> None:
            line.start_stream()
            for event in (old_task("working"), old_status(state, final=True)):
                line.event(enveloped(asked, event)["result"])
            left.append(held.wait(TIMEOUT))

        return script

    ended = [old_task("working"), old_status("completed", final=False)]
    for part, state in (
        (held_open("completed"), TaskState.COMPLETED),
        (held_open("input-required"), TaskState.INPUT_REQUIRED),
        (ended, TaskState.COMPLETED),
    ):
        held.clear()
        with staged(parts={"SendStreamingMessage": part}) as stage, lab.client(_at(stage).url) as client:
            watch = Stopwatch()
            with client.stream("hi") as events:
                assert len(list(events)) == 2
            assert events.task is not None
            assert events.task.state is state
            # The client has waited neither for the end of the connection nor for a limit of its own.
            assert watch.within(TIMEOUT / 2)
            assert False not in left
            held.set()
            # If the stream had no response, the client may request only the stored task.
            assert stage.operations[0] == "SendStreamingMessage"
            assert set(stage.operations[1:]) <= {"GetTask"}


@G.line("V03-C-05", Level.CHOICE, "agents with older cards are supported", ways=_CLIENT)
def older_agents_are_understood(lab: Lab) -> None:
    artifact = {"artifactId": "a-1", "parts": [{"text": "x"}]}
    without_kinds = {"id": "t-1", "contextId": "c-1", "status": {"state": "completed"}, "artifacts": [artifact]}
    with staged(parts={"GetTask": without_kinds}) as stage:
        stage.card = None
        bare = old_card(f"{stage.url}/api")
        del bare["preferredTransport"], bare["protocolVersion"]
        stage.parts["/.well-known/agent.json"] = bare
        with lab.client(stage.url) as client:
            found = client.get_task("t-1")
            assert isinstance(found, Task)
            assert found.text == "x"
