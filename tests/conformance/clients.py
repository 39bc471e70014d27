"""Section F: the client, against scripted agents."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from a2a_sync import Client, Message, Task, TaskState, TextPart
from a2a_sync import errors as e
from a2a_sync.types import FilePart, Role
from tests.client.peer import Asked, Line, Script, steps
from tests.conformance.encoding import members
from tests.conformance.stage import (
    CARD_PATH,
    REST,
    RPC,
    RPC_03,
    card,
    offered,
    operation_of,
    said,
    staged,
    task,
)
from tests.conformance.suite import F, Level
from tests.conformance.system import Lab
from tests.conformance.wire import ERROR_INFO, REFUSALS

BINDINGS = (RPC, REST)


def call_everything(client: Client, *, version: str = "1.0") -> None:
    """Call every operation once, and read streams to their end."""
    client.send("hi", return_immediately=True)
    client.send("hi")
    client.get_task("t-1")
    client.cancel_task("t-1")
    with client.subscribe("t-1") as followed:
        list(followed)
    if version == "1.0":
        client.list_tasks(page_size=5)
        client.extended_card()


# -- versions -----------------------------------------------------------------------------------------------------------


@F.line("V1-CVER-01", Level.MUST, "every request has its version, including streams and the extended card")
def every_request_names_its_version(lab: Lab) -> None:
    for binding in BINDINGS:
        with staged(binding) as stage, lab.client(stage.url) as client:
            call_everything(client)
            assert len(set(stage.operations)) == 7
            assert {asked.headers.get("a2a-version") for asked in stage.server.asked} == {"1.0"}


@F.line("V1-CVER-02", Level.MUST, "the version is that of the selected interface")
def the_version_is_that_of_the_interface(lab: Lab) -> None:
    for binding, version in ((RPC, "1.0"), (RPC_03, "0.3"), (("JSONRPC", "1.0.2"), "1.0")):
        with staged(binding) as stage, lab.client(stage.url) as client:
            client.get_task("t-1")
            assert [asked.headers.get("a2a-version") for asked in stage.asked] == [version]


@F.line("V1-CVER-03", Level.MUST, "the user may select version and binding")
def the_user_may_choose(lab: Lab) -> None:
    with staged(RPC, REST, RPC_03) as stage:
        for options, wanted in (
            ({}, RPC),
            ({"protocol_binding": "HTTP+JSON"}, REST),
            ({"protocol_version": "0.3"}, RPC_03),
            ({"protocol_version": "1.0", "protocol_binding": "JSONRPC"}, RPC),
        ):
            with lab.client(stage.url, **options) as client:
                client.get_task("t-1")
            _, rest, version = operation_of(stage.asked[-1])
            assert ("HTTP+JSON" if rest else "JSONRPC", version) == wanted


def refused(code: int, reason: str, http: int = 200) -> Script:
    """Answer with an error in the request's binding."""

    def script(asked: Asked, line: Line) -> None:
        details = [{"@type": ERROR_INFO, "reason": reason, "domain": "a2a-protocol.org"}] if reason else []
        if operation_of(asked)[1]:
            error = {"code": http, "status": "FAILED_PRECONDITION", "message": "no", "details": details}
            line.answer({"error": error}, http)
        else:
            error = {"code": code, "message": "no", "data": details}
            line.answer({"jsonrpc": "2.0", "id": asked.rpc["id"], "error": error}, http)

    return script


@F.line("V1-CVER-04", Level.SHOULD_NOT, "the client does not fall back to an older version silently")
def there_is_no_way_back(lab: Lab) -> None:
    no = refused(-32009, "VERSION_NOT_SUPPORTED")
    with staged(RPC, RPC_03, parts={"GetTask": no}) as stage, lab.client(stage.url) as client:
        with pytest.raises(e.VersionNotSupportedError):
            client.get_task("t-1")
        assert [operation_of(asked)[2] for asked in stage.asked] == ["1.0"]


# -- interfaces ---------------------------------------------------------------------------------------------------------


