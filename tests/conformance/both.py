"""Section H: both protocol versions at one endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance import v03
from tests.conformance.encoding import card, members
from tests.conformance.sending import text_of
from tests.conformance.suite import H, Level, Way
from tests.conformance.system import Speaker, message, message_v03, new_name
from tests.conformance.wire import Reply
from tests.engine import eventually

_SPEC = Path(__file__).parent.parent / "spec"


def old(at: Speaker) -> Speaker:
    """The same agent, called with 0.3."""
    return at.by(Way.RPC_03)


@H.line("DUAL-01", Level.MUST, "a method of 0.3 without a version is answered in 0.3")
def no_version_is_0_3(at: Speaker) -> None:
    for version in (None, "", "0.3"):
        reply = old(at).ask("SendMessage", message_v03("echo"), A2A_Version=version)
        v03.assert_is_task(reply.result)


@H.line("DUAL-02", Level.MUST, "a request of 1.0 is answered purely in 1.0")
def answers_of_1_0_are_pure(at: Speaker) -> None:
    results = [at.send("echo", {"data": [1]}).result, *at.stream("count 2").all(), at.ask("ListTasks").result]
    names = {name for name, _ in members(results)}
    assert {"artifactUpdate", "tasks", "parts"} <= names
    assert not {"kind", "final"} & names


@H.line("DUAL-03", Level.MUST, "a task of one version is visible in the other")
def tasks_are_seen_in_both(at: Speaker) -> None:
    there, here = v03.task(old(at), "count 3"), at.task("count 3")
    for id in (there["id"], here["id"]):
        one, other = at.get(id), old(at).ask("GetTask", {"id": id}).result
        v03.assert_is_task(other)
        assert (one["id"], one["contextId"]) == (other["id"], other["contextId"])
        assert [part["text"] for part in one["artifacts"][0]["parts"]] == [
            part["text"] for part in other["artifacts"][0]["parts"]
        ]
        assert (one["status"]["state"], other["status"]["state"]) == ("TASK_STATE_COMPLETED", "completed")
    asked = v03.task(old(at), "ask")
    assert at.task("large", taskId=asked["id"])["status"]["state"] == "TASK_STATE_COMPLETED"


def _said(event: dict[str, Any]) -> tuple[str, Any]:
    """The content of a 1.0 event in a form that both versions share."""
    ((name, value),) = event.items()
    if name == "statusUpdate":
        return name, value["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    if name == "artifactUpdate":
        return name, [part["text"] for part in value["artifact"]["parts"]]
    return name, value["id"]


def _said_v03(event: dict[str, Any]) -> tuple[str, Any]:
    """The content of a 0.3 event in the same form."""
    if event["kind"] == "status-update":
        return "statusUpdate", event["status"]["state"]
    if event["kind"] == "artifact-update":
        return "artifactUpdate", [part["text"] for part in event["artifact"]["parts"]]
    return event["kind"], event["id"]


@H.line("DUAL-04", Level.MUST, "streams of both versions have the same events in the same order")
def both_versions_stream_the_same_events(at: Speaker) -> None:
    gate = new_name()
    id = at.begin(f"ticks {gate} 3")["id"]
    eventually(lambda: text_of(at.get(id)).endswith("3 "), "the first half")
    with at.open("SubscribeToTask", {"id": id}) as one, old(at).open("SubscribeToTask", {"id": id}) as other:
        streams = [one.results(), other.results()]
        begun = [next(stream) for stream in streams]
        at.release(gate)
        ours = [_said(event) for event in (begun[0], *streams[0])]
        theirs = [_said_v03(event) for event in (begun[1], *streams[1])]
    assert ours == theirs
    assert ours[-1] == ("statusUpdate", "completed")


def _try(at: Speaker, method: str, params: Any, version: str | None) -> Reply:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return at.post(body, A2A_Version=version)


@H.line("DUAL-05", Level.CHOICE, "a method that contradicts the version header is refused")
def contradictions_are_refused(at: Speaker) -> None:
    for version in (None, "", "0.3", "0.3.1"):
        assert _try(at, "message/send", message_v03("echo"), version).result["kind"] == "task"
        _try(at, "SendMessage", message("echo"), version).refuses("VersionNotSupported")
    for version in ("1.0", "1.0.1"):
        assert set(_try(at, "SendMessage", message("echo"), version).result) == {"task"}
        _try(at, "message/send", message_v03("echo"), version).refuses("VersionNotSupported")
    for version in ("1.1", "2.0", "99.0", "abc", "0.2"):
        _try(at, "SendMessage", message("echo"), version).refuses("VersionNotSupported")
        _try(at, "message/send", message_v03("echo"), version).refuses("VersionNotSupported")
    for version in (None, "0.3", "1.0", "99.0"):
        assert v03.code(_try(at, "DoMagic", {}, version)) == -32601


@H.line("DUAL-07", Level.CHOICE, "one card for both versions, and the form of one version if it is named")
def one_card_serves_both(at: Speaker) -> None:
    reply = at.exchange("GET", v03.CARD_PATH)
    both, new, first = reply.json, card(at), v03.card(at, **{"A2A-Version": "0.3"})
    assert "A2A-Version" in reply.headers["Vary"]
    assert "supportedInterfaces" not in first
    assert not {"url", "preferredTransport", "protocolVersion", "additionalInterfaces"} & new.keys()
    assert both.keys() == new.keys() | first.keys()
    assert all(both[name] == new[name] for name in ("name", "supportedInterfaces", "skills", "version"))
    assert all(both[name] == first[name] for name in ("url", "preferredTransport", "protocolVersion"))
    assert card(at.on("modern")).keys() <= new.keys()
    assert "supportedInterfaces" not in v03.card(at.on("old"))


@H.line("DUAL-08", Level.CHOICE, "data that is not an object is wrapped for 0.3, and unwrapped when received from it")
def other_data_is_wrapped(at: Speaker) -> None:
    for value in ([1, 2], "text", 7, None, True):
        made = at.task("echo", {"data": value})
        (artifact,) = old(at).ask("GetTask", {"id": made["id"]}).result["artifacts"]
        wrapped = {"kind": "data", "data": {"value": value}, "metadata": {"data_part_compat": True}}
        assert artifact["parts"] == [wrapped]
        back = v03.task(old(at), "echo", wrapped)
        assert at.get(back["id"])["artifacts"][0]["parts"] == [{"data": value}]


@H.line("DUAL-11", Level.MUST, "content sent in 0.3 is returned unchanged")
def what_0_3_sends_comes_back(at: Speaker) -> None:
    for name in ("message-user-full", "message-user-minimal"):
        sent = json.loads((_SPEC / f"v0_3-{name}.json").read_text())
        for place in ("taskId", "contextId"):
            sent.pop(place, None)
        sent["parts"].insert(0, {"kind": "text", "text": "echo"})
        back = old(at).ask("SendMessage", {"message": sent}).result
        first = back["history"][0]
        assert {**sent, "taskId": back["id"], "contextId": back["contextId"]} == first
        assert back["artifacts"][0]["parts"] == (sent["parts"][1:] or sent["parts"])
    for file in sorted(_SPEC.glob("v0_3-part-*.json")):
        part = json.loads(file.read_text())
        assert v03.parts_of(v03.task(old(at), "echo", part)) == [part], file.name
