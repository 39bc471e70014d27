"""Which version a request is of: its method says it, its header must agree, and the answer is in that version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Extension, Limits
from a2a_sync.codec import by_version
from a2a_sync.errors import UnsupportedOperationError
from a2a_sync.operations import OPERATIONS
from tests.scenarios.agent import ScenarioAgent
from tests.wsgi import Answer, Peer, message, message_v03, rpc

pytestmark = pytest.mark.timeout(60)

BOTH = ("1.0", "0.3")


@pytest.fixture(scope="module")
def peers() -> Iterator[dict[tuple[str, ...], Peer]]:
    """A server for each set of versions."""
    sets = (BOTH, ("0.3", "1.0"), ("1.0",), ("0.3",))
    apps = {
        versions: A2AApp(ScenarioAgent(), protocol_versions=versions, limits=Limits(disconnect_check_interval=0.05))
        for versions in sets
    }
    yield {versions: Peer(app) for versions, app in apps.items()}
    for app in apps.values():
        app.close(0)


@pytest.fixture
def peer(peers: dict[tuple[str, ...], Peer]) -> Peer:
    return peers[BOTH]


def ask(peer: Peer, method: str, version: str | None, params: Any = None, query: str = "", id: Any = "v") -> Answer:
    headers = {"Content-Type": "application/json"}
    if version is not None:
        headers["A2A-Version"] = version
    return peer.request("POST", "/" + query, rpc(method, params, id), headers)


def refusal(answer: Answer) -> str:
    """The message of a version's refusal."""
    assert (answer.status, answer.error["code"], answer.json["id"]) == (200, -32009, "v")
    assert answer.error["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    text: str = answer.error["message"]
    return text


# -- methods and headers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, "", " ", "0.3", "0.3.0", "0.3.7", " 0.3 ", "0.3,0.3", "0.3, 0.3.1", ","])
def test_a_method_of_0_3_is_answered_in_0_3_without_a_header_and_with_its_own(version: str | None, peer: Peer) -> None:
    task = ask(peer, "message/send", version, message_v03()).result

    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "echo: hi"}]


@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
def test_a_method_of_0_3_under_the_header_of_1_0_gets_the_header_to_send(version: str, peer: Peer) -> None:
    text = refusal(ask(peer, "message/send", version, message_v03()))

    assert "message/send is a method of protocol 0.3" in text
    assert "'A2A-Version: 0.3'" in text


@pytest.mark.parametrize("version", ["0.2", "0.4", "2.0", "99.0", "abc", "v0.3", "0.3,1.0", "1"])
def test_a_method_of_0_3_under_any_other_version_is_refused(version: str, peer: Peer) -> None:
    assert "'A2A-Version: 0.3'" in refusal(ask(peer, "message/send", version, message_v03()))


@pytest.mark.parametrize("version", ["1.0", "1.0.1", "1.0.77", " 1.0 ", "1.0, 1.0", "1.0,1.0.1", "1.0,"])
def test_a_method_of_1_0_is_answered_in_1_0_under_its_header(version: str, peer: Peer) -> None:
    task = ask(peer, "SendMessage", version, message()).result["task"]

    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0", ","])
def test_a_method_of_1_0_without_its_header_gets_the_header_to_send(version: str | None, peer: Peer) -> None:
    answer = ask(peer, "SendMessage", version, message())

    assert "'A2A-Version: 1.0'" in refusal(answer)
    assert answer.error["data"][0]["metadata"] == {"supportedVersions": "1.0, 0.3"}


@pytest.mark.parametrize("version", ["1.1", "1", "10", "2.0", "99.0", "abc", "v1.0", "1.0,0.3", "é", "1.0; drop"])
def test_a_method_of_1_0_under_any_other_version_is_refused(version: str, peer: Peer) -> None:
    text = refusal(ask(peer, "SendMessage", version, message()))

    assert "'A2A-Version: 1.0'" in text
    assert "1.0, 0.3" in text


@pytest.mark.parametrize("version", [None, "", "0.3", "1.0", "99.0", "abc"])
@pytest.mark.parametrize("method", ["DoMagic", "tasks/list", "message/Send", "sendMessage", "/", "v1/message:send"])
def test_an_unknown_method_is_not_found_whatever_the_header(method: str, version: str | None, peer: Peer) -> None:
    answer = ask(peer, method, version)

    assert (answer.status, answer.error["code"], answer.json["id"]) == (200, -32601, "v")
    assert repr(method) in answer.error["message"]


@pytest.mark.parametrize("version", [None, "0.3", "1.0", "99.0"])
@pytest.mark.parametrize(("body", "code"), [(b"{", -32700), (b"[]", -32600), (b'{"jsonrpc": "2.0"}', -32600)])
def test_an_invalid_request_is_refused_whatever_the_header(
    body: bytes, code: int, version: str | None, peer: Peer
) -> None:
    headers = {"Content-Type": "application/json", **({} if version is None else {"A2A-Version": version})}
    answer = peer.request("POST", "/", body, headers)

    assert (answer.status, answer.error["code"], answer.json["id"]) == (200, code, None)


@pytest.mark.parametrize("version", BOTH)
def test_every_method_is_found(version: str, peer: Peer) -> None:
    for operation in OPERATIONS.values():
        try:
            method = by_version(version).method(operation)
        except UnsupportedOperationError:
            assert version == "0.3"
        else:
            answer = ask(peer, method, version, {})
            assert answer.json.get("error", {}).get("code") not in (-32601, -32009)