@F.line("V1-CSEL-01", Level.MUST, "the first supported interface is used, at its own URL")
def the_first_interface_is_used(lab: Lab) -> None:
    with staged() as stage:
        other = {"url": "slimrpc://unused.example:1", "protocolBinding": "SLIMRPC", "protocolVersion": "1.0"}
        rest = {"url": stage.url + "/there", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        rpc = {"url": stage.url + "/elsewhere", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        stage.card = card("", other, rest, rpc)
        with lab.client(stage.url) as client:
            client.get_task("t-1")
        assert [asked.path for asked in stage.asked] == ["/there/tasks/t-1"]


@F.line("V1-CSEL-02", Level.MUST, "its tenant is in every request, and in no other place")
def the_tenant_is_in_every_request(lab: Lab) -> None:
    tenant = "ACME gmbh/1"
    for binding in BINDINGS:
        with staged() as stage:
            stage.card = card(f"{stage.url}/api", offered(*binding, tenant=tenant))
            with lab.client(stage.url) as client:
                call_everything(client)
            if binding is RPC:
                assert {asked.params.get("tenant") for asked in stage.asked} == {tenant}
            else:
                assert all(asked.path.startswith("/api/ACME%20gmbh%2F1/") for asked in stage.asked)
        with staged(binding) as stage, lab.client(stage.url) as client:
            call_everything(client)
            assert not [params for params in said(stage.asked) if "tenant" in params]


@F.line("V1-CSEL-04", Level.MUST, "unknown bindings are ignored")
def unknown_bindings_are_passed_over(lab: Lab) -> None:
    with staged(("https://example.com/bindings/pigeon", "1.0"), ("JSONRPC", "7.0"), RPC) as stage:
        with lab.client(stage.url) as client:
            assert client.get_task("t-1").id == "t-1"
        assert stage.operations == ["GetTask"]


# -- cards --------------------------------------------------------------------------------------------------------------


@F.line("V1-CCARD-01", Level.SHOULD, "cards are cached and revalidated as their headers say")
def cards_are_kept_as_their_headers_say(lab: Lab) -> None:
    seen: list[str | None] = []

    def dated(document: Any, **headers: str) -> Script:
        def script(asked: Asked, line: Line) -> None:
            seen.append(asked.headers.get("if-none-match"))
            if seen[-1] is None:
                line.answer(document, ETag='"one"', Cache_Control="max-age=300", **headers)
            else:
                line.answer(b"", 304, ETag='"one"', Cache_Control="max-age=300")

        return script

    with staged() as stage, lab.client(stage.url) as client:
        stage.parts[CARD_PATH] = dated(stage.card)
        client.get_task("t-1")
        client.get_task("t-1")
        assert seen == [None]
    seen.clear()
    with staged() as stage, lab.client(stage.url) as client:
        stage.parts[CARD_PATH] = dated(stage.card, Age="300")
        client.get_task("t-1")
        # A card is requested at most once per second.
        threading.Event().wait(1.1)
        client.get_task("t-1")
        client.get_task("t-1")
        assert seen == [None, '"one"']
        assert len(stage.asked) == 3


@F.line("V1-CCARD-02", Level.SHOULD, "the extended card replaces the public one")
def the_extended_card_takes_the_place(lab: Lab) -> None:
    with staged() as stage:
        stage.parts["GetExtendedAgentCard"] = card(f"{stage.url}/inner", offered(*RPC), description="For friends")
        with lab.client(stage.url) as client:
            assert client.card().description == "Plays a part"
            assert client.extended_card().description == "For friends"
            assert client.card().description == "For friends"
            client.get_task("t-1")
        assert [asked.path for asked in stage.asked] == ["/api", "/inner"]


@F.line("V1-CCARD-05", Level.SHOULD, "features that the card does not declare are not requested")
def what_is_not_offered_is_not_asked_for(lab: Lab) -> None:
    with staged(capabilities={}) as stage, lab.client(stage.url) as client:
        assert isinstance(client.send("hi"), Task)
        with client.stream("hi") as events:
            assert len(list(events)) == 1
        with pytest.raises(e.UnsupportedOperationError):
            client.extended_card()
        assert set(stage.operations) == {"SendMessage"}


@F.line("V1-CCARD-06", Level.SHOULD, "unknown members of cards and responses are ignored")
def unknown_members_are_passed_over(lab: Lab) -> None:
    known = task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "x", "new": 1}], "new": {}}], new=[])
    with staged(parts={"GetTask": known}, colour="red", kind="card") as stage:
        stage.card["skills"][0]["new"] = None
        stage.card["supportedInterfaces"][0]["new"] = {}
        with lab.client(stage.url) as client:
            assert client.get_task("t-1").text == "x"


