"""Bytes of a request that a response repeats are limited in number, for any member and any length.

Every case runs over both bindings, and in both versions if they have the member. The app has all features enabled that repeat a
part of the request.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from a2a_sync import A2AApp, Agent, Limits, PushOptions
from a2a_sync.outbound.urlguard import URLGuard
from a2a_sync.server.bounds import MAX_HEADER_LENGTH, MAX_ID_LENGTH
from a2a_sync.wsgi.options import HTTPOptions
from tests.hostile import Dialect
from tests.wsgi import CARD, Answer, Peer, message, message_v03, rpc

pytestmark = pytest.mark.timeout(60)

LONG = "q" * 100_000
DIALECTS = {"1.0": Dialect("1.0"), "0.3": Dialect("0.3")}
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
    with A2AApp(
        make_agent(), push=push, http=HTTPOptions(cors_origins=["*"]), limits=Limits(max_metadata_bytes=4096)
    ) as app:
        yield Peer(app, valid=False)


@pytest.fixture(scope="module")
def task_id(peer: Peer) -> str:
    found: str = peer.call("SendMessage", message()).result["task"]["id"]
    return found


def longest_echo(answer: Answer) -> int:
    """The length of the longest sequence of the caller's bytes in headers and body."""
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


@pytest.mark.parametrize("version", DIALECTS)
def test_json_rpc_limits_repeated_bytes_of_any_member(peer: Peer, task_id: str, version: str) -> None:
    dialect = DIALECTS[version]
    cases = [
        (method, name, params) for method in ("SendMessage", "SendStreamingMessage") for name, params in sends(version)
    ]
    served = [
        (method, name, params) for method, name, params in reads(task_id) if version == "1.0" or method != "ListTasks"
    ]
    for method, name, params in [*cases, *served]:
        answer = peer.post(dialect.rpc(method, params), {"A2A-Version": version})
        assert longest_echo(answer) <= MAX_ID_LENGTH, (method, name)


@pytest.mark.parametrize("version", DIALECTS)
def test_http_json_limits_repeated_bytes_of_any_member(peer: Peer, task_id: str, version: str) -> None:
    prefix = "" if version == "1.0" else "/v1"
    headers = {**JSON_TYPE, "A2A-Version": version}
    for path in ("/message:send", "/message:stream"):
        for name, params in sends(version):
            answer = peer.request("POST", prefix + path, json.dumps(params).encode(), headers)
            assert longest_echo(answer) <= MAX_ID_LENGTH, (path, name)
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
        assert longest_echo(answer) <= MAX_ID_LENGTH, (verb[:10], path[:60])
    for method, name, params in reads(task_id):
        if method == "CreateTaskPushNotificationConfig":
            answer = peer.request("POST", configs, json.dumps(params).encode(), headers)
            assert longest_echo(answer) <= MAX_ID_LENGTH, name


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
@pytest.mark.parametrize("version", DIALECTS)
def test_headers_are_not_repeated(peer: Peer, task_id: str, version: str, header: str) -> None:
    dialect, prefix = DIALECTS[version], "" if version == "1.0" else "/v1"
    headers = {**JSON_TYPE, "A2A-Version": version, header: LONG}
    answers = [
        peer.request("POST", "/", dialect.rpc("SendMessage", dialect.message()), headers),
        peer.request("POST", "/", dialect.rpc("SendStreamingMessage", dialect.message()), headers),
        peer.request("POST", "/", dialect.rpc("GetExtendedAgentCard", {}), headers),
        peer.request("POST", f"{prefix}/message:send", json.dumps(dialect.message()).encode(), headers),
        peer.request("GET", f"{prefix}/tasks/{task_id}", b"", headers),
        peer.request("GET", CARD, b"", headers),
        peer.request("GET", f"{CARD}?A2A-Version={LONG}", b"", headers),
        peer.request("OPTIONS", "/", b"", {**headers, "Access-Control-Request-Method": "POST"}),
    ]
    assert [longest_echo(answer) <= MAX_ID_LENGTH for answer in answers] == [True] * len(answers)


@pytest.mark.parametrize("host", ["q" * 64, "a..b", "\u00e9" * 64, "q" * 8000, "q." * 4000], ids=len)
def test_an_invalid_host_header_is_refused(peer: Peer, host: str) -> None:
    headers = {**JSON_TYPE, "A2A-Version": "1.0", "Host": host}
    answer = peer.request("GET", CARD, b"", headers)
    assert answer.status in (200, 400)
    assert len(answer.body) < 8192
    extended = peer.post(rpc("GetExtendedAgentCard", {}), headers)
    assert extended.status in (200, 400)