# -- the query ----------------------------------------------------------------------------------------------------------


def test_a_version_may_stand_in_the_query(peer: Peer) -> None:
    for version in (None, ""):
        assert ask(peer, "ListTasks", version, query="?A2A-Version=1.0").result["tasks"] is not None
        assert refusal(ask(peer, "tasks/get", version, {"id": "x"}, query="?A2A-Version=1.0"))
    assert refusal(ask(peer, "ListTasks", None, query="?A2A-Version=0.3"))
    assert refusal(ask(peer, "ListTasks", None, query="?a2a=1.0"))


def test_the_header_stands_over_the_query(peer: Peer) -> None:
    assert ask(peer, "ListTasks", "1.0", query="?A2A-Version=0.3").result["tasks"] is not None
    assert refusal(ask(peer, "ListTasks", "0.3", query="?A2A-Version=1.0"))


# -- apps of one version ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, "0.3", "1.0"])
def test_an_app_of_1_0_sends_callers_of_0_3_the_header_to_use(
    version: str | None, peers: dict[tuple[str, ...], Peer]
) -> None:
    answer = ask(peers[("1.0",)], "message/send", version, message_v03())

    assert "protocol 0.3, which is not served here" in refusal(answer)
    assert "'A2A-Version: 1.0'" in refusal(answer)
    assert answer.error["data"][0]["metadata"] == {"supportedVersions": "1.0"}


@pytest.mark.parametrize("version", [None, "0.3", "1.0"])
def test_an_app_of_0_3_sends_callers_of_1_0_the_header_to_use(
    version: str | None, peers: dict[tuple[str, ...], Peer]
) -> None:
    peer = peers[("0.3",)]

    assert "'A2A-Version: 0.3'" in refusal(ask(peer, "SendMessage", version, message()))
    assert ask(peer, "message/send", None, message_v03()).result["kind"] == "task"


def test_the_order_of_the_versions_changes_no_answer(peers: dict[tuple[str, ...], Peer]) -> None:
    peer = peers[("0.3", "1.0")]

    assert ask(peer, "message/send", None, message_v03()).result["kind"] == "task"
    assert "task" in ask(peer, "SendMessage", "1.0", message()).result
    assert refusal(ask(peer, "SendMessage", None, message()))


# -- errors of streams --------------------------------------------------------------------------------------------------


def refused_stream(peer: Peer, version: str, accept: str | None) -> Answer:
    method = "tasks/resubscribe" if version == "0.3" else "SubscribeToTask"
    headers = {"A2A-Version": version, **({} if accept is None else {"Accept": accept})}
    return peer.post(rpc(method, {"id": "no-such-task"}, "s"), headers)


@pytest.mark.parametrize("accept", ["text/event-stream", "Text/Event-Stream;q=1, text/html"])
def test_a_client_of_0_3_that_reads_streams_only_gets_its_error_as_the_only_event(accept: str, peer: Peer) -> None:
    answer = refused_stream(peer, "0.3", accept)

    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    assert answer.body.startswith(b"data: {")
    assert answer.body.endswith(b"}\n\n")
    event = json.loads(answer.body.removeprefix(b"data: "))
    assert (event["id"], event["error"]["code"]) == ("s", -32001)


@pytest.mark.parametrize(
    ("version", "accept"),
    [
        ("0.3", None),
        ("0.3", "*/*"),
        ("0.3", "application/json, text/event-stream"),
        ("1.0", "text/event-stream"),
        ("1.0", None),
    ],
)
def test_every_other_caller_gets_it_as_json(version: str, accept: str | None, peer: Peer) -> None:
    answer = refused_stream(peer, version, accept)

    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert (answer.json["id"], answer.error["code"]) == ("s", -32001)


def test_the_error_of_a_plain_call_is_json_whatever_it_accepts(peer: Peer) -> None:
    answer = peer.post(rpc("tasks/get", {"id": "nope"}), {"A2A-Version": "0.3", "Accept": "text/event-stream"})

    assert answer.error["code"] == -32001


# -- extensions ---------------------------------------------------------------------------------------------------------


class Asked(ScenarioAgent):
    """Says which extensions its caller asked for."""

    extensions = [Extension(uri) for uri in ("urn:b", "urn:a", "urn:c")]

    def do_echo(self, argument: str, context: Any) -> str:
        return " ".join(context.extensions)


@pytest.mark.parametrize(
    ("version", "headers", "heard"),
    [
        ("1.0", {"A2A-Extensions": "urn:a, urn:b"}, "urn:b urn:a"),
        ("1.0", {"X-A2A-Extensions": "urn:a"}, ""),
        ("0.3", {"X-A2A-Extensions": "urn:a, urn:b"}, "urn:b urn:a"),
        ("0.3", {"A2A-Extensions": "urn:a"}, "urn:a"),
        ("0.3", {"A2A-Extensions": "urn:a,urn:c", "X-A2A-Extensions": "urn:b, urn:a,"}, "urn:b urn:a urn:c"),
    ],
)
def test_extensions_are_heard_under_the_names_of_the_request_s_version(
    version: str, headers: dict[str, str], heard: str
) -> None:
    method, params = ("SendMessage", message()) if version == "1.0" else ("message/send", message_v03())
    with A2AApp(Asked()) as app:
        result = Peer(app).post(rpc(method, params), {"A2A-Version": version, **headers}).result

    assert result.get("task", result)["artifacts"][0]["parts"][0]["text"] == heard
