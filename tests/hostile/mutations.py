"""Valid HTTP requests to an agent, and random mutations of them.

JSON is mutated as a tree whose objects are lists of pairs, so that members can be duplicated, and whose leaves may be bytes, so
that invalid JSON can be written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.wsgi import CARD, JSON_HEADERS, OLD_CARD

#: Words in a body that are replaced by values that only the server knows.
FINISHED, ASKED, TOKEN = "FINISHED", "ASKED", "TOKEN"


@dataclass(frozen=True)
class HttpRequest:
    """The parts of a request that a client controls."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    environ: dict[str, str] = field(default_factory=dict)


class Members(list[tuple[str, Any]]):
    """A JSON object whose keys may repeat."""


class Raw(bytes):
    """Bytes that are written as they are, valid JSON or not."""


def tree(value: Any) -> Any:
    """`value` in the mutable form."""
    if isinstance(value, dict):
        return Members((key, tree(item)) for key, item in value.items())
    return [tree(item) for item in value] if isinstance(value, list) else value


def write(value: Any) -> bytes:
    """The JSON of a tree."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Members):
        return b"{%b}" % b",".join(json.dumps(key).encode() + b":" + write(item) for key, item in value)
    if isinstance(value, list):
        return b"[%b]" % b",".join(map(write, value))
    return json.dumps(value).encode()


def places(value: Any) -> Iterator[tuple[list[Any], int]]:
    """All members and items below `value`, each as its list and index."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            yield from places(item[1] if isinstance(value, Members) else item)


def look(holder: list[Any], index: int) -> Any:
    return holder[index][1] if isinstance(holder, Members) else holder[index]


def put(holder: list[Any], index: int, value: Any) -> None:
    holder[index] = (holder[index][0], value) if isinstance(holder, Members) else value


# -- valid requests -----------------------------------------------------------------------------------------------------

