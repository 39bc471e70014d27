"""Bytes that a caller chose and an answer repeats: however many are sent, in whichever member, a bounded number come back.

Every case runs over both bindings and both versions where the member exists there. The app has every feature switched on that
answers with something of the request.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Limits, PushOptions
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.server.bounds import LONGEST_HEADER, LONGEST_ID
from tests.hostile import Tongue
from tests.wsgi import CARD, Answer, Peer, message, message_v03, rpc

pytestmark = pytest.mark.timeout(60)

LONG = "q" * 100_000
TONGUES = {"1.0": Tongue("1.0"), "0.3": Tongue("0.3")}
JSON_TYPE = {"Content-Type": "application/json"}


def make_agent() -> Agent:
    agent = Agent("echo", input_modes=["text/plain"])

    @agent.message
    def handle(message: Any, context: Any) -> Any:
        for number in range(50):
            yield f"piece {number}"

    return agent


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    push = PushOptions(url_guard=URLGuard(allow=["127.0.0.1"]))
    with A2AApp(make_agent(), push=push, cors=["*"], limits=Limits(max_metadata_bytes=4096)) as app:
        yield Peer(app, valid=False)


@pytest.fixture(scope="module")
def task_id(peer: Peer) -> str:
    found: str = peer.call("SendMessage", message()).result["task"]["id"]
    return found


def longest_echo(answer: Answer) -> int:
    """The length of the longest run of the caller's bytes in headers and body."""
    text = "\n".join(f"{name}: {value}" for name, value in answer.headers.items()) + "\n" + answer.body.decode()
    return max((len(list(run)) for letter, run in itertools.groupby(text) if letter == "q"), default=0)


# -- members of requests, over JSON-RPC ---------------------------------------------------------------------------------


