"""Tables of invalid input, one for each protocol version, and a common one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a2a_sync.codec import by_version
from a2a_sync.operations import OPERATIONS
from tests.wsgi import message, message_v03, rpc

SPEC = Path(__file__).parent.parent / "spec"
DEEP = 10_000

#: Values that are not a string, an object or an array.
WORDS: tuple[Any, ...] = (5, 1.5, True, [], {})
OBJECTS: tuple[Any, ...] = ("x", 5, True, [])
ARRAYS: tuple[Any, ...] = ("x", 5, True, {})


@dataclass(frozen=True)
class Case:
    """A body and the expected error. Words of `Target.words` in the body are replaced by values that only the server knows.

    `names` must be in the error's message. `id` is the id of the response.
    """

    name: str
    body: bytes
    code: int
    names: str = ""
    id: Any = 1
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dialect:
    """A protocol version and the form of its requests."""

    version: str

    def method(self, name: str) -> str:
        """The name of an operation in this version; other names are returned unchanged."""
        return by_version(self.version).method(OPERATIONS[name]) if name in OPERATIONS else name

    def rpc(self, name: str, params: Any = None, id: Any = 1) -> bytes:
        return rpc(self.method(name), params, id)

    def message(self, text: str = "echo hi", **members: Any) -> dict[str, Any]:
        return (message if self.version == "1.0" else message_v03)(text, **members)

    def data(self, value: Any) -> dict[str, Any]:
        """The params of a send with one data part."""
        return self.message(parts=[{"data": value} if self.version == "1.0" else {"kind": "data", "data": value}])

    def case(
        self, name: str, body: bytes, code: int, names: str = "", id: Any = 1, status: int = 200, **headers: str
    ) -> Case:
        """A case with this version in the request, unless `headers` has another."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return Case(f"{self.version} {name}", body, code, names, id, status, {"A2A-Version": self.version, **named})


def not_json(dialect: Dialect) -> Iterator[Case]:
    good = dialect.rpc("GetTask", {})
    plain = {
        "nothing": b"",
        "blanks": b" \r\n\t",
        "a word": b"hello",
        "cut off": good[:-1],
        "twice": good + good,
        "single quotes": good.replace(b'"', b"'"),
        "a trailing comma": good[:-1] + b",}",
        "a comment": b"/* */" + good,
        "a bare control character": good.replace(b'"method": "', b'"method": "\n'),
        "form data": b"jsonrpc=2.0&method=GetTask&id=1",
        "an HTTP request": b"POST / HTTP/1.1\r\n\r\n{}",
        "zeros": b"\0" * 1000,
        "a gzip header": b"\x1f\x8b\x08\0\0\0\0\0",
    }
    for name, body in plain.items():
        yield dialect.case(f"not JSON: {name}", body, -32700, "JSON", None)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"):
        yield dialect.case(encoding, good.decode().encode(encoding), -32700, "UTF-8", None)
    yield dialect.case("latin-1", dialect.rpc("GetTask", {"id": "X"}).replace(b"X", b"\xe9"), -32700, "UTF-8", None)
    yield dialect.case(
        "a surrogate in UTF-8",
        dialect.rpc("GetTask", {"id": "X"}).replace(b"X", b"\xed\xa0\x80"),
        -32700,
        "UTF-8",
        None,
    )
    yield dialect.case(
        "an overlong slash", dialect.rpc("GetTask", {"id": "X"}).replace(b"X", b"\xc0\xaf"), -32700, "UTF-8", None
    )


def ambiguous_json(dialect: Dialect) -> Iterator[Case]:
    for name, body, key in (
        ("at the top", dialect.rpc("GetTask", {})[:-1] + b', "method": "CancelTask"}', "method"),
        ("in the params", dialect.rpc("GetTask", {"id": "FINISHED"})[:-2] + b', "id": "other"}}', "id"),
        (
            "far inside",
            dialect.rpc("SendMessage", dialect.message(metadata={"a": [{"b": 0}]})).replace(
                b'"b": 0', b'"b": 0, "b": 1'
            ),
            "b",
        ),
        ("twice the same", dialect.rpc("GetTask", {"tenant": ""}).replace(b'""', b'"", "tenant": ""'), "tenant"),
    ):
        yield dialect.case(f"duplicate key {name}", body, -32700, f'"{key}"', None)
    for number in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400"):
        for name, params in (
            ("a data part", dialect.data("HERE")),
            ("metadata", dialect.message(metadata={"n": "HERE"})),
        ):
            body = dialect.rpc("SendMessage", params).replace(b'"HERE"', number.encode())
            yield dialect.case(f"{number} in {name}", body, -32700, number, None)
    digits = b"7" * 5000
    yield dialect.case(
        "5,000 digits in data",
        dialect.rpc("SendMessage", dialect.data("HERE")).replace(b'"HERE"', digits),
        -32700,
        "digits",
        None,
    )
    yield dialect.case(
        "5,000 digits as id",
        dialect.rpc("GetTask", {}, 1).replace(b'"id": 1', b'"id": ' + digits),
        -32700,
        "digits",
        None,
    )
    yield dialect.case(
        "5,000 digits as a length",
        dialect.rpc("GetTask", {"id": "FINISHED", "historyLength": 7}).replace(b"7}", digits + b"}"),
        -32700,
        "digits",
        None,
    )
    for escape in (r"\ud800", r"\udc00", r"\udc00\ud800", r"a\uD834z"):
        for name, body in (
            ("a text", dialect.rpc("SendMessage", dialect.message("HERE"))),
            ("a key", dialect.rpc("SendMessage", dialect.message(metadata={"HERE": 1}))),
            ("a task id", dialect.rpc("GetTask", {"id": "HERE"})),
            ("the id", dialect.rpc("GetTask", {}, "HERE")),
            ("the method", dialect.rpc("HERE", {})),
        ):
            yield dialect.case(f"{escape} in {name}", body.replace(b"HERE", escape.encode()), -32700, "surrogate", None)