def test_headers_stored_with_a_run_are_limited(peer: Peer) -> None:
    for header in ("User-Agent", "X-Request-Id", "Accept-Language"):
        refused = peer.post(rpc("SendMessage", message()), {header: "q" * (MAX_HEADER_LENGTH + 1)})
        assert refused.error["code"] == -32602
        assert header.lower() in refused.error["message"]
        assert peer.post(rpc("SendMessage", message()), {header: "q" * MAX_HEADER_LENGTH}).result["task"]


def test_a_preflight_limits_repeated_headers(peer: Peer) -> None:
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    answer = peer.request("OPTIONS", "/", b"", {**asked, "Access-Control-Request-Headers": LONG})
    assert longest_echo(answer) <= MAX_ID_LENGTH


@pytest.mark.parametrize("path", ["/", "/nowhere", CARD, "/readyz", f"/{LONG}"])
def test_unknown_verbs_and_paths_are_not_repeated(peer: Peer, path: str) -> None:
    for verb in (LONG, "GET", "POST"):
        assert longest_echo(peer.request(verb, path)) <= MAX_ID_LENGTH


def test_a_long_mount_prefix_is_not_repeated(peer: Peer) -> None:
    answer = peer.request("GET", CARD, environ={"SCRIPT_NAME": f"/{LONG}"})
    assert longest_echo(answer) <= MAX_ID_LENGTH


# -- the id of JSON-RPC -------------------------------------------------------------------------------------------------


LONG_IDS = {
    "a text one too long": "q" * (MAX_ID_LENGTH + 1),
    "a text": LONG,
    "a number": 10**MAX_ID_LENGTH,
    "a negative number": -(10 ** (MAX_ID_LENGTH - 1)),
}
MAX_ID_LENGTHS = {
    "a text": "q" * MAX_ID_LENGTH,
    "letters of two bytes": "\u00e9" * MAX_ID_LENGTH,
    "a number": 10 ** (MAX_ID_LENGTH - 1),
    "nothing": "",
    "zero": 0,
}


@pytest.mark.parametrize("id", LONG_IDS.values(), ids=LONG_IDS)
@pytest.mark.parametrize("version", DIALECTS)
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage", "GetTask", "SubscribeToTask", "nothing"])
def test_a_long_id_is_refused_and_not_repeated(peer: Peer, version: str, method: str, id: Any) -> None:
    dialect = DIALECTS[version]
    params = dialect.message() if method.startswith("Send") else {"id": "x"}
    answer = peer.post(dialect.rpc(method, params, id), {"A2A-Version": version})
    assert (answer.status, answer.error["code"], answer.json["id"]) == (200, -32600, None)
    assert str(MAX_ID_LENGTH) in answer.error["message"]


@pytest.mark.parametrize("id", MAX_ID_LENGTHS.values(), ids=MAX_ID_LENGTHS)
def test_an_id_of_maximum_length_is_returned_unchanged(peer: Peer, id: Any) -> None:
    assert peer.call("ListTasks", {}, id).json["id"] == id


def test_a_long_id_is_refused_along_with_other_errors(peer: Peer) -> None:
    answer = peer.post(json.dumps({"jsonrpc": "1.0", "id": LONG, "method": ""}).encode())
    assert (answer.error["code"], answer.json["id"]) == (-32600, None)


# -- size of a write ----------------------------------------------------------------------------------------------------


def test_the_events_of_a_page_are_written_separately(task_id: str, peer: Peer) -> None:
    size, count = 20_000, 100
    agent = Agent("large")

    @agent.message
    def handle(message: Any, context: Any) -> Any:
        for _ in range(count):
            yield "y" * size

    with A2AApp(agent) as app:
        peer = Peer(app)
        task = peer.call("SendMessage", message(), id="i" * MAX_ID_LENGTH).result["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        # All entries but the first are in the log already, which is read in pages of many entries.
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "Last-Event-ID": "1"}
        with peer.open("POST", "/", rpc("SubscribeToTask", {"id": task["id"]}), headers) as answer:
            chunks = list(answer.chunks)
    assert sum(map(len, chunks)) > size * count
    assert max(map(len, chunks)) < 5 * size