PARTS: list[dict[str, Any]] = [
    {"text": "Hello"},
    {"text": "", "metadata": {"a": [1, 2.5, None, {"b": True}]}},
    {"raw": "+/8=", "filename": "a.bin", "mediaType": "application/octet-stream"},
    {"url": "https://files.example/a.csv", "mediaType": "text/csv"},
    {"data": {"order": 7, "items": [{"name": "é😀", "price": 1e3}]}},
    {"data": None},
    {"data": [1, "two", False]},
]
MESSAGES = [
    {"messageId": "m-1", "role": "ROLE_USER", "parts": PARTS[:1]},
    {"messageId": "m-2", "role": 1, "parts": PARTS, "contextId": "c-1", "metadata": {"k": {"deep": [[]]}}},
    {"message_id": "m-3", "role": "ROLE_USER", "parts": PARTS[2:5], "extensions": ["https://x.example/ext/v1"]},
    {"messageId": "m-4", "role": "ROLE_USER", "parts": [{"text": "ask"}], "referenceTaskIds": [FINISHED]},
    {"messageId": "m-5", "role": "ROLE_USER", "parts": PARTS[:2], "taskId": ASKED},
]
CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"historyLength": 0, "acceptedOutputModes": ["text/plain"]},
    {"historyLength": 2, "returnImmediately": True},
]
SENDS = [
    {"message": message, **extra}
    for message in MESSAGES
    for extra in [{}, *({"configuration": c, "metadata": {"m": 1}, "tenant": ""} for c in CONFIGURATIONS)]
]
LISTS: list[dict[str, Any]] = [
    {},
    {"pageSize": 1, "includeArtifacts": True, "historyLength": 1},
    {"status": "TASK_STATE_COMPLETED", "statusTimestampAfter": "2025-01-01T00:00:00.123+02:00", "page_size": "5"},
    {"contextId": "c-1", "status": 3, "pageSize": 100},
    {"pageSize": 1, "pageToken": TOKEN},
]
CALLS: dict[str, list[dict[str, Any]]] = {
    "SendMessage": SENDS,
    "SendStreamingMessage": SENDS,
    "GetTask": [{"id": FINISHED}, {"id": ASKED, "historyLength": 1}, {"id": FINISHED, "tenant": ""}],
    "ListTasks": LISTS,
    "CancelTask": [{"id": ASKED}, {"id": ASKED, "metadata": {"why": "because"}}],
    "SubscribeToTask": [{"id": ASKED}],
    "CreateTaskPushNotificationConfig": [{"taskId": FINISHED, "url": "https://x.example", "token": "t"}],
    "GetTaskPushNotificationConfig": [{"taskId": FINISHED, "id": "p-1"}],
    "ListTaskPushNotificationConfigs": [{"taskId": FINISHED, "pageSize": 5}],
    "DeleteTaskPushNotificationConfig": [{"taskId": FINISHED, "id": "p-1"}],
    "GetExtendedAgentCard": [{}],
}
PARTS_V03: list[dict[str, Any]] = [
    {"kind": "text", "text": "Hello"},
    {"kind": "text", "text": "", "metadata": {"a": [1, 2.5, None, {"b": True}]}},
    {"kind": "file", "file": {"bytes": "+/8=", "name": "a.bin", "mimeType": "application/octet-stream"}},
    {"kind": "file", "file": {"uri": "https://files.example/a.csv", "mimeType": "text/csv"}, "metadata": {}},
    {"kind": "data", "data": {"order": 7, "items": [{"name": "é😀", "price": 1e3}]}},
    {"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True}},
    {"text": "a part that does not say what it is"},
]
MESSAGES_V03: list[dict[str, Any]] = [
    {"kind": "message", "messageId": "m-1", "role": "user", "parts": PARTS_V03[:1]},
    {"messageId": "m-2", "role": "agent", "parts": PARTS_V03, "contextId": "c-1", "metadata": {"k": {"deep": [[]]}}},
    {
        "kind": "message",
        "messageId": "m-3",
        "role": "user",
        "parts": PARTS_V03[2:5],
        "extensions": ["https://x.example"],
    },
    {
        "kind": "message",
        "messageId": "m-4",
        "role": "user",
        "parts": [{"kind": "text", "text": "ask"}],
        "referenceTaskIds": [FINISHED],
    },
    {"kind": "message", "messageId": "m-5", "role": "user", "parts": PARTS_V03[:2], "taskId": ASKED},
]
CONFIGURATIONS_V03: list[dict[str, Any]] = [
    {},
    {"historyLength": 0, "acceptedOutputModes": ["text/plain"], "blocking": True},
    {"historyLength": 2, "blocking": False},
]
SENDS_V03 = [
    {"message": message, **extra}
    for message in MESSAGES_V03
    for extra in [{}, *({"configuration": c, "metadata": {"m": 1}} for c in CONFIGURATIONS_V03)]
]
WEBHOOK: dict[str, Any] = {
    "url": "https://x.example",
    "token": "t",
    "authentication": {"schemes": ["Bearer"], "credentials": "c"},
}
CALLS_V03: dict[str, list[dict[str, Any]]] = {
    "message/send": SENDS_V03,
    "message/stream": SENDS_V03,
    "tasks/get": [{"id": FINISHED}, {"id": ASKED, "historyLength": 1}, {"id": FINISHED, "metadata": {"a": 1}}],
    "tasks/cancel": [{"id": ASKED}, {"id": ASKED, "metadata": {"why": "because"}}],
    "tasks/resubscribe": [{"id": ASKED}],
    "tasks/pushNotificationConfig/set": [{"taskId": FINISHED, "pushNotificationConfig": WEBHOOK}],
    "tasks/pushNotificationConfig/get": [{"id": FINISHED, "pushNotificationConfigId": "p-1"}, {"id": FINISHED}],
    "tasks/pushNotificationConfig/list": [{"id": FINISHED}],
    "tasks/pushNotificationConfig/delete": [{"id": FINISHED, "pushNotificationConfigId": "p-1"}],
    "agent/getAuthenticatedExtendedCard": [{}],
}


@dataclass(frozen=True)
class Grammar:
    """The valid calls of one version with their weights; sends have the most, because they have the most code."""

    version: str
    calls: dict[str, list[dict[str, Any]]]
    weights: dict[str, int]

    @property
    def methods(self) -> list[str]:
        """Each method as often as its weight; methods that are always refused once."""
        return [method for method in self.calls for _ in range(self.weights.get(method, 1))]


GRAMMARS = {
    "1.0": Grammar(
        "1.0",
        CALLS,
        {
            "SendMessage": 6,
            "SendStreamingMessage": 5,
            "GetTask": 4,
            "ListTasks": 4,
            "CancelTask": 3,
            "SubscribeToTask": 3,
        },
    ),
    "0.3": Grammar(
        "0.3",
        CALLS_V03,
        {"message/send": 6, "message/stream": 5, "tasks/get": 4, "tasks/cancel": 3, "tasks/resubscribe": 3},
    ),
}

# -- mutations ----------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        1.5,
        2.0,
        2**31,
        2**53 + 1,
        -(10**40),
        1e300,
        "",
        "x",
        "1",
        "true",
        " ",
        "\0",
        "é😀",
    ),
    *(
        "a" * 5000,
        FINISHED,
        ASKED,
        TOKEN,
        "ROLE_AGENT",
        "TASK_STATE_WORKING",
        "2.0",
        "SendMessage",
        "1970-01-01T00:00:00Z",
        "user",
        "working",
        "message",
        "file",
    ),
    *([], {}, [[]], [None], [{}], {"": None}, {"text": "t"}, {"list": []}, {"data": {"data": []}}, ["a", "b"]),
    *({"kind": "text", "text": "t"}, {"kind": "file", "file": {"bytes": ""}}, {"kind": []}, {"value": 1}),
    *(
        Raw(b"NaN"),
        Raw(b"1e400"),
        Raw(b'"\\ud800"'),
        Raw(b"9" * 5000),
        Raw(b"[" * 200 + b"]" * 200),
        Raw(b"01"),
        Raw(b"-"),
    ),
    *(Raw(b"'x'"), Raw(b""), Raw(b"\xff"), Raw(b'"\n"'), Raw(b"[" * 90 + b"]" * 90), Raw(b"1e-400"), Raw(b'"\\u0000"')),
]
KEYS = [
    *("x-new", "kind", "final", "", "__proto__", "__class__", "é", "a" * 300, "id", "text", "raw", "data", "metadata"),
    *("taskId", "task_id", "contextId", "context_id", "tenant", "historyLength", "self", "cls", "jsonrpc", "params"),
]
HEADERS: dict[str, list[str]] = {
    "A2A-Version": ["1.0", "1.0.3", "1.0, 1.0", "0.3", "", "1.1", "x", "1.0,0.3", "é"],
    "Content-Type": ["application/json; charset=utf-8", "application/a2a+json", "", "text/plain", ";", "a/b+json", "é"],
    "Accept": ["text/event-stream", "*/*", "", "application/xml;q=x"],
    "Last-Event-ID": ["0", "1", "2", "999999", "-1", "x", "9" * 40, "1.0", ""],
    "A2A-Extensions": ["https://x.example/ext/v1", ",,,", "", "é, x", "a" * 3000],
    "Content-Length": ["0", "1", "50", "100000", "99999999999"],
    "Transfer-Encoding": ["chunked", "gzip"],
    "Content-Encoding": ["gzip"],
    "Host": ["", "evil.example", "[::1", "a b"],
    "X-Request-ID": ["1", "a" * 2000, "é"],
    "Traceparent": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "junk"],
    "Cookie": ["a=b; c"],
    "Authorization": ["Bearer x", "é"],
    "If-None-Match": ["*", 'W/"x"', '"'],
    "Range": ["bytes=0-1"],
    "Expect": ["100-continue"],
}
PATHS = ["/", CARD, "/?A2A-Version=1.0", "/?A2A-Version=0.3&x=%ff", "/x", "/%00", "/.well-known/", "/message:send"]
HTTP_METHODS = ["POST", "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"]