def sends(version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    say = message if version == "1.0" else message_v03
    for member in ("messageId", "contextId", "taskId"):
        yield f"message.{member}", say(**{member: LONG})
    for member in ("referenceTaskIds", "extensions"):
        yield f"message.{member}", say(**{member: [LONG]})
    yield "message.metadata", say(metadata={LONG: LONG})
    yield "metadata", {**say(), "metadata": {"a": LONG}}
    yield "an unknown role", say(role=LONG)
    yield "mediaType", say(parts=[{"text": "x", "mediaType": LONG} if version == "1.0" else {"kind": LONG}])
    yield "an unknown member", {**say(), LONG: LONG}
    yield "output modes", {**say(), "configuration": {"acceptedOutputModes": [LONG]}}
    yield "history length", {**say(), "configuration": {"historyLength": LONG}}
    if version == "1.0":
        yield "tenant", {**say(), "tenant": LONG}


def reads(task_id: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        yield method, "id", {"id": LONG}
        yield method, "tenant", {"id": task_id, "tenant": LONG}
        yield method, "metadata", {"id": task_id, "metadata": {LONG: LONG}}
    for member in ("contextId", "pageToken", "status", "statusTimestampAfter", "tenant", "pageSize"):
        yield "ListTasks", member, {member: LONG}
    config = {"taskId": task_id, "url": "http://127.0.0.1:9/hook"}
    for member in ("id", "taskId", "url", "token", "tenant"):
        yield "CreateTaskPushNotificationConfig", member, {**config, member: LONG}
    yield "CreateTaskPushNotificationConfig", "a long URL", {**config, "url": f"http://127.0.0.1:9/{LONG}"}
    for member in ("scheme", "credentials"):
        authentication = {"scheme": "Bearer", "credentials": "x", member: LONG}
        yield "CreateTaskPushNotificationConfig", member, {**config, "authentication": authentication}
    for method in ("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"):
        for member in ("id", "taskId", "tenant"):
            yield method, member, {"taskId": task_id, "id": "c", member: LONG}
    for member in ("taskId", "tenant", "pageToken"):
        yield "ListTaskPushNotificationConfigs", member, {"taskId": task_id, member: LONG}
    yield "GetExtendedAgentCard", "tenant", {"tenant": LONG}


@pytest.mark.parametrize("version", TONGUES)
def test_json_rpc_repeats_little_of_any_member(peer: Peer, task_id: str, version: str) -> None:
    tongue = TONGUES[version]
    cases = [
        (method, name, params) for method in ("SendMessage", "SendStreamingMessage") for name, params in sends(version)
    ]
    served = [
        (method, name, params) for method, name, params in reads(task_id) if version == "1.0" or method != "ListTasks"
    ]
    for method, name, params in [*cases, *served]:
        answer = peer.post(tongue.rpc(method, params), {"A2A-Version": version})
        assert longest_echo(answer) <= LONGEST_ID, (method, name)


@pytest.mark.parametrize("version", TONGUES)
def test_http_json_repeats_little_of_any_member(peer: Peer, task_id: str, version: str) -> None:
    prefix = "" if version == "1.0" else "/v1"
    headers = {**JSON_TYPE, "A2A-Version": version}
    for path in ("/message:send", "/message:stream"):
        for name, params in sends(version):
            answer = peer.request("POST", prefix + path, json.dumps(params).encode(), headers)
            assert longest_echo(answer) <= LONGEST_ID, (path, name)
    configs = f"{prefix}/tasks/{task_id}/pushNotificationConfigs"
    paths = [
        ("GET", f"{prefix}/tasks/{LONG}"),
        ("POST", f"{prefix}/tasks/{LONG}:cancel"),
        ("POST", f"{prefix}/tasks/{LONG}:subscribe"),
        ("GET", f"{prefix}/tasks/{task_id}?historyLength={LONG}"),
        ("GET", f"{prefix}/tasks/{LONG}/pushNotificationConfigs"),
        ("GET", f"{configs}/{LONG}"),
        ("DELETE", f"{configs}/{LONG}"),
        ("GET", f"{configs}?pageToken={LONG}"),
        (LONG, f"{prefix}/tasks/{task_id}"),
        (LONG, f"{prefix}/message:send"),
        ("GET", f"{prefix}/{LONG}"),
        *(
            ("GET", f"{prefix}/tasks?{member}={LONG}")
            for member in ("contextId", "pageToken", "status", "statusTimestampAfter", "tenant", "pageSize", LONG)
        ),
        *((("GET", f"/{LONG}/tasks/{task_id}"), ("GET", f"/{LONG}/tasks")) if version == "1.0" else ()),
    ]
    for verb, path in paths:
        answer = peer.request(verb, path, b"", {"A2A-Version": version})
        assert longest_echo(answer) <= LONGEST_ID, (verb[:10], path[:60])
    for method, name, params in reads(task_id):
        if method == "CreateTaskPushNotificationConfig":
            answer = peer.request("POST", configs, json.dumps(params).encode(), headers)
            assert longest_echo(answer) <= LONGEST_ID, name


# -- headers, paths and verbs -------------------------------------------------------------------------------------------

HEADERS = (
    "A2A-Version",
    "A2A-Extensions",
    "X-A2A-Extensions",
    "Idempotency-Key",
    "Content-Type",
    "Accept",
    "Host",
    "Origin",
    "Last-Event-ID",
    "Authorization",
    "If-None-Match",
    "Range",
    "User-Agent",
    "Accept-Language",
    "X-Request-Id",
    "Tracestate",
    "X-Forwarded-Host",
)


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("version", TONGUES)
def test_no_header_comes_back(peer: Peer, task_id: str, version: str, header: str) -> None:
    tongue, prefix = TONGUES[version], "" if version == "1.0" else "/v1"
    headers = {**JSON_TYPE, "A2A-Version": version, header: LONG}
    answers = [
        peer.request("POST", "/", tongue.rpc("SendMessage", tongue.message()), headers),
        peer.request("POST", "/", tongue.rpc("SendStreamingMessage", tongue.message()), headers),
        peer.request("POST", "/", tongue.rpc("GetExtendedAgentCard", {}), headers),
        peer.request("POST", f"{prefix}/message:send", json.dumps(tongue.message()).encode(), headers),
        peer.request("GET", f"{prefix}/tasks/{task_id}", b"", headers),
        peer.request("GET", CARD, b"", headers),
        peer.request("GET", f"{CARD}?A2A-Version={LONG}", b"", headers),
        peer.request("OPTIONS", "/", b"", {**headers, "Access-Control-Request-Method": "POST"}),
    ]
    assert [longest_echo(answer) <= LONGEST_ID for answer in answers] == [True] * len(answers)


@pytest.mark.parametrize("host", ["q" * 64, "a..b", "\u00e9" * 64, "q" * 8000, "q." * 4000], ids=len)
def test_a_host_that_no_url_can_hold_is_bad_input(peer: Peer, host: str) -> None:
    headers = {**JSON_TYPE, "A2A-Version": "1.0", "Host": host}
    answer = peer.request("GET", CARD, b"", headers)
    assert answer.status in (200, 400)
    assert len(answer.body) < 8192
    extended = peer.post(rpc("GetExtendedAgentCard", {}), headers)
    assert extended.status in (200, 400)


def test_headers_that_are_stored_with_a_run_are_bounded(peer: Peer) -> None:
    for header in ("User-Agent", "X-Request-Id", "Accept-Language"):
        refused = peer.post(rpc("SendMessage", message()), {header: "q" * (LONGEST_HEADER + 1)})
        assert refused.error["code"] == -32602
        assert header.lower() in refused.error["message"]
        assert peer.post(rpc("SendMessage", message()), {header: "q" * LONGEST_HEADER}).result["task"]


def test_a_preflight_repeats_no_long_list_of_headers(peer: Peer) -> None:
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    answer = peer.request("OPTIONS", "/", b"", {**asked, "Access-Control-Request-Headers": LONG})
    assert longest_echo(answer) <= LONGEST_ID


@pytest.mark.parametrize("path", ["/", "/nowhere", CARD, "/readyz", f"/{LONG}"])
def test_verbs_and_paths_that_do_not_exist_are_not_repeated(peer: Peer, path: str) -> None:
    for verb in (LONG, "GET", "POST"):
        assert longest_echo(peer.request(verb, path)) <= LONGEST_ID


def test_the_prefix_of_a_mount_is_not_repeated_at_any_length(peer: Peer) -> None:
    answer = peer.request("GET", CARD, environ={"SCRIPT_NAME": f"/{LONG}"})
    assert longest_echo(answer) <= LONGEST_ID


# -- the id of JSON-RPC -------------------------------------------------------------------------------------------------


LONG_IDS = {
    "a text one too long": "q" * (LONGEST_ID + 1),
    "a text": LONG,
    "a number": 10**LONGEST_ID,
    "a negative number": -(10 ** (LONGEST_ID - 1)),
}
LONGEST_IDS = {
    "a text": "q" * LONGEST_ID,
    "letters of two bytes": "\u00e9" * LONGEST_ID,
    "a number": 10 ** (LONGEST_ID - 1),
    "nothing": "",
    "zero": 0,
}


@pytest.mark.parametrize("id", LONG_IDS.values(), ids=LONG_IDS)
@pytest.mark.parametrize("version", TONGUES)
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage", "GetTask", "SubscribeToTask", "nothing"])
def test_a_long_id_is_refused_and_not_repeated(peer: Peer, version: str, method: str, id: Any) -> None:
    tongue = TONGUES[version]
    params = tongue.message() if method.startswith("Send") else {"id": "x"}
    answer = peer.post(tongue.rpc(method, params, id), {"A2A-Version": version})
    assert (answer.status, answer.error["code"], answer.json["id"]) == (200, -32600, None)
    assert str(LONGEST_ID) in answer.error["message"]


@pytest.mark.parametrize("id", LONGEST_IDS.values(), ids=LONGEST_IDS)
def test_an_id_of_the_longest_kind_comes_back_as_it_was(peer: Peer, id: Any) -> None:
    assert peer.call("ListTasks", {}, id).json["id"] == id


def test_a_long_id_is_refused_beside_other_faults(peer: Peer) -> None:
    answer = peer.post(json.dumps({"jsonrpc": "1.0", "id": LONG, "method": ""}).encode())
    assert (answer.error["code"], answer.json["id"]) == (-32600, None)


# -- what is written at once --------------------------------------------------------------------------------------------


def test_the_events_of_a_page_are_not_joined_into_one_write(task_id: str, peer: Peer) -> None:
    size, count = 20_000, 100
    agent = Agent("large")

    @agent.message
    def handle(message: Any, context: Any) -> Any:
        for _ in range(count):
            yield "y" * size

    with A2AApp(agent) as app:
        peer = Peer(app)
        task = peer.call("SendMessage", message(), id="i" * LONGEST_ID).result["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        # Everything but the first entry is in the log already: it is read in pages of many entries.
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "Last-Event-ID": "1"}
        with peer.open("POST", "/", rpc("SubscribeToTask", {"id": task["id"]}), headers) as answer:
            chunks = list(answer.chunks)
    assert sum(map(len, chunks)) > size * count
    assert max(map(len, chunks)) < 5 * size