# -- errors -------------------------------------------------------------------------------------------------------------

_CLASSES: dict[str, type[e.AgentError]] = {
    "TaskNotFound": e.TaskNotFoundError,
    "TaskNotCancelable": e.TaskNotCancelableError,
    "PushNotificationNotSupported": e.PushNotificationNotSupportedError,
    "UnsupportedOperation": e.UnsupportedOperationError,
    "ContentTypeNotSupported": e.ContentTypeNotSupportedError,
    "InvalidAgentResponse": e.InvalidAgentResponseError,
    "ExtendedCardNotConfigured": e.ExtendedAgentCardNotConfiguredError,
    "ExtensionSupportRequired": e.ExtensionSupportRequiredError,
    "VersionNotSupported": e.VersionNotSupportedError,
    "InvalidParams": e.InvalidParamsError,
}
#: The statuses of release 1.0.0.
_OLD_STATUSES = {"TaskNotCancelable": 409, "ContentTypeNotSupported": 415, "InvalidAgentResponse": 502}


def _raised(lab: Lab, binding: tuple[str, str], script: Script) -> type[BaseException]:
    with staged(binding, parts={"GetTask": script}) as stage, lab.client(stage.url, retry=None) as client:
        with pytest.raises(Exception) as caught:
            client.get_task("t-1")
        return caught.type


@F.line("V1-CERR-01", Level.SHOULD, "errors are raised by type, for the statuses of any release")
def errors_are_raised_as_what_they_are(lab: Lab) -> None:
    for name, cls in _CLASSES.items():
        wanted = REFUSALS[name]
        assert _raised(lab, RPC, refused(wanted.code, wanted.reason)) is cls
        assert _raised(lab, RPC, refused(wanted.code, "")) is cls
        for http in {wanted.http, _OLD_STATUSES.get(name, wanted.http)}:
            if wanted.reason:
                assert _raised(lab, REST, refused(0, wanted.reason, http)) is cls, (name, http)


@F.line("V1-CERR-02", Level.SDK, "a JSON-RPC error is recognised with any HTTP status")
def errors_are_read_under_any_status(lab: Lab) -> None:
    for http in (200, 400, 404, 500):
        assert _raised(lab, RPC, refused(-32001, "TASK_NOT_FOUND", http)) is e.TaskNotFoundError


@F.line("V1-CERR-03", Level.MUST, "credentials are sent in headers, as the card declares, and nowhere else")
def credentials_are_in_headers(lab: Lab) -> None:
    for binding in BINDINGS:
        with staged(binding) as stage, lab.client(stage.url, auth="very-secret-token") as client:
            call_everything(client)
            for asked in stage.asked:
                assert asked.headers["authorization"] == "Bearer very-secret-token"
                assert "very-secret" not in asked.path
                assert b"very-secret" not in asked.body
                assert [name for name, value in asked.headers.items() if "very-secret" in value] == ["authorization"]


# -- requests -----------------------------------------------------------------------------------------------------------


@F.line("V1-CLIST-01", Level.MUST, "a list ends without a next page token")
def lists_end(lab: Lab) -> None:
    def page(token: str | None, *tasks: Any) -> Callable[[Asked, Line], None]:
        members = {
            "tasks": tasks,
            "pageSize": 1,
            "totalSize": 3,
            **({} if token is None else {"nextPageToken": token}),
        }
        return lambda asked, line: line.result(members) if not operation_of(asked)[1] else line.answer(members)

    for binding in BINDINGS:
        for last in ("", None):
            # A page may be empty without being the last one.
            script = steps(page("p-2", task()), page("p-3"), page(last, task()))
            with staged(binding, parts={"ListTasks": script}) as stage, lab.client(stage.url) as client:
                assert len(list(client.iter_tasks(page_size=1))) == 2
                assert stage.operations == ["ListTasks"] * 3