class Mutator:
    """Draws decisions; each method changes a tree, the bytes, or the request around them."""

    def __init__(self, random: Random) -> None:
        self.pick: Callable[[Any], Any] = random.choice
        self.number: Callable[[int], int] = random.randrange

    def place(self, root: Members) -> tuple[list[Any], int]:
        found = list(places(root))
        if not found:
            root.append(("jsonrpc", "2.0"))
            return root, 0
        return found[self.number(len(found))]

    # -- the tree --

    def delete(self, root: Members) -> None:
        holder, index = self.place(root)
        del holder[index]

    def duplicate(self, root: Members) -> None:
        holder, index = self.place(root)
        holder.insert(self.number(len(holder) + 1), holder[index])

    def retype(self, root: Members) -> None:
        holder, index = self.place(root)
        put(holder, index, tree(self.pick(VALUES)))

    def rename(self, root: Members) -> None:
        holder, index = self.place(root)
        if isinstance(holder, Members):
            key, value = holder[index]
            holder[index] = (self.pick([snake(key), key.upper(), key + " ", *KEYS]), value)

    def swap(self, root: Members) -> None:
        (first, here), (second, there) = self.place(root), self.place(root)
        one, other = look(first, here), look(second, there)
        # A value cannot contain itself.
        if one is not other and not holds(one, second) and not holds(other, first):
            put(first, here, other)
            put(second, there, one)

    def add(self, root: Members) -> None:
        objects = [root, *(look(*place) for place in places(root) if isinstance(look(*place), Members))]
        self.pick(objects).append((self.pick(KEYS), tree(self.pick(VALUES))))

    def add_unknown(self, root: Members) -> None:
        objects = [root, *(look(*place) for place in places(root) if isinstance(look(*place), Members))]
        self.pick(objects).append(("x-" + str(self.number(1000)), tree(self.pick(VALUES[:30]))))

    def wrap(self, root: Members) -> None:
        holder, index = self.place(root)
        value = look(holder, index)
        put(holder, index, self.pick([[value], Members([("value", value)]), [value, value]]))

    def reword(self, root: Members) -> None:
        holder, index = self.place(root)
        value = look(holder, index)
        if isinstance(value, str):
            put(
                holder,
                index,
                self.pick([value + " ", value.upper(), value[:-1], value * 2, "\u2028" + value, value[::-1]]),
            )

    def identify(self, root: Members) -> None:
        replace_member(root, "id", self.pick(["", "x", 0, -7, 2**60, None, 1.5, True, [], {}]))

    def call_another(self, root: Members) -> None:
        replace_member(root, "method", self.pick([*CALLS, *CALLS_V03, "", "sendMessage", "tasks/list", None, 5]))

    # -- the bytes --

    def flip(self, body: bytes) -> bytes:
        place = self.number(len(body) + 1)
        return body[:place] + bytes([self.number(256)]) + body[place + 1 :]

    def cut(self, body: bytes) -> bytes:
        start, end = sorted((self.number(len(body) + 1), self.number(len(body) + 1)))
        return body[:start] + body[end:]

    def repeat(self, body: bytes) -> bytes:
        start, end = sorted((self.number(len(body) + 1), self.number(len(body) + 1)))
        return body[:end] + body[start:end] + body[end:]

    def surround(self, body: bytes) -> bytes:
        ends = [(b"", b" \n"), (b"\xef\xbb\xbf", b""), (b"[", b"]"), (b"", b"}"), (b"\0", b""), (b"", body)]
        before, after = self.pick(ends)
        return before + body + after

    def recode(self, body: bytes) -> bytes:
        return body.decode("latin-1").encode(self.pick(["utf-16", "utf-32", "utf-8", "utf-7"]))

    # -- the request --

    def header(self, request: HttpRequest) -> HttpRequest:
        name = self.pick(list(HEADERS))
        return replace(request, headers={**request.headers, name: self.pick(HEADERS[name])})

    def drop_header(self, request: HttpRequest) -> HttpRequest:
        dropped = self.pick(list(request.headers) or [""])
        return replace(request, headers={name: value for name, value in request.headers.items() if name != dropped})

    def address(self, request: HttpRequest) -> HttpRequest:
        return replace(request, path=self.pick(PATHS))

    def verb(self, request: HttpRequest) -> HttpRequest:
        return replace(request, method=self.pick(HTTP_METHODS))


