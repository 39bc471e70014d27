"""Valid HTTP+JSON requests in each version, and random mutations of their paths, queries and bodies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from tests.hostile.mutations import (
    ASKED,
    FINISHED,
    LISTS,
    OF_BYTES,
    OF_REQUESTS,
    OF_TREES,
    SENDS,
    VALUES,
    WEBHOOK,
    HttpRequest,
    Members,
    Mutator,
    snake,
    tree,
    write,
)
from tests.wsgi import CARD, OLD_CARD


@dataclass(frozen=True)
class Call:
    """A valid request with words that are replaced by values that only the server knows."""

    verb: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None


@dataclass(frozen=True)
class Grammar:
    """The valid requests of one version by operation, with their weights."""

    version: str
    calls: dict[str, list[Call]]
    weights: dict[str, int] = field(
        default_factory=lambda: {
            "SendMessage": 6,
            "SendStreamingMessage": 5,
            "GetTask": 5,
            "ListTasks": 5,
            "CancelTask": 3,
            "SubscribeToTask": 3,
        }
    )

    @property
    def operations(self) -> list[str]:
        """Each operation as often as its weight."""
        return [name for name in self.calls for _ in range(self.weights.get(name, 1))]


def posted(path: str, *bodies: Any) -> list[Call]:
    return [Call("POST", path, body=body) for body in bodies]


def listed(prefix: str, members: dict[str, Any]) -> Call:
    words = {True: "true", False: "false"}
    return Call(
        "GET", f"{prefix}/tasks", tuple((name, words.get(value, str(value))) for name, value in members.items())
    )


HOOKS = f"/tasks/{FINISHED}/pushNotificationConfigs"
HISTORY = (("historyLength", "1"),)


def by_id(prefix: str) -> dict[str, list[Call]]:
    """The operations on one task that both versions have."""
    hooks = prefix + HOOKS
    return {
        "GetTask": [
            Call("GET", f"{prefix}/tasks/{FINISHED}"),
            Call("GET", f"{prefix}/tasks/{ASKED}", HISTORY),
            Call("GET", f"{prefix}/tasks/{FINISHED}", (("history_length", "0"), ("x", "y"))),
        ],
        "CancelTask": posted(f"{prefix}/tasks/{ASKED}:cancel", None, {}, {"metadata": {"why": "because"}}),
        "SubscribeToTask": [Call(verb, f"{prefix}/tasks/{ASKED}:subscribe") for verb in ("GET", "POST")],
        "GetTaskPushNotificationConfig": [Call("GET", f"{hooks}/p-1")],
        "ListTaskPushNotificationConfigs": [Call("GET", hooks, (("pageSize", "5"),))],
        "DeleteTaskPushNotificationConfig": [Call("DELETE", f"{hooks}/p-1")],
    }


CALLS: dict[str, list[Call]] = {
    "SendMessage": posted("/message:send", *SENDS),
    "SendStreamingMessage": posted("/message:stream", *SENDS),
    "ListTasks": [listed("", members) for members in LISTS],
    "CreateTaskPushNotificationConfig": posted(HOOKS, {"url": "https://x.example", "token": "t"}),
    "GetExtendedAgentCard": [Call("GET", "/extendedAgentCard")],
    **by_id(""),
}
OLD_PARTS: list[dict[str, Any]] = [
    {"text": "Hello"},
    {"text": "", "metadata": {"a": [1, 2.5, None, {"b": True}]}},
    {"file": {"fileWithBytes": "+/8=", "name": "a.bin", "mimeType": "application/octet-stream"}},
    {"file": {"file_with_uri": "https://files.example/a.csv", "mime_type": "text/csv"}},
    {"data": {"data": {"order": 7, "items": [{"name": "é😀", "price": 1e3}]}}},
    {"data": {"data": {"value": None}}, "metadata": {"data_part_compat": True}},
    {"kind": "text", "text": "a part that says what it is"},
]
OLD_MESSAGES: list[dict[str, Any]] = [
    {"messageId": "m-1", "role": "ROLE_USER", "content": OLD_PARTS[:1]},
    {"messageId": "m-2", "role": 1, "content": OLD_PARTS, "contextId": "c-1", "metadata": {"k": {"deep": [[]]}}},
    {"message_id": "m-3", "role": "ROLE_USER", "content": OLD_PARTS[2:5], "extensions": ["https://x.example"]},
    {"messageId": "m-4", "role": "ROLE_USER", "content": [{"text": "ask"}], "referenceTaskIds": [FINISHED]},
    {"messageId": "m-5", "role": "ROLE_USER", "content": OLD_PARTS[:2], "taskId": ASKED},
    {"kind": "message", "messageId": "m-6", "role": "user", "parts": [{"kind": "text", "text": "the other dialect"}]},
]
OLD_CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"historyLength": 0, "acceptedOutputModes": ["text/plain"], "blocking": True},
    {"historyLength": 2, "blocking": False},
]
OLD_SENDS = [
    {"message": message, **extra}
    for message in OLD_MESSAGES
    for extra in [{}, *({"configuration": c, "metadata": {"m": 1}} for c in OLD_CONFIGURATIONS)]
]
OLD_CALLS: dict[str, list[Call]] = {
    "SendMessage": posted("/v1/message:send", *OLD_SENDS),
    "SendStreamingMessage": posted("/v1/message:stream", *OLD_SENDS),
    "ListTasks": [listed("/v1", members) for members in LISTS],
    "CreateTaskPushNotificationConfig": posted(
        "/v1" + HOOKS,
        {"parent": f"tasks/{FINISHED}", "configId": "p-1", "config": {"pushNotificationConfig": WEBHOOK}},
        {"pushNotificationConfig": WEBHOOK},
    ),
    "GetExtendedAgentCard": [Call("GET", "/v1/card")],
    **by_id("/v1"),
}
GRAMMARS = {"1.0": Grammar("1.0", CALLS), "0.3": Grammar("0.3", OLD_CALLS)}

# -- mutations ----------------------------------------------------------------------------------------------------------

SEGMENTS = [
    *(
        "",
        ".",
        "..",
        "v1",
        "tasks",
        "message:send",
        "%2F",
        "%00",
        "%ff",
        "%",
        "%zz",
        ":cancel",
        "é",
        "acme",
        "%E2%82%AC",
    ),
    *(
        "v%31",
        "a" * 3000,
        FINISHED,
        ASKED,
        "pushNotificationConfigs",
        "card",
        "extendedAgentCard",
        ";x=1",
        "*",
        "a:b:c",
    ),
]
WORDS = ["", ":cancel", ":subscribe", ":", ":Cancel", "%3Acancel", ":cancel:cancel", ":resubscribe"]
QUERIES = ["", "?", "&&&", "=", "%ff=1", "a=%ff", "%00=%00", "A2A-Version=1.0", "A2A-Version=0.3", "tenant=acme"]
NAMES = [
    *("pageSize", "page_size", "pageToken", "status", "contextId", "historyLength", "includeArtifacts", "tenant", "id"),
    *("statusTimestampAfter", "taskId", "metadata", "message", "x", "", "é", "A2A-Version"),
]
TEXTS = [str(value) for value in VALUES if isinstance(value, (str, int, float))] + [
    "[]",
    "{}",
    "null",
    "TRUE",
    "0x1",
    "5",
]


class PathMutator(Mutator):
    """Draws mutations of paths (lists of percent-encoded segments) and of queries (lists of pairs)."""

    def drop_segment(self, segments: list[str]) -> None:
        if segments:
            del segments[self.number(len(segments))]

    def insert_segment(self, segments: list[str]) -> None:
        segments.insert(self.number(len(segments) + 1), self.pick(SEGMENTS))

    def replace_segment(self, segments: list[str]) -> None:
        if segments:
            segments[self.number(len(segments))] = self.pick(SEGMENTS)

    def repeat_segment(self, segments: list[str]) -> None:
        if segments:
            place = self.number(len(segments))
            segments.insert(place, segments[place])

    def end_segment(self, segments: list[str]) -> None:
        if segments:
            head, _, _ = segments[-1].partition(":")
            segments[-1] = head + self.pick(WORDS)

    def encode_letter(self, segments: list[str]) -> None:
        if segments:
            place = self.number(len(segments))
            text = segments[place]
            at = self.number(len(text) + 1)
            if text[at : at + 1].isascii() and text[at : at + 1]:
                segments[place] = f"{text[:at]}%{ord(text[at]):02{self.pick('xX')}}{text[at + 1 :]}"

    def add_pair(self, pairs: list[tuple[str, str]]) -> None:
        pairs.append((self.pick(NAMES), self.pick(TEXTS)))

    def drop_pair(self, pairs: list[tuple[str, str]]) -> None:
        if pairs:
            del pairs[self.number(len(pairs))]

    def double_pair(self, pairs: list[tuple[str, str]]) -> None:
        if pairs:
            pairs.append(self.pick(pairs))

    def change_pair(self, pairs: list[tuple[str, str]]) -> None:
        if pairs:
            place = self.number(len(pairs))
            name, text = pairs[place]
            pairs[place] = self.pick(
                [(name, self.pick(TEXTS)), (snake(name), text), (name.upper(), text), (text, name)]
            )


OF_PATHS: list[Callable[[PathMutator, list[str]], None]] = [
    *(PathMutator.drop_segment, PathMutator.insert_segment, PathMutator.replace_segment, PathMutator.repeat_segment),
    *(PathMutator.end_segment, PathMutator.end_segment, PathMutator.encode_letter, PathMutator.encode_letter),
]
OF_QUERIES: list[Callable[[PathMutator, list[tuple[str, str]]], None]] = [
    *(PathMutator.add_pair, PathMutator.add_pair, PathMutator.drop_pair, PathMutator.double_pair),
    *(PathMutator.change_pair, PathMutator.change_pair, PathMutator.change_pair),
]


def damaged_request(random: Random, grammar: Grammar) -> HttpRequest:
    """A valid request with zero, one or a few mutations of its path, query, body or headers."""
    mutator = PathMutator(random)
    headers = {"A2A-Version": grammar.version} if grammar.version == "1.0" or mutator.pick([True, False]) else {}
    if mutator.number(30) == 0:
        path = mutator.pick([CARD, OLD_CARD])
        return HttpRequest(mutator.pick(["GET", "HEAD"]), path, headers, b"")
    call: Call = mutator.pick(grammar.calls[mutator.pick(grammar.operations)])
    body = b""
    if call.verb == "POST":
        headers["Content-Type"] = mutator.pick(["application/json", "application/a2a+json"])
        body = b"" if call.body is None else written(mutator, call.body)
    request = HttpRequest(call.verb, address(mutator, call), headers, body)
    for _ in range(mutator.pick([0, 0, 0, 0, 0, 1, 1, 2])):
        request = mutator.pick(OF_REQUESTS)(mutator, request)
    return request


def written(mutator: PathMutator, value: Any) -> bytes:
    root = tree(value)
    for _ in range(mutator.pick([0, 0, 0, 1, 1, 1, 2, 3])):
        mutator.pick(OF_TREES)(mutator, root if root else Members([("x", 1)]))
    body = write(root)
    for _ in range(mutator.pick([*[0] * 10, 1, 2])):
        body = mutator.pick(OF_BYTES)(mutator, body)
    return body


def address(mutator: PathMutator, call: Call) -> str:
    segments = call.path.split("/")[1:]
    if call.path[:3] != "/v1" and mutator.number(8) == 0:
        segments.insert(0, mutator.pick(["acme", "a%20b", "é", "tasks"]))
    for _ in range(mutator.pick([0, 0, 0, 0, 0, 1, 1, 2])):
        mutator.pick(OF_PATHS)(mutator, segments)
    pairs = list(call.query)
    for _ in range(mutator.pick([0, 0, 0, 1, 1, 2]) if call.verb == "GET" else mutator.pick([0, 0, 0, 0, 0, 1])):
        mutator.pick(OF_QUERIES)(mutator, pairs)
    query = "&".join(f"{quote(name)}={quote(text)}" for name, text in pairs)
    if mutator.number(15) == 0:
        query = mutator.pick(QUERIES) + query
    path = "/" + "/".join(quote(segment, safe="%:;=*") for segment in segments)
    return f"{path}?{query}" if query else path