def deep_json(dialect: Dialect) -> Iterator[Case]:
    shapes = {
        "arrays": b"[" * DEEP + b"]" * DEEP,
        "objects": b'{"a":' * DEEP + b"0" + b"}" * DEEP,
        "both": b'[{"a":' * DEEP + b"0" + b"}]" * DEEP,
        "101 levels": b"[" * 101 + b"]" * 101,
    }
    for name, deep in shapes.items():
        yield dialect.case(f"deep: {name} alone", deep, -32700, "deep", None)
        yield dialect.case(
            f"deep: {name} in data",
            dialect.rpc("SendMessage", dialect.data("HERE")).replace(b'"HERE"', deep),
            -32700,
            "deep",
            None,
        )
    for name, deep in (("arrays", b"[" * DEEP), ("objects", b'{"a":' * DEEP)):
        yield dialect.case(f"deep: {name} never closed", deep, -32700, "JSON", None)


def not_a_request(dialect: Dialect) -> Iterator[Case]:
    for name, body in (("a string", b'"x"'), ("a number", b"1"), ("true", b"true"), ("null", b"null")):
        yield dialect.case(f"{name} for a request", body, -32600, "object", None)
    for name, body in (("empty", b"[]"), ("of one", b"[%s]" % dialect.rpc("GetTask", {})), ("of junk", b"[1, null]")):
        yield dialect.case(f"a batch {name}", body, -32600, "Batches", None)
    value: Any
    for value in ("1.0", 2.0, "2", "2.0 ", None, 2, ["2.0"], "MISSING"):
        body = json.loads(dialect.rpc("GetTask", {}))
        body["jsonrpc"] = value
        if value == "MISSING":
            del body["jsonrpc"]
        yield dialect.case(f"jsonrpc {value!r}", json.dumps(body).encode(), -32600, "jsonrpc")
    for value in ("", None, 5, [], {}, True, "MISSING"):
        body = json.loads(dialect.rpc("GetTask", {}))
        body["method"] = value
        if value == "MISSING":
            del body["method"]
        yield dialect.case(f"method {value!r}", json.dumps(body).encode(), -32600, "method")
    for value in (1.5, 1.0, True, [], {}, [1]):
        yield dialect.case(f"id {value!r}", dialect.rpc("GetTask", {}, value), -32600, "id", None)
    for method in ("DoMagic", "message/sent", "sendMessage", "SendMessage ", "__class__", "a" * 5000, "\0"):
        yield dialect.case(f"method {method[:20]!r}", dialect.rpc(method, {}), -32601)
    params: Any
    for params in ([], "abc", 5, True, [{}], 0, ""):
        yield dialect.case(f"params {params!r}", dialect.rpc("GetTask", params), -32602, "params")


def from_the_protocol(dialect: Dialect, file: str) -> Iterator[Case]:
    for case in json.loads((SPEC / file).read_text()):
        body = case["rawBody"] if "rawBody" in case else json.dumps(case["body"])
        yield dialect.case(f"spec: {case['name']}", body.encode(), case["expectCode"], id=case["expectId"])


def wrong_envelopes(dialect: Dialect) -> Iterator[Case]:
    good = dialect.rpc("SendMessage", dialect.message())
    yield dialect.case("text/plain", good, -32005, "text/plain", None, Content_Type="text/plain")
    other = "0.3" if dialect.version == "1.0" else "1.0"
    for version in (other, "99.0", f"{dialect.version}; drop", "é"):
        wanted = f"A2A-Version: {dialect.version}"
        yield dialect.case(f"under version {version!r}", good, -32009, wanted, A2A_Version=version)
    large = dialect.rpc("SendMessage", dialect.message("x" * 11_000_000))
    yield dialect.case("11 MB", large, -32600, "10485760", None, status=413)


def in_any_version(dialect: Dialect) -> Iterator[Case]:
    """Requests that are invalid before their params are read."""
    for table in (not_json, ambiguous_json, deep_json, not_a_request, wrong_envelopes):
        yield from table(dialect)
