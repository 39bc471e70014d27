"""Sections D and G: the gRPC binding of 1.0 and 0.3, with messages and status codes as they are on the wire."""

from __future__ import annotations

from typing import Any

import grpc
from google.rpc import error_details_pb2

from tests.conformance.grpcsite import GrpcSite, Outcome
from tests.conformance.sending import UNKNOWN
from tests.conformance.suite import D, G, Level, Way
from tests.conformance.system import EXTENSION, USERS, Speaker, message, new_name
from tests.conformance.wire import NAMES, REFUSALS

_NEW, _OLD = (Way.GRPC,), (Way.GRPC_03,)
DOMAIN = "a2a-protocol.org"


def _site(at: Speaker, kind: str = "plain") -> GrpcSite:
    site: GrpcSite = at.system.grpc_site(kind)
    return site


def _task(site: GrpcSite, text: str, **members: Any) -> Any:
    return site.call("SendMessage", message(text, **members)).message.task


def errors(site: GrpcSite) -> dict[str, Outcome]:
    """A failed call for each error of the protocol that a client can cause."""
    ended = _task(site, "echo").id
    audio = {"raw": "+/8=", "mediaType": "audio/x"}
    return {
        "TaskNotFound": site.call("GetTask", {"id": UNKNOWN}),
        "TaskNotCancelable": site.call("CancelTask", {"id": ended}),
        "PushNotificationNotSupported": site.call("ListTaskPushNotificationConfigs", {"taskId": ended}),
        "UnsupportedOperation": site.call("SendMessage", message("more", taskId=ended)),
        "ContentTypeNotSupported": site.call("SendMessage", message("echo", audio)),
        "VersionNotSupported": site.call("GetTask", {"id": ended}, metadata={"a2a-version": "99.0"}),
        "InvalidParams": site.call("ListTasks", {"pageSize": 0}),
    }


@D.line("V1-GRPC-01", Level.MUST, "the service lf.a2a.v1.A2AService has every method (10.1)", ways=_NEW)
def every_method_is_there(at: Speaker) -> None:
    site = _site(at)
    for name in NAMES:
        assert site.call(name.method).code != "UNIMPLEMENTED", name
    with_other_name = site.channel.unary_unary("/lf.a2a.v1.A2AService/DoMagic")
    try:
        with_other_name(b"", timeout=30)
    except grpc.RpcError as error:
        refused: Any = error
        assert refused.code() is grpc.StatusCode.UNIMPLEMENTED
    else:
        raise AssertionError("a method that does not exist was answered")


@D.line("V1-GRPC-02", Level.MUST, "requests and answers are the messages of the proto (10.2)", ways=_NEW)
def messages_are_those_of_the_proto(at: Speaker) -> None:
    site = _site(at)
    task = _task(site, "echo")
    read = site.call("GetTask", {"id": task.id}).message
    assert (read.DESCRIPTOR.full_name, read.id) == ("lf.a2a.v1.Task", task.id)
    listed = site.call("ListTasks", {"contextId": task.context_id}).message
    assert [one.id for one in listed.tasks] == [task.id]
    assert (listed.page_size, listed.total_size) == (50, 1)


@D.line("V1-GRPC-03", Level.MUST, "streams are server streaming calls that begin with the task (10.2)", ways=_NEW)
def streams_begin_with_the_task(at: Speaker) -> None:
    sent = _site(at).call("SendStreamingMessage", message("count 3"))
    kinds = [one.WhichOneof("payload") for one in sent.messages]
    assert (sent.code, kinds[0], kinds[-1]) == ("OK", "task", "status_update")
    assert kinds.count("artifact_update") >= 3


@D.line("V1-GRPC-04", Level.MUST, "service parameters are metadata: the version (10.3)", ways=_NEW)
def the_version_is_metadata(at: Speaker) -> None:
    site = _site(at)
    for metadata in ({}, {"a2a-version": "1.0"}):
        assert site.call("ListTasks", metadata=metadata).code == "OK"
    assert site.call("ListTasks", metadata={"a2a-version": "0.3"}).info.reason == "VERSION_NOT_SUPPORTED"


@D.line(
    "V1-GRPC-05", Level.MUST, "service parameters are metadata: extensions, and those used are named (10.3)", ways=_NEW
)
def extensions_are_metadata(at: Speaker) -> None:
    answered = _site(at).call("SendMessage", message("echo"), metadata={"a2a-extensions": EXTENSION})
    assert EXTENSION in answered.headers["a2a-extensions"]
    assert "a2a-extensions" not in _site(at).call("SendMessage", message("echo")).headers


@D.line("V1-GRPC-06", Level.MUST, "errors have the status codes of the table (5.4, 10.6)", ways=_NEW)
def errors_have_their_codes(at: Speaker) -> None:
    for name, refused in errors(_site(at)).items():
        assert (refused.code, refused.messages) == (REFUSALS[name].status, []), name


@D.line("V1-GRPC-07", Level.MUST, "errors have a google.rpc.Status with an ErrorInfo (10.6)", ways=_NEW)
def errors_have_details(at: Speaker) -> None:
    for name, refused in errors(_site(at)).items():
        assert refused.status is not None, name
        assert (refused.status.code, refused.status.message) == (
            getattr(grpc.StatusCode, refused.code).value[0],
            refused.text,
        )
        assert refused.info.domain == DOMAIN
        assert refused.info.reason == (REFUSALS[name].reason or "INVALID_PARAMS")


