"""Tables of bad input, one for each version of the protocol, and what is bad in any of them."""

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

#: Values that are no string, no object, no array.
WORDS: tuple[Any, ...] = (5, 1.5, True, [], {})
OBJECTS: tuple[Any, ...] = ("x", 5, True, [])
ARRAYS: tuple[Any, ...] = ("x", 5, True, {})


@dataclass(frozen=True)
class Case:
    """A body (with the words of `Target.words` for what only the server knows) and what it gets.

    `names` must stand in the error's message. `id` is the one of the answer.
    """

    name: str
    body: bytes
    code: int
    names: str = ""
    id: Any = 1
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tongue:
    """A version of the protocol, as its requests are written."""

    version: str

    def method(self, name: str) -> str:
        """What this version calls an operation; other names stay as they are."""
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
        """A case whose caller names this version, unless `headers` say otherwise."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return Case(f"{self.version} {name}", body, code, names, id, status, {"A2A-Version": self.version, **named})


def not_json(tongue: Tongue) -> Iterator[Case]:
    good = tongue.rpc("GetTask", {})
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
        yield tongue.case(f"not JSON: {name}", body, -32700, "JSON", None)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"):
        yield tongue.case(encoding, good.decode().encode(encoding), -32700, "UTF-8", None)
    yield tongue.case("latin-1", tongue.rpc("GetTask", {"id": "X"}).replace(b"X", b"\xe9"), -32700, "UTF-8", None)
    yield tongue.case(
        "a surrogate in UTF-8", tongue.rpc("GetTask", {"id": "X"}).replace(b"X", b"\xed\xa0\x80"), -32700, "UTF-8", None
    )
    yield tongue.case(
        "an overlong slash", tongue.rpc("GetTask", {"id": "X"}).replace(b"X", b"\xc0\xaf"), -32700, "UTF-8", None
    )


def ambiguous_json(tongue: Tongue) -> Iterator[Case]:
    for name, body, key in (
        ("at the top", tongue.rpc("GetTask", {})[:-1] + b', "method": "CancelTask"}', "method"),
        ("in the params", tongue.rpc("GetTask", {"id": "FINISHED"})[:-2] + b', "id": "other"}}', "id"),
        (
            "far inside",
            tongue.rpc("SendMessage", tongue.message(metadata={"a": [{"b": 0}]})).replace(b'"b": 0', b'"b": 0, "b": 1'),
            "b",
        ),
        ("twice the same", tongue.rpc("GetTask", {"tenant": ""}).replace(b'""', b'"", "tenant": ""'), "tenant"),
    ):
        yield tongue.case(f"duplicate key {name}", body, -32700, f'"{key}"', None)
    for number in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400"):
        for name, params in (
            ("a data part", tongue.data("HERE")),
            ("metadata", tongue.message(metadata={"n": "HERE"})),
        ):
            body = tongue.rpc("SendMessage", params).replace(b'"HERE"', number.encode())
            yield tongue.case(f"{number} in {name}", body, -32700, number, None)
    digits = b"7" * 5000
    yield tongue.case(
        "5,000 digits in data",
        tongue.rpc("SendMessage", tongue.data("HERE")).replace(b'"HERE"', digits),
        -32700,
        "digits",
        None,
    )
    yield tongue.case(
        "5,000 digits as id",
        tongue.rpc("GetTask", {}, 1).replace(b'"id": 1', b'"id": ' + digits),
        -32700,
        "digits",
        None,
    )
    yield tongue.case(
        "5,000 digits as a length",
        tongue.rpc("GetTask", {"id": "FINISHED", "historyLength": 7}).replace(b"7}", digits + b"}"),
        -32700,
        "digits",
        None,
    )
    for escape in (r"\ud800", r"\udc00", r"\udc00\ud800", r"a\uD834z"):
        for name, body in (
            ("a text", tongue.rpc("SendMessage", tongue.message("HERE"))),
            ("a key", tongue.rpc("SendMessage", tongue.message(metadata={"HERE": 1}))),
            ("a task id", tongue.rpc("GetTask", {"id": "HERE"})),
            ("the id", tongue.rpc("GetTask", {}, "HERE")),
            ("the method", tongue.rpc("HERE", {})),
        ):
            yield tongue.case(f"{escape} in {name}", body.replace(b"HERE", escape.encode()), -32700, "surrogate", None)


def deep_json(tongue: Tongue) -> Iterator[Case]:
    shapes = {
        "arrays": b"[" * DEEP + b"]" * DEEP,
        "objects": b'{"a":' * DEEP + b"0" + b"}" * DEEP,
        "both": b'[{"a":' * DEEP + b"0" + b"}]" * DEEP,
        "101 levels": b"[" * 101 + b"]" * 101,
    }
    for name, deep in shapes.items():
        yield tongue.case(f"deep: {name} alone", deep, -32700, "deep", None)
        yield tongue.case(
            f"deep: {name} in data",
            tongue.rpc("SendMessage", tongue.data("HERE")).replace(b'"HERE"', deep),
            -32700,
            "deep",
            None,
        )
    for name, deep in (("arrays", b"[" * DEEP), ("objects", b'{"a":' * DEEP)):
        yield tongue.case(f"deep: {name} never closed", deep, -32700, "JSON", None)


def not_a_request(tongue: Tongue) -> Iterator[Case]:
    for name, body in (("a string", b'"x"'), ("a number", b"1"), ("true", b"true"), ("null", b"null")):
        yield tongue.case(f"{name} for a request", body, -32600, "object", None)
    for name, body in (("empty", b"[]"), ("of one", b"[%s]" % tongue.rpc("GetTask", {})), ("of junk", b"[1, null]")):
        yield tongue.case(f"a batch {name}", body, -32600, "Batches", None)
    value: Any
    for value in ("1.0", 2.0, "2", "2.0 ", None, 2, ["2.0"], "MISSING"):
        body = json.loads(tongue.rpc("GetTask", {}))
        body["jsonrpc"] = value
        if value == "MISSING":
            del body["jsonrpc"]
        yield tongue.case(f"jsonrpc {value!r}", json.dumps(body).encode(), -32600, "jsonrpc")
    for value in ("", None, 5, [], {}, True, "MISSING"):
        body = json.loads(tongue.rpc("GetTask", {}))
        body["method"] = value
        if value == "MISSING":
            del body["method"]
        yield tongue.case(f"method {value!r}", json.dumps(body).encode(), -32600, "method")
    for value in (1.5, 1.0, True, [], {}, [1]):
        yield tongue.case(f"id {value!r}", tongue.rpc("GetTask", {}, value), -32600, "id", None)
    for method in ("DoMagic", "message/sent", "sendMessage", "SendMessage ", "__class__", "a" * 5000, "\0"):
        yield tongue.case(f"method {method[:20]!r}", tongue.rpc(method, {}), -32601)
    params: Any
    for params in ([], "abc", 5, True, [{}], 0, ""):
        yield tongue.case(f"params {params!r}", tongue.rpc("GetTask", params), -32602, "params")


def from_the_protocol(tongue: Tongue, file: str) -> Iterator[Case]:
    for case in json.loads((SPEC / file).read_text()):
        body = case["rawBody"] if "rawBody" in case else json.dumps(case["body"])
        yield tongue.case(f"spec: {case['name']}", body.encode(), case["expectCode"], id=case["expectId"])


def wrong_envelopes(tongue: Tongue) -> Iterator[Case]:
    good = tongue.rpc("SendMessage", tongue.message())
    yield tongue.case("text/plain", good, -32005, "text/plain", None, Content_Type="text/plain")
    other = "0.3" if tongue.version == "1.0" else "1.0"
    for version in (other, "99.0", f"{tongue.version}; drop", "é"):
        wanted = f"A2A-Version: {tongue.version}"
        yield tongue.case(f"under version {version!r}", good, -32009, wanted, A2A_Version=version)
    large = tongue.rpc("SendMessage", tongue.message("x" * 11_000_000))
    yield tongue.case("11 MB", large, -32600, "10485760", None, status=413)


def in_any_version(tongue: Tongue) -> Iterator[Case]:
    """What is bad before anybody looks at the params."""
    for table in (not_json, ambiguous_json, deep_json, not_a_request, wrong_envelopes):
        yield from table(tongue)
