"""A scripted agent for a client under test: a check defines every response, and every request is recorded.

It uses `tests.client.peer`, a real socket server, and speaks either binding of either version according to its card. Calls that a
check does not script get a valid default response.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from tests.client.peer import Asked, Line, Peer, Script, peer
from tests.conformance.wire import NAMES

CARD_PATH = "/.well-known/agent-card.json"
IDS = {"taskId": "t-1", "contextId": "c-1"}
#: The only interface in an agent's card: binding and version.
RPC, REST, RPC_03, REST_03 = ("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")

#: A result, a list of events, or a script.
Part: TypeAlias = "Script | dict[str, Any] | list[Any] | None"


def task(state: str = "COMPLETED", **members: Any) -> dict[str, Any]:
    return {"id": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}"}, **members}


def status(state: str) -> dict[str, Any]:
    return {"statusUpdate": {**IDS, "status": {"state": f"TASK_STATE_{state}"}}}


def chunk(text: str, artifact: str = "a-1", **members: Any) -> dict[str, Any]:
    parts = [{"text": text}]
    return {"artifactUpdate": {**IDS, "artifact": {"artifactId": artifact, "parts": parts}, **members}}


def old_task(state: str = "completed", **members: Any) -> dict[str, Any]:
    return {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": state}, **members}


def old_status(state: str, *, final: bool) -> dict[str, Any]:
    return {"kind": "status-update", **IDS, "status": {"state": state}, "final": final}


def card(address: str, *interfaces: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """A card of 1.0."""
    return {
        "name": "staged",
        "description": "Plays a part",
        "version": "1",
        "supportedInterfaces": [{"url": address, **one} for one in interfaces],
        "capabilities": {"streaming": True, "extendedAgentCard": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "play", "name": "Play", "description": "Plays", "tags": ["test"]}],
        **members,
    }


def offered(binding: str, version: str, **members: Any) -> dict[str, Any]:
    """An interface of a card, without its URL."""
    return {"protocolBinding": binding, "protocolVersion": version, **members}


def old_card(address: str, **members: Any) -> dict[str, Any]:
    """A card of 0.3."""
    made = card("")
    del made["supportedInterfaces"]
    capabilities = {"streaming": True}
    return {
        **made,
        "capabilities": capabilities,
        "protocolVersion": "0.3.0",
        "url": address,
        "preferredTransport": "JSONRPC",
        **members,
    }


_PAGE = {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
_STREAM: list[Any] = [{"task": task("WORKING")}, status("COMPLETED")]
_OLD_STREAM: list[Any] = [old_task("working"), old_status("completed", final=True)]
_CONFIG = {"id": "h-1", "taskId": "t-1", "url": "https://hooks.example.com/"}


def _harmless(version: str) -> dict[str, Any]:
    new = version == "1.0"
    return {
        "SendMessage": {"task": task()} if new else old_task(),
        "SendStreamingMessage": _STREAM if new else _OLD_STREAM,
        "GetTask": task() if new else old_task(),
        "ListTasks": _PAGE,
        "CancelTask": task("CANCELED") if new else old_task("canceled"),
        "SubscribeToTask": _STREAM if new else _OLD_STREAM,
        "CreateTaskPushNotificationConfig": _CONFIG,
        "GetTaskPushNotificationConfig": _CONFIG,
        "ListTaskPushNotificationConfigs": {"configs": [_CONFIG]},
        "DeleteTaskPushNotificationConfig": None,
        "GetExtendedAgentCard": card("http://unused.example/", offered(*RPC)) if new else old_card("http://unused/"),
    }


class Stage:
    """A running scripted agent. `spoken` is the binding and version of its responses; `asked` are the requests so far."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self.parts = dict(parts)
        self.card: Any = None
        self.server: Peer

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def asked(self) -> list[Asked]:
        """The requests other than those for the card."""
        return [asked for asked in self.server.asked if "/.well-known/" not in asked.path]

    @property
    def operations(self) -> list[str]:
        """The requested operations, in order."""
        return [operation_of(asked)[0] for asked in self.asked]

    def play(self, asked: Asked, line: Line) -> None:
        """Answer one request."""
        if "/.well-known/" in asked.path:
            part = self.parts.get(asked.path, self.card if asked.path == CARD_PATH else None)
            if callable(part):
                part(asked, line)
            elif part is None:
                line.answer(b"nothing here", 404, Content_Type="text/plain")
            else:
                line.answer(part)
            return
        operation, rest, version = operation_of(asked)
        part = self.parts.get(operation, _harmless(version)[operation])
        if callable(part):
            part(asked, line)
        elif isinstance(part, list):
            stream(*part)(asked, line)
        elif rest:
            line.answer(part if part is not None else b"", 200 if part is not None else 204)
        else:
            line.result(part)


def operation_of(asked: Asked) -> tuple[str, bool, str]:
    """The operation of a request, whether it uses HTTP+JSON, and its version."""
    path = asked.path.partition("?")[0]
    if asked.method == "POST" and asked.body.startswith(b'{"jsonrpc"'):
        method = asked.rpc["method"]
        for name in NAMES:
            if method in (name.method, name.old):
                return name.method, False, "1.0" if method == name.method else "0.3"
    version = "0.3" if re.search(r"/v1/", path) else "1.0"
    for name in NAMES:
        template = re.sub(r"\\\{\w+\\\}", "[^/]+?", re.escape(name.path))
        if re.search(template + "$", path) and asked.method == name.verb:
            return name.method, True, version
    raise AssertionError(f"no operation: {asked.method} {asked.path} {asked.body[:200]!r}")


def stream(*events: Any, end: bool = True) -> Script:
    """A whole stream of events in the envelope of the request's binding; without an `end` the connection is closed."""

    def script(asked: Asked, line: Line) -> None:
        _, rest, _ = operation_of(asked)
        line.start_stream()
        for event in events:
            line.piece(b"data: " + json.dumps(event if rest else enveloped(asked, event)).encode() + b"\n\n")
        if end:
            line.end_stream()
        else:
            line.hang_up()

    return script


def enveloped(asked: Asked, result: Any) -> dict[str, Any]:
    """A result in the JSON-RPC envelope."""
    return {"jsonrpc": "2.0", "id": asked.rpc["id"], "result": result}


def raw(data: bytes, every: int = 0) -> Script:
    """A stream of these bytes, in chunks of `every` bytes if given."""

    def script(asked: Asked, line: Line) -> None:
        line.start_stream()
        for start in range(0, len(data), every or len(data)):
            line.piece(data[start : start + (every or len(data))])
        line.end_stream()

    return script


@contextmanager
def staged(*interfaces: tuple[str, str], parts: Mapping[str, Part] | None = None, **members: Any) -> Iterator[Stage]:
    """A scripted agent whose card has `interfaces` (binding and version) at ``/api``; `members` are those of the card."""
    stage = Stage(parts or {})
    with peer(stage.play) as server:
        stage.server = server
        stage.card = card(f"{server.url}/api", *(offered(*one) for one in interfaces or (RPC,)), **members)
        yield stage


def said(asked: Sequence[Asked]) -> list[Any]:
    """The params of requests."""
    values = [json.loads(one.body) for one in asked if one.body]
    return [value.get("params", value) for value in values]