@D.line("V1-GRPC-08", Level.SHOULD, "invalid params name the field (10.6)", ways=_NEW)
def invalid_params_name_the_field(at: Speaker) -> None:
    refused = _site(at).call("ListTasks", {"pageSize": 0})
    (bad,) = [one for one in refused.details if isinstance(one, error_details_pb2.BadRequest)]
    assert [one.field for one in bad.field_violations] == ["pageSize"]


@D.line(
    "V1-GRPC-09", Level.MUST, "bytes that are no message are an invalid argument, never an internal error", ways=_NEW
)
def what_is_no_message(at: Speaker) -> None:
    for data in (b"\xff", b"\x12\x7f", b"\x0a\x02\xff\xfe", b"\x0f"):
        for name in NAMES:
            refused = _site(at).call(name.method, data)
            assert (refused.code, bool(refused.info.reason)) == ("INVALID_ARGUMENT", True), (name, data)


@D.line("V1-GRPC-10", Level.MUST, "credentials are metadata; without them a call is UNAUTHENTICATED", ways=_NEW)
def credentials_are_metadata(at: Speaker) -> None:
    site = _site(at, "secured")
    for name in NAMES:
        for metadata in ({}, {"authorization": "Bearer wrong"}):
            assert site.call(name.method, metadata=metadata).code == "UNAUTHENTICATED", name
    ada, bob = ({"authorization": f"Bearer {USERS[user]}"} for user in ("ada", "bob"))
    task = site.call("SendMessage", message("echo"), metadata=ada).message.task
    assert site.call("GetTask", {"id": task.id}, metadata=ada).message.id == task.id
    assert site.call("GetTask", {"id": task.id}, metadata=bob).code == "NOT_FOUND"
    assert site.call("CancelTask", {"id": task.id}, metadata=bob).code == "PERMISSION_DENIED"


@D.line("V1-GRPC-11", Level.MUST, "the card lists the interface with the binding GRPC and without a path", ways=_NEW)
def the_card_lists_the_interface(at: Speaker) -> None:
    card = at.exchange("GET", "/.well-known/agent-card.json", headers={"A2A-Version": "1.0"}).json
    listed = [one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
    assert listed
    host, _, port = listed[0].rpartition(":")
    assert (bool(host), port.isdigit()) == (True, True)


@D.line("V1-GRPC-12", Level.CHOICE, "fields that the proto does not have are ignored", ways=_NEW)
def unknown_fields_are_ignored(at: Speaker) -> None:
    task = _task(_site(at), "echo")
    # Field 4095 with the bytes "x".
    data = b"\x0a" + bytes([len(task.id)]) + task.id.encode()
    for more in (b"\xfa\xff\x01\x01x", b"\xf8\xff\x01\x05"):
        sent = _site(at).call("GetTask", b"\x12" + data[1:] + more)
        assert sent.message.id == task.id


# -- 0.3 ----------------------------------------------------------------------------------------------------------------


def _old_message(text: str) -> dict[str, Any]:
    return {"request": {"messageId": new_name(), "role": "ROLE_USER", "content": [{"text": text}]}}


@G.line("V03-GRPC-01", Level.MUST, "the service a2a.v1.A2AService has every method of its proto", ways=_OLD)
def every_method_of_0_3_is_there(at: Speaker) -> None:
    for name in NAMES:
        if name.method != "ListTasks":
            assert _site(at).call(name.method, version="0.3").code != "UNIMPLEMENTED", name


@G.line("V03-GRPC-02", Level.MUST, "a send is answered with the task or the message of the proto", ways=_OLD)
def a_send_of_0_3(at: Speaker) -> None:
    site = _site(at)
    task = site.call("SendMessage", _old_message("echo"), version="0.3").message.task
    assert task.DESCRIPTOR.full_name == "a2a.v1.Task"
    # A task is named by a path in 0.3.
    assert site.call("GetTask", {"name": f"tasks/{task.id}"}, version="0.3").message.id == task.id


@G.line("V03-GRPC-03", Level.MUST, "a stream begins with the task and its last event is final", ways=_OLD)
def a_stream_of_0_3(at: Speaker) -> None:
    sent = _site(at).call("SendStreamingMessage", _old_message("count 3"), version="0.3")
    assert (sent.code, sent.messages[0].WhichOneof("payload")) == ("OK", "task")
    assert [one.status_update.final for one in sent.messages if one.HasField("status_update")][-1]


@G.line("V03-GRPC-04", Level.SDK, "texts of errors begin with the names by which the SDKs know them", ways=_OLD)
def errors_of_0_3(at: Speaker) -> None:
    refused = _site(at).call("GetTask", {"name": f"tasks/{UNKNOWN}"}, version="0.3")
    assert (refused.code, refused.text.partition(":")[0]) == ("NOT_FOUND", "TaskNotFoundError")


@G.line("V03-GRPC-05", Level.CHOICE, "both versions at one port see the same tasks", ways=_OLD)
def both_versions_see_one_task(at: Speaker) -> None:
    site = _site(at)
    task = _task(site, "echo")
    assert site.call("GetTask", {"name": f"tasks/{task.id}"}, version="0.3").message.id == task.id