def snake(key: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in key)


def holds(value: Any, holder: list[Any]) -> bool:
    return value is holder or any(look(*place) is holder for place in places(value))


def replace_member(root: Members, key: str, value: Any) -> None:
    root[:] = [(name, value if name == key else item) for name, item in root]


OF_TREES: list[Callable[[Mutator, Members], None]] = [
    *(Mutator.add_unknown, Mutator.add_unknown, Mutator.add_unknown, Mutator.rename, Mutator.rename),
    *(Mutator.delete, Mutator.duplicate, Mutator.retype, Mutator.retype, Mutator.swap, Mutator.add, Mutator.wrap),
    *(Mutator.reword, Mutator.reword, Mutator.identify, Mutator.call_another),
]
OF_BYTES: list[Callable[[Mutator, bytes], bytes]] = [
    *(Mutator.flip, Mutator.flip, Mutator.cut, Mutator.repeat, Mutator.surround, Mutator.surround, Mutator.recode),
]
OF_REQUESTS: list[Callable[[Mutator, HttpRequest], HttpRequest]] = [
    *(
        Mutator.header,
        Mutator.header,
        Mutator.header,
        Mutator.header,
        Mutator.drop_header,
        Mutator.address,
        Mutator.verb,
    ),
]


def damaged_request(random: Random, grammar: Grammar) -> HttpRequest:
    """A valid request with zero, one or a few mutations."""
    mutator = Mutator(random)
    request: HttpRequest = mutator.pick([fetch_card, *[call] * 30])(mutator, grammar)
    for _ in range(mutator.pick([0, 0, 0, 0, 1, 1, 2])):
        request = mutator.pick(OF_REQUESTS)(mutator, request)
    return request


def fetch_card(mutator: Mutator, grammar: Grammar) -> HttpRequest:
    headers = mutator.pick([{}, {"A2A-Version": grammar.version}])
    return HttpRequest(mutator.pick(["GET", "HEAD"]), mutator.pick([CARD, OLD_CARD]), dict(headers), b"")


def call(mutator: Mutator, grammar: Grammar) -> HttpRequest:
    method = mutator.pick(grammar.methods)
    id, params = mutator.pick([1, "a", None]), mutator.pick(grammar.calls[method])
    root = tree({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    for _ in range(mutator.pick([0, 0, 0, 1, 1, 1, 2, 3])):
        mutator.pick(OF_TREES)(mutator, root)
    body = write(root)
    for _ in range(mutator.pick([*[0] * 10, 1, 2])):
        body = mutator.pick(OF_BYTES)(mutator, body)
    return HttpRequest("POST", "/", {**JSON_HEADERS, "A2A-Version": grammar.version}, body)