@F.line("V1-CMSG-01", Level.SHOULD_NOT, "no context id is generated; each message has a unique id")
def messages_have_ids(lab: Lab) -> None:
    with staged() as stage, lab.client(stage.url) as client:
        for _ in range(3):
            client.send("hi")
        client.send("hi", context_id="mine")
        messages = [params["message"] for params in said(stage.asked) if "message" in params]
        assert len({one["messageId"] for one in messages}) == 4
        assert [one.get("contextId") for one in messages] == [None, None, None, "mine"]
        assert not [one for one in messages if "taskId" in one]


@F.line("V1-CMSG-02", Level.MUST, "names are camelCase, nothing is null, each part has one content")
def messages_are_well_formed(lab: Lab) -> None:
    parts = (TextPart("a", metadata={"under_score": None}), FilePart(raw=b"\xfb\xff", media_type="image/png"))
    sent = Message(role=Role.USER, parts=parts, reference_task_ids=("t-0",))
    for binding in BINDINGS:
        with staged(binding) as stage, lab.client(stage.url) as client:
            client.send(sent, history_length=0, accepted_output_modes=["text/plain"], return_immediately=True)
            (params,) = said(stage.asked)
            found = list(members(params))
            assert not [name for name, value in found if "_" in name or value is None]
            assert params["message"]["role"] == "ROLE_USER"
            assert params["message"]["parts"] == [
                {"text": "a", "metadata": {"under_score": None}},
                {"raw": "+/8=", "mediaType": "image/png"},
            ]
            assert params["configuration"] == {
                "historyLength": 0,
                "acceptedOutputModes": ["text/plain"],
                "returnImmediately": True,
            }


@F.line("V1-CMSG-03", Level.SHOULD, "requested extensions are listed")
def extensions_are_named(lab: Lab) -> None:
    uris = ["https://example.com/a/v1", "https://example.com/b/v1"]
    for binding in BINDINGS:
        with staged(binding) as stage, lab.client(stage.url, extensions=uris) as client:
            call_everything(client)
            named = {asked.headers.get("a2a-extensions", "") for asked in stage.asked}
            assert {re.sub(r"\s", "", value) for value in named} == {",".join(uris)}


@F.line("V1-CREST-01", Level.MUST, "paths and queries are encoded, with camelCase names")
def paths_are_encoded(lab: Lab) -> None:
    with staged(REST) as stage, lab.client(stage.url) as client:
        client.get_task("a/b c?d#\u00e9", history_length=3)
        client.list_tasks(context_id="a b&c=\u00e9", page_size=2, include_artifacts=True, status=TaskState.WORKING)
        first, second = (asked.path for asked in stage.asked)
    assert first == "/api/tasks/a%2Fb%20c%3Fd%23%C3%A9?historyLength=3"
    path, _, query = second.partition("?")
    assert path == "/api/tasks"
    assert sorted(query.split("&")) == [
        "contextId=a%20b%26c%3D%C3%A9",
        "includeArtifacts=true",
        "pageSize=2",
        "status=TASK_STATE_WORKING",
    ]


@F.line("V1-CREST-02", Level.SDK, "statuses 200, 201 and 204 and both media types are accepted")
def answers_are_read_leniently(lab: Lab) -> None:
    for media_type in ("application/json", "application/a2a+json", "application/a2a+json; charset=utf-8"):
        for code in (200, 201):
            script = _answering(task(), code, media_type)
            with staged(REST, parts={"GetTask": script}) as stage, lab.client(stage.url) as client:
                assert client.get_task("t-1").id == "t-1"
    for answer, code in ((b"", 204), ({}, 200)):
        script = _answering(answer, code, "application/json")
        with staged(REST, parts={"DeleteTaskPushNotificationConfig": script}) as stage:
            with lab.client(stage.url) as client:
                client.delete_push_config("t-1", "h-1")
            assert stage.operations == ["DeleteTaskPushNotificationConfig"]


def _answering(answer: Any, code: int, media_type: str) -> Script:
    return lambda asked, line: line.answer(answer, code, Content_Type=media_type)
