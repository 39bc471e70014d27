"""Hostile bytes over real channels: every answer is an error of the protocol, and the server goes on."""

from __future__ import annotations

import random
import shutil
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="needs the extra grpc, which `make test` installs")

from google.protobuf.message import DecodeError as ProtobufError  # noqa: E402
from google.protobuf.message import Message  # noqa: E402
from google.rpc import status_pb2  # noqa: E402

from a2a_sync import A2AApp, Agent, Client, Limits, RequestContext, URLGuard, jsontext  # noqa: E402
from a2a_sync import types as t  # noqa: E402
from a2a_sync.auth import BearerAuth  # noqa: E402
from a2a_sync.bindings import protobuf  # noqa: E402
from a2a_sync.bindings.protowriter import is_repeated  # noqa: E402
from a2a_sync.codec import by_version  # noqa: E402
from a2a_sync.errors import ConnectError, InvalidRequestError, MalformedResponseError, TransportError  # noqa: E402
from a2a_sync.grpc import GRPCServer, arrivals, threads  # noqa: E402
from a2a_sync.operations import OPERATIONS, AnyCall, Interceptor, interceptor  # noqa: E402
from a2a_sync.server import responses  # noqa: E402
from tests.client.peer import Asked, Line, peer  # noqa: E402
from tests.client.test_cards import NEW, answers, card  # noqa: E402
from tests.engine import eventually  # noqa: E402
from tests.grpc.agent import channel, client_of, encoded, path, printing, serving  # noqa: E402
from tests.grpc.proxies import nginx  # noqa: E402
from tests.hostile import http2  # noqa: E402
from tests.hostile.cycles import frames_in_cycles  # noqa: E402
from tests.hostile.http2 import field, varint  # noqa: E402
from tests.hostile.slow import worst_wait  # noqa: E402

#: Calls whose messages arrive at the same time, by default, and those of one connection among them.
PLACES = arrivals._MAX_BYTES // Limits().max_body_bytes
SHARE = (PLACES + 1) // 2
#: What hostile bytes may be answered with: never INTERNAL or UNKNOWN.
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def saying(text: str) -> bytes:
    """A send of this text."""
    return encoded("SendMessage", replace(SAID, message=replace(SAID.message, parts=(t.TextPart(text),))))


def nested(depth: int) -> bytes:
    """Metadata of a message, as lists in lists."""
    value = b""
    for _ in range(depth):
        value = field(6, field(1, value))
    return field(2, field(6, field(1, field(1, b"k") + field(2, value))))


SAID = t.SendMessageRequest(message=t.Message(role=t.Role.USER, parts=(t.TextPart("hi"),), message_id="m"))
HOSTILE = {
    "empty": b"",
    "truncated": encoded("SendMessage", SAID)[:-1],
    "length beyond the end": b"\x12\xff\xff\xff\xff\x07",
    "length beyond 64 bits": b"\x12" + b"\xff" * 11,
    "field number zero": b"\x02\x00",
    "unknown wire type": b"\x0f",
    "group without an end": b"\x13" * 50,
    "invalid UTF-8": field(2, field(1, b"\xff\xfe")),
    "nested 99": nested(99),
    "nested 10000": nested(10_000),
    "a part without content": field(2, field(1, b"m") + b"\x20\x01" + field(5, b"")),
    "a role that does not exist": field(2, field(1, b"m") + b"\x20\x63" + field(5, field(1, b"hi"))),
    "an infinite number": field(
        2,
        field(1, b"m") + field(6, field(1, field(1, b"k") + field(2, b"\x11" + b"\x00" * 6 + b"\xf0\x7f"))),
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[GRPCServer]:
    with serving(limits=Limits(max_body_bytes=256 * 1024)) as serving_one:
        yield serving_one


def code_of(call: Any) -> Any:
    """The code of a refusal, which has the status of the protocol; None for an answer."""
    try:
        call()
    except grpc.RpcError as refused:
        error: Any = refused
        trailing = dict(error.trailing_metadata() or ())
        status = status_pb2.Status.FromString(trailing[protobuf.STATUS_DETAILS])
        assert (status.code, bool(status.message)) == (error.code().value[0], True)
        assert "Traceback" not in status.message
        return error.code()
    return None


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_hostile_messages_are_refused_and_the_server_goes_on(server: GRPCServer, version: str, data: bytes) -> None:
    with channel(server) as opened:
        assert code_of(lambda: opened.unary_unary(path("SendMessage", version))(data, timeout=10)) in REFUSALS
        streamed = opened.unary_stream(path("SendStreamingMessage", version))
        assert code_of(lambda: list(streamed(data, timeout=10))) in REFUSALS
    with client_of(server) as client:
        assert client.send("hi").text == "worker: hi"


def value(item: bytes) -> bytes:
    """Metadata of a message: a list of `item`s that fill nearly ten megabytes."""
    items = item * (9_900_000 // len(item))
    return field(2, field(1, b"m") + field(6, field(1, field(1, b"k") + field(2, field(6, items)))))


@pytest.mark.parametrize(
    "data",
    [
        field(2, field(1, b"m") + field(5, b"") * 4_950_000),
        field(2, field(1, b"m") + b"\xaa\x00\x00" * 3_300_000),
        value(field(1, b"")),
        value(field(1, b"\x08\x00")),
        value(field(1, field(5, b""))),
        value(field(1, field(6, b""))),
        field(2, field(1, b"m") + field(7, b"") * 4_950_000),
        field(2, field(1, b"m") + field(7, b"ab") * 2_475_000),
    ],
    ids=["parts", "parts with long tags", "values", "nulls", "objects", "lists", "empty texts", "short texts"],
)
def test_a_message_of_very_many_messages_is_refused_before_it_takes_memory(data: bytes) -> None:
    # One such request of 10 MB took seven seconds and 1.2 GB, without credentials.
    with pytest.raises(InvalidRequestError, match=r"holds more than [0-9]+ messages, [0-9]+ values or [0-9]+ keys"):
        protobuf.parse(data, protobuf.methods("1.0")["SendMessage"].request)


def keys(number: int) -> bytes:
    """A request or an event whose metadata have so many keys, without values."""
    return field(2, field(1, b"m") + field(6, field(1, field(1, b"k")) * number))


@pytest.mark.parametrize(
    ("kind", "most"),
    [("request", jsontext.MAX_KEYS), ("response", jsontext.MAX_ANSWER_KEYS)],
    ids=["request", "response"],
)
def test_data_may_have_as_many_keys_as_in_json(kind: str, most: int) -> None:
    # One event of 66 MB with 8.3 million keys took 2.1 GB, and stopped the other threads of its client for five seconds.
    method = getattr(protobuf.methods("1.0")["SendStreamingMessage"], kind)
    assert protobuf.parse(keys(most), method, max_keys=most)
    with pytest.raises(InvalidRequestError, match=f"or {most + len(keys(most * 2)) // 64} keys"):
        protobuf.parse(keys(most * 2), method, max_keys=most)


@pytest.mark.parametrize("streamed", [False, True], ids=["answer", "event"])
@pytest.mark.parametrize(("number", "refused"), [(300_000, False), (1_200_000, True)])
def test_an_answer_may_have_a_million_keys_and_not_many_more(streamed: bool, number: int, refused: bool) -> None:
    metadata = protobuf.methods("1.0")["GetTask"].response.DESCRIPTOR.fields_by_name["metadata"].number
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
    data = protobuf.encode_result("GetTask", task, "1.0") + field(metadata, field(1, field(1, b"k")) * number)

    class Hostile(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _: Any) -> Any:
            if streamed:
                return grpc.unary_stream_rpc_method_handler(lambda request, rpc: iter([field(1, data)]))
            return grpc.unary_unary_rpc_method_handler(lambda request, rpc: data)

    hostile = grpc.server(ThreadPoolExecutor(1), [Hostile()], options=(("grpc.max_send_message_length", -1),))
    port = hostile.add_insecure_port("127.0.0.1:0")
    hostile.start()
    refusal = pytest.raises(MalformedResponseError, match=r"or [0-9]+ keys") if refused else nullcontext()
    try:
        with Client(f"grpc://127.0.0.1:{port}", timeout=30) as client, refusal:
            found = next(iter(client.stream("hi"))) if streamed else client.get_task("t")
            assert isinstance(found, t.Task)
            assert len(found.metadata) == 1
    finally:
        hostile.stop(0).wait(10)


PARTS = field(2, field(1, b"m") + field(5, b"") * 4_900_000)


def group(data: bytes) -> bytes:
    """An unknown group, which protobuf skips."""
    return varint(100 << 3 | 3) + data + varint(100 << 3 | 4)


@pytest.mark.parametrize(
    "before",
    [group(nested(90)), group(field(2, b"\x07")), group(field(2, b"\xff" * 11 + b"\x01")), group(b"")],
    ids=["nested", "no message", "a long number", "empty"],
)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_group_does_not_hide_how_many_messages_there_are(kind: str, before: bytes) -> None:
    # Ten megabytes of parts after such a group took 2.7 GB.
    method = getattr(protobuf.methods("1.0")["SendStreamingMessage"], kind)
    with pytest.raises(InvalidRequestError, match="groups"):
        protobuf.parse(before + PARTS, method)


def test_a_tenant_in_a_group_is_refused() -> None:
    # The parser finds none there, as does a proxy that checks tenants.
    data = field(1, b"real") + group(field(1, b"hidden"))
    with pytest.raises(InvalidRequestError, match="groups"):
        protobuf.read_tenant(data, protobuf.methods("1.0")["SendMessage"].request)


def test_a_number_of_an_event_after_a_group_is_not_read() -> None:
    assert protobuf.event_number(protobuf.with_event_number(group(b""), 7)) is None
    assert protobuf.event_number(protobuf.with_event_number(b"", 7)) == 7


def messages(message: Any) -> int:
    """The messages in a parsed message, and the texts of its lists, without the empty values of maps: entries may leave these out."""
    count = 0
    for found, value in message.ListFields():
        is_map = found.message_type is not None and found.message_type.GetOptions().map_entry
        items = value.values() if is_map else value if is_repeated(found) else [value]
        below = [item for item in items if isinstance(item, Message)]
        count += sum(map(messages, below)) + sum(not is_map or one.ByteSize() > 0 for one in below)
        count += len(items) if is_map or (is_repeated(found) and not below) else 0
    return count


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` with some bytes changed, removed, or replaced by tags, numbers and groups that are rare."""
    rare = (
        b"\x80\x00",
        b"\xff" * 5,
        b"\xff" * 9 + b"\x01",
        b"\xa2\x86\x80\x80\x00",
        b"\x8a\x80\x80\x80\x10",
        group(b""),
        b"\x0a\x00",
    )
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        piece = rng.choice([bytes([rng.randrange(256)]), rng.choice(rare), data[at : at + rng.randrange(9)]])
        data = data[:at] + piece + data[at + rng.choice([0, 0, 1, len(piece)]) :]
    return data


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_what_the_parser_reads_was_counted_or_is_refused(version: str) -> None:
    rng = random.Random(17)
    method = protobuf.methods(version)["SendMessage"].request
    metadata = {"k": [1, None, {"a": "b"}, [[]]], "l": {}, "m": True}
    said = replace(
        SAID.message, parts=(t.TextPart("hi"), t.DataPart(metadata)), extensions=("u", "v"), metadata=metadata
    )
    codec = by_version(version, "GRPC")
    seed = protobuf.encode_request(
        "SendMessage", codec.dump_request(OPERATIONS["SendMessage"], replace(SAID, tenant="t", message=said)), version
    )
    counted = 0
    for number in range(8000):
        data = mutated(rng, seed) if number else seed
        try:
            message = method.FromString(data)
        except ProtobufError:
            continue
        with suppress(ValueError, IndexError):
            found = sum(kind != protobuf._OTHER for kind in protobuf._fields(data, method.DESCRIPTOR))
            assert found >= messages(message), data
            counted += 1
            assert number or found == messages(message)
        with suppress(InvalidRequestError):
            assert protobuf.read_tenant(data, method) == getattr(message, "tenant", ""), data
    assert counted > 200


@pytest.mark.parametrize(
    ("data", "many"),
    [
        (field(2, field(5, b"") * 17_000), True),
        (field(2, field(1, b"") * 17_000), True),
        (field(3000, b"") * 17_000, True),
        (group(b"") + field(2, field(5, field(1, b"\n" * 1_000_000))), True),
        (field(2, field(5, field(1, b"\n" * 1_000_000))), False),
        (field(2, field(5, field(2, bytes(range(256)) * 4000))), False),
    ],
    ids=["parts", "texts", "unknown fields", "a group", "a text", "a file"],
)
def test_a_message_of_many_fields_takes_long_to_read(data: bytes, many: bool) -> None:
    assert protobuf.has_many_fields(data, protobuf.methods("1.0")["SendMessage"].request) is many


def test_messages_of_many_fields_are_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    begin = responses.ResponseBudget.begin

    def noted(self: Any, owner: str, *, expensive: bool, found: bool) -> None:
        begun.append(expensive)
        begin(self, owner, expensive=expensive, found=found)

    monkeypatch.setattr(responses.ResponseBudget, "begin", noted)
    table = replace(SAID, message=replace(SAID.message, parts=(t.DataPart([[]] * 20_000),)))
    with serving() as server, channel(server) as opened:
        for data in (saying("x" * 100_000), encoded("SendMessage", table)):
            code_of(lambda data=data: opened.unary_unary(path("SendMessage"))(data, timeout=10))
    assert begun == [False, True]


def test_large_messages_of_numbers_and_files_are_read() -> None:
    numbers = field(1, b"\x11" + bytes(8)) * 800_000
    method = protobuf.methods("1.0")["SendMessage"].request
    data = field(2, field(5, field(4, field(6, numbers))))
    assert len(protobuf.parse(data, method).message.parts[0].data.list_value.values) == 800_000
    raw = b"\n\x00*\x00" * 2_000_000
    assert protobuf.parse(field(2, field(5, field(2, raw))), method).message.parts[0].raw == raw


def test_nothing_but_the_tenant_is_parsed_before_a_caller_is_admitted() -> None:
    request = protobuf.methods("1.0")["SendMessage"].request
    assert (
        protobuf.read_tenant(field(1, b"a") + field(2, b"\xff" * 99) + field(1, "b/\u00e9".encode()), request)
        == "b/\u00e9"
    )
    for malformed in (b"\x0a\xff", b"\x0f", b"\xff" * 20, b"\x08\x01" * 5000):
        with pytest.raises(InvalidRequestError):
            protobuf.read_tenant(malformed, request)
    with serving(auth=BearerAuth({"known": "ada"})) as server, channel(server) as opened:
        assert code_of(lambda: opened.unary_unary(path("SendMessage"))(HOSTILE["nested 99"], timeout=30)) is (
            grpc.StatusCode.UNAUTHENTICATED
        )


def test_large_requests_that_are_refused_free_what_they_reserved() -> None:
    large = field(2, b"\x20\x63" + field(5, field(1, b"x" * 9_000_000)))
    with serving() as server, channel(server, ("grpc.max_send_message_length", -1)) as opened:
        refused = [opened.unary_unary(path("SendMessage")).future(large, timeout=60) for _ in range(8)]
        assert {one.code() for one in refused} == {grpc.StatusCode.INVALID_ARGUMENT}
        site: Any = server._site
        assert site.service.engine.responses._taken == 0
        assert not site.service.engine.responses._owners


@pytest.mark.parametrize("credentials", [True, False])
def test_a_refused_message_is_freed_at_once(credentials: bool) -> None:
    # 64 messages of 9.9 MB that were refused took 930 MB, until the garbage collector found the cycles of their errors.
    metadata = [("authorization", "Bearer known")] if credentials else []
    with serving(auth=BearerAuth({"known": "ada"})) as server, channel(server) as opened:
        send = opened.unary_unary(path("SendMessage"))
        refused = {send.future(HOSTILE["a role that does not exist"], metadata=metadata).code()}
        with frames_in_cycles() as left:
            refused |= {send.future(HOSTILE["a role that does not exist"], metadata=metadata).code() for _ in range(5)}
            eventually(lambda: not server._call_threads._pool.running, "the end of the calls")
        assert refused == {grpc.StatusCode.INVALID_ARGUMENT if credentials else grpc.StatusCode.UNAUTHENTICATED}
        assert not left


# -- floods, each process apart --------------------------------------------------------------------------------------------

#: Sends a second of one caller, one after the other, where all calls of a flood are made.
USUAL_RATE = 300


@pytest.fixture
def apart() -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its port, and the id of the process."""
    with printing("-m", "tests.grpc.agent") as child:
        assert child.stdout is not None
        yield int(child.stdout.readline()), child.pid


@contextmanager
def flooded(kind: str, port: int, share: float = 1.0) -> Iterator[None]:
    """Within, a process floods the server with this share of the calls of a kind."""
    with printing("-m", "tests.hostile.http2", kind, str(port), str(share)) as child:
        assert child.stdout is not None
        for _ in range(http2.CONNECTIONS):
            assert child.stdout.readline() == "sent\n"
        yield


def peak(process: int) -> int:
    """The most memory that a process has had, in megabytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["half_sent", "reset"])
def test_a_flood_of_calls_refuses_and_delays_nothing_of_another_caller(
    apart: tuple[int, int], kind: str, record_property: pytest.RecordProperty
) -> None:
    # Of 4 x 1,000 half-sent calls each held a thread or a place; another caller waited 3.4 seconds, and was refused.
    port, process = apart
    with Client(f"grpc://127.0.0.1:{port}", timeout=60, retry=None) as client:
        calm, rate = worst_wait(lambda: client.send("hi"), 1)
        before = peak(process)
        # In proportion to what the server can do now: a busy machine has less of it for both callers.
        with flooded(kind, port, min(1.0, rate / USUAL_RATE)):
            worst, count = worst_wait(lambda: client.send("hi"), 6, process)
        record_property(
            "worst", f"{worst:.2f} s in {count} calls, {calm:.2f} s before; {peak(process) - before} MB more"
        )
    assert count > 5
    assert worst < 2.0 + 10 * calm
    assert peak(process) - before < 150


@pytest.mark.timeout(180)
@pytest.mark.parametrize("credentials", [True, False])
def test_large_messages_at_once_take_bounded_memory_and_delay_another_caller_little(
    credentials: bool, record_property: pytest.RecordProperty
) -> None:
    # 300 messages of 9.9 MB without credentials took 3.5 GB.
    token = () if credentials else ("known",)
    with printing("-m", "tests.grpc.agent", *token) as child:
        assert child.stdout is not None
        port, process = int(child.stdout.readline()), child.pid
        with Client(
            f"grpc://127.0.0.1:{port}", timeout=60, retry=None, headers={"authorization": "Bearer known"}
        ) as client:
            calm, _ = worst_wait(lambda: client.send("hi"), 1)
            before = peak(process)
            with flooded("large", port):
                worst, count = worst_wait(lambda: client.send("hi"), 6, process)
            more = peak(process) - before
            record_property("worst", f"{worst:.2f} s in {count} calls; {more} MB more")
    assert count > 5
    # Messages with credentials are parsed too: two processors that other programs use are busy with it then.
    assert worst < (10.0 if credentials else 2.0) + 10 * calm
    # The messages that have places, with what the C library keeps between them; and those that are executed, or wait for it.
    executed = (responses._MAX_WAITING_BYTES + Limits().max_pending_response_bytes) if credentials else 0
    assert more < (2 * arrivals._MAX_BYTES + executed) // 1024**2


@pytest.mark.timeout(120)
def test_heads_that_repeat_an_entry_take_no_memory(
    apart: tuple[int, int], record_property: pytest.RecordProperty
) -> None:
    port, process = apart
    with Client(f"grpc://127.0.0.1:{port}", timeout=60) as client:
        client.send("hi")
        before = peak(process)
        with flooded("references", port):
            assert client.send("hi").text == "worker: hi"
        record_property("more", f"{peak(process) - before} MB")
    assert peak(process) - before < 100


def test_a_compressed_message_that_becomes_very_large_is_refused_and_takes_no_memory(apart: tuple[int, int]) -> None:
    # gRPC before 1.84 decompresses a message before it checks the size: 400 KB became 400 MB, without credentials.
    port, process = apart
    options = (("grpc.max_send_message_length", -1),)
    with (
        Client(f"grpc://127.0.0.1:{port}", timeout=60) as client,
        grpc.insecure_channel(f"127.0.0.1:{port}", options=options, compression=grpc.Compression.Gzip) as hostile,
    ):
        client.send("hi")
        before = peak(process)
        with pytest.raises(grpc.RpcError) as refused:
            hostile.unary_unary(path("SendMessage"))(bytes(400_000_000), timeout=60)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.send("hi").text == "worker: hi"
    assert peak(process) - before < 100


def test_a_compressed_answer_that_becomes_very_large_is_malformed() -> None:
    # The client took it for an agent that is overloaded, and called again.
    calls = []

    class Expanding(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _: Any) -> Any:
            def answer(request: bytes, rpc: Any) -> bytes:
                calls.append(request)
                return bytes(80_000_000)

            return grpc.unary_unary_rpc_method_handler(answer)

    options = (("grpc.max_send_message_length", -1),)
    hostile = grpc.server(ThreadPoolExecutor(1), [Expanding()], options=options, compression=grpc.Compression.Gzip)
    port = hostile.add_insecure_port("127.0.0.1:0")
    hostile.start()
    try:
        with (
            Client(f"grpc://127.0.0.1:{port}", timeout=30) as client,
            pytest.raises(MalformedResponseError, match="larger than max"),
        ):
            client.get_task("t")
    finally:
        hostile.stop(0).wait(10)
    assert len(calls) == 1


def test_a_name_that_is_not_resolved_delays_only_calls_that_need_it() -> None:
    # It was resolved under a lock, so twelve calls with a limit of 3 seconds needed 24 at most.
    release, asked = threading.Event(), threading.Event()

    def resolve(*_: Any) -> Any:
        asked.set()
        release.wait(60)
        return []

    guard = URLGuard(resolve=resolve)
    with Client("grpc://slow.example.com:50051", url_guard=guard, timeout=0.5, retry=None) as client:
        failed: list[float] = []

        def call() -> None:
            began = time.monotonic()
            with pytest.raises(TransportError):
                client.get_task("t")
            failed.append(time.monotonic() - began)

        try:
            threads = [threading.Thread(target=call, daemon=True) for _ in range(12)]
            for thread in threads:
                thread.start()
            assert asked.wait(30)
            for thread in threads:
                thread.join(60)
        finally:
            release.set()
    assert len(failed) == 12
    assert max(failed) < 5


def test_a_call_that_ends_well_without_a_message_is_malformed() -> None:
    # It was a TypeError, which no caller expects.
    class Silent(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _: Any) -> Any:
            return grpc.unary_stream_rpc_method_handler(lambda request, rpc: iter(()))

    hostile = grpc.server(ThreadPoolExecutor(1), [Silent()])
    port = hostile.add_insecure_port("127.0.0.1:0")
    hostile.start()
    try:
        with (
            Client(f"grpc://127.0.0.1:{port}", timeout=30) as client,
            pytest.raises(MalformedResponseError, match="ended without a message"),
        ):
            client.get_task("t")
    finally:
        hostile.stop(0).wait(10)


def test_of_an_event_with_very_many_unknown_fields_few_are_looked_at() -> None:
    # One of 60 MB took a client 1.9 GB.
    data = field(2, field(1, b"m")) + field(3000, b"") * 1_000_000
    tracemalloc.start()
    try:
        assert protobuf.event_number(data) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_agent_whose_card_always_names_another_address_leaves_few_channels_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each took a descriptor of the client until the client was closed.
    monkeypatch.setattr("a2a_sync.client.cards.MIN_CARD_AGE", 0.0)
    addresses = iter(range(2, 100))

    def next_card(asked: Asked, line: Line) -> None:
        interface = {
            "url": f"grpc://127.0.0.{next(addresses)}:{port}",
            "protocolBinding": "GRPC",
            "protocolVersion": "1.0",
        }
        answers(card(supportedInterfaces=[interface]), Cache_Control="max-age=0")(asked, line)

    with serving() as server, peer({NEW: next_card}) as agent, Client(agent.url) as client:
        port = server.port
        for _ in range(30):
            with pytest.raises(ConnectError):
                client.get_task("t")
        assert 1 < len(client._http._channels) <= 10


@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_behind_a_proxy_heads_of_clients_that_do_not_acknowledge_settings_delay_and_take_nothing(
    apart: tuple[int, int], tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    # Without the proxy the process grew by 1.2 GB, and another caller waited for 22 seconds.
    port, process = apart
    with nginx(tmp_path, port) as behind, Client(f"grpc://127.0.0.1:{behind}", timeout=60, retry=None) as client:
        calm, _ = worst_wait(lambda: client.send("hi"), 1)
        before = peak(process)
        with flooded("unacknowledged", behind):
            worst, count = worst_wait(lambda: client.send("hi"), 5, process)
        record_property("worst", f"{worst:.2f} s in {count} calls; {peak(process) - before} MB more")
    assert count > 5
    assert worst < 1.0 + 10 * calm
    assert peak(process) - before < 50


def test_metadata_of_a_client_that_does_not_acknowledge_settings_is_bounded(server: GRPCServer) -> None:
    # gRPC has no bound for it, and such a call was executed.
    connection = http2.Connection(server.port)
    try:
        connection.send(http2.references(1))
        eventually(lambda: connection.resets == [1], "the end of the call")
    finally:
        connection.socket.close()
    with client_of(server) as client:
        assert client.send("hi").text == "worker: hi"


class Quick(Agent):
    """Answers with a message, and without a task."""

    name = "quick"
    description = "For tests"
    direct = True

    def handle_message(self, message: t.Message, context: RequestContext) -> t.Message:
        return context.agent_message("pong")


def test_a_stream_whose_last_message_is_not_read_is_cut() -> None:
    app = A2AApp(Quick(), limits=Limits(write_timeout=0.3, direct_reply_timeout=30.0))
    with serving(app) as server:
        connection = http2.Connection(server.port)
        try:
            connection.acknowledge()
            # Streams may send nothing (RFC 9113, 6.5.2).
            connection.send(http2.frame(http2.SETTINGS, 0, 0, b"\0\4\0\0\0\0"))
            connection.send(http2.whole(1, path("SendStreamingMessage"), encoded("SendMessage", SAID)))
            eventually(lambda: connection.resets == [1], "the end of the call")
        finally:
            connection.socket.close()
        eventually(lambda: not server._sender._open, "the end of the stream")


@contextmanager
def unread(server: GRPCServer, calls: int) -> Iterator[http2.Connection]:
    """A connection with this many complete calls, whose client gives no window for answers (RFC 9113, 6.9)."""
    with raw(server) as connection:
        connection.send(http2.frame(http2.SETTINGS, 0, 0, b"\0\4\0\0\0\0"))
        for number in range(calls):
            connection.send(http2.whole(2 * number + 1, path("ListTasks"), b""))
        yield connection


@contextmanager
def raw(server: GRPCServer) -> Iterator[http2.Connection]:
    """A connection whose client decides about each frame."""
    connection = http2.Connection(server.port)
    try:
        connection.acknowledge()
        yield connection
    finally:
        # Its reader holds the socket open otherwise.
        connection.socket.shutdown(socket.SHUT_RDWR)
        connection.socket.close()


def test_an_answer_that_is_not_read_is_cut() -> None:
    # It was kept for as long as the connection was open: 1,000 answers of 600 KB on one connection took 1.2 GB.
    with serving(limits=Limits(write_timeout=0.3)) as server, unread(server, 1) as connection:
        eventually(lambda: connection.resets == [1], "the end of the call")


def test_answers_that_are_not_read_are_bounded_and_those_of_other_connections_are_not_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as server:
        monkeypatch.setattr("a2a_sync.grpc.unread._MAX_BYTES", 10 * 34_000)
        kept: Any = server._sender.unread
        with unread(server, 1) as slow:
            eventually(lambda: len(kept._sending) == 1, "the answer of the slow client")
            with unread(server, 30) as hostile:
                eventually(lambda: len(hostile.resets) == 21, "the end of the calls beyond the limit")
                assert (slow.resets, len(kept._sending)) == ([], 10)
        eventually(lambda: not (kept._sending or kept._bytes or kept._connections), "the end of all calls")


# -- calls without a message --------------------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[Callable[..., Any]]:
    """Begins calls of a channel that send their metadata and no message until the test ends."""
    over = threading.Event()

    def messages() -> Iterator[bytes]:
        over.wait(120)
        yield from ()

    yield lambda opened, method: opened.stream_unary(method).future(messages())
    over.set()


@pytest.mark.parametrize(
    "method",
    [path("GetTask"), path("SendStreamingMessage"), "/grpc.health.v1.Health/Check"],
    ids=["call", "stream", "health"],
)
def test_calls_that_send_no_message_hold_nothing_of_others(silent: Callable[..., Any], method: str) -> None:
    # Thirty-two of them, on one connection and without credentials, stopped the server for as long as they lasted.
    with serving(threads=2) as server, channel(server) as opened:
        begun = [silent(opened, method) for _ in range(200)]
        eventually(
            lambda: len(server._call_threads._arrivals._waiting) == 200 - SHARE, "the calls that wait for a place"
        )
        with client_of(server, timeout=60, retry=None) as client:
            for _ in range(5):
                assert client.send("hi").text == "worker: hi"
        # Its share leaves places to other connections, so none of these calls is cut.
        assert not any(one.done() for one in begun)


def test_calls_without_a_message_on_very_many_connections_hold_nothing_of_others(
    silent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_PATIENCE", 0.1)
    alone = ("grpc.use_local_subchannel_pool", 1)
    with serving() as server, ExitStack() as opened, client_of(server, timeout=60, retry=None) as client:
        begun = [silent(opened.enter_context(channel(server, alone)), path("GetTask")) for _ in range(2 * PLACES)]
        for _ in range(3):
            assert client.send("hi").text == "worker: hi"
        own: Any = server._call_threads._arrivals
        eventually(lambda: not own._waiting, "the places of all calls that are left")
        # While none waits, these have their time.
        assert PLACES // 2 <= sum(not one.done() for one in begun) <= PLACES


def test_messages_that_arrive_are_bounded_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # gRPC has taken all of them at once: 300 messages of 9.9 MB took 3.5 GB.
    monkeypatch.setattr(arrivals, "_PATIENCE", 120.0)
    began = struct.pack(">BI", 0, 1_000_000)
    streams = [2 * number + 1 for number in range(SHARE + 20)]
    with serving() as server, raw(server) as connection:
        for stream in streams:
            connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, http2.HEAD))
            connection.send(http2.frame(http2.DATA, 0, stream, began))
        own: Any = server._call_threads._arrivals
        eventually(lambda: (len(own._receiving), len(own._waiting)) == (SHARE, 20), "the calls")
        eventually(
            lambda: connection.window(streams[SHARE - 1]) >= 1_000_000, "the window of the last call with a place"
        )
        # The answer to a ping follows what the server has said before.
        connection.send(http2.frame(http2.PING, 0, 0, bytes(8)))
        eventually(lambda: connection.pongs, "the answer")
        assert [one for one in streams if connection.window(one) > 2 * arrivals.WINDOW] == streams[:SHARE]
        for stream in streams[:20]:
            connection.send(http2.frame(http2.RST_STREAM, 0, stream, struct.pack(">I", 8)))
        eventually(lambda: connection.window(streams[-1]) >= 1_000_000, "the window of a call that has waited")


def test_a_large_message_keeps_its_place_until_it_was_executed() -> None:
    entered, left = threading.Event(), threading.Event()
    with serving(interceptors=[blocking(entered, left)], threads=1) as server, channel(server) as opened:
        send = opened.unary_unary(path("SendMessage"))
        busy = send.future(saying("first"), timeout=120)
        assert entered.wait(60), "the send on the only thread"
        own: Any = server._call_threads
        begun = [send.future(saying("x" * 100_000), timeout=120) for _ in range(2)]
        begun.append(send.future(encoded("SendMessage", SAID), timeout=120))
        eventually(lambda: own._pool.waiting == 3, "the calls that wait for the thread")
        assert own._arrivals._places.taken == 2
        left.set()
        assert all(one.result(60) for one in [busy, *begun])
        eventually(lambda: own._arrivals._places.taken == 0, "the places")


def test_many_large_messages_of_one_client_are_all_answered() -> None:
    with serving() as server, channel(server, ("grpc.max_send_message_length", -1)) as opened:
        sends = [opened.unary_unary(path("SendMessage")).future(http2.LARGE, timeout=120) for _ in range(16)]
        assert {send.code() for send in sends} == {grpc.StatusCode.INVALID_ARGUMENT}


def test_many_calls_whose_messages_are_late_at_once_are_not_cut() -> None:
    # Of 500 sends over 16 connections at once five were cut, because too many waited for their messages at the same moment.
    begun = threading.Event()

    def late() -> Iterator[bytes]:
        begun.wait(60)
        yield b""

    with serving() as server, channel(server) as opened:
        calls = [opened.stream_unary(path("ListTasks")).future(late(), timeout=120) for _ in range(60)]
        eventually(lambda: len(server._call_threads._arrivals._waiting) == 60 - SHARE, "the calls")
        begun.set()
        assert {call.code() for call in calls} == {grpc.StatusCode.OK}


def test_a_message_that_takes_too_long_ends_its_call(silent: Callable[..., Any]) -> None:
    with serving(limits=Limits(body_timeout=0.3)) as server, channel(server) as opened:
        call = silent(opened, path("GetTask"))
        assert call.exception(timeout=60).code() is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize("method", [path("GetTask"), "/grpc.health.v1.Health/Check"], ids=["call", "health"])
def test_a_call_that_ends_without_a_message_is_refused(server: GRPCServer, method: str) -> None:
    with channel(server) as opened, pytest.raises(grpc.RpcError) as refused:
        opened.stream_unary(method)(iter(()), timeout=60)
    error: Any = refused.value
    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")


def blocking(entered: threading.Event, left: threading.Event) -> Interceptor:
    """Sets `entered`, and holds the thread of a call until `left` is set."""

    @interceptor
    def hold(call: AnyCall) -> Generator[AnyCall, Any, Any]:
        entered.set()
        assert left.wait(120)
        return (yield call)

    return hold


@pytest.mark.parametrize("refused", [False, True], ids=["in time", "too late"])
def test_a_call_waits_for_a_thread_and_not_for_ever(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, left = threading.Event(), threading.Event()
    with serving(interceptors=[blocking(entered, left)], threads=1) as server, channel(server) as opened:
        send = opened.unary_unary(path("SendMessage"))
        busy = send.future(saying("first"), timeout=120)
        assert entered.wait(60), "the send on the only thread"
        monkeypatch.setattr(threads, "_LONGEST_WAIT", 0.0 if refused else 120.0)
        later = send.future(encoded("SendMessage", SAID), timeout=120)
        eventually(lambda: server._call_threads._pool.waiting, "the call that waits")
        left.set()
        assert busy.result(60)
        assert code_of(later.result) is (grpc.StatusCode.RESOURCE_EXHAUSTED if refused else None)


def test_a_call_is_answered_when_the_system_has_a_thread_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = threading.Event()
    start = threading.Thread.start

    def start_or_not(thread: threading.Thread) -> None:
        if thread.name.startswith("a2a-grpc-") and thread.name[-1].isdigit() and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    with serving() as server, client_of(server) as client:
        monkeypatch.setattr(threading.Thread, "start", start_or_not)
        # The error ended the thread of gRPC that accepts calls.
        assert client.send("hi").text == "worker: hi"
        assert refused.is_set()


def test_fields_that_the_protocol_does_not_have_are_ignored(server: GRPCServer) -> None:
    data = encoded("SendMessage", SAID) + field(9999, b"x" * 100) + varint(9998 << 3) + b"\x01"
    with channel(server) as opened:
        assert code_of(lambda: opened.unary_unary(path("SendMessage"))(data, timeout=10)) is None


def test_of_several_members_of_a_oneof_the_last_one_counts(server: GRPCServer) -> None:
    part = field(1, b"first") + field(1, b"second")
    data = field(2, field(1, b"m") + b"\x20\x01" + field(5, part))
    with channel(server) as opened:
        answer = opened.unary_unary(path("SendMessage"))(data, timeout=10)
    assert b"worker: second" in answer
    assert b"first" not in answer


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_mutated_requests_never_fail_inside(server: GRPCServer, version: str) -> None:
    rng = random.Random(17)
    seed = encoded("SendMessage", SAID)
    codes = set()
    with channel(server) as opened:
        for name, method in protobuf.methods(version).items():
            for _ in range(60):
                data = bytearray(seed)
                for _ in range(rng.randint(1, 4)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                if OPERATIONS[name].streaming:
                    streamed = opened.unary_stream(method.path)
                    codes.add(code_of(lambda data=data, streamed=streamed: list(streamed(bytes(data), timeout=10))))
                else:
                    plain = opened.unary_unary(method.path)
                    codes.add(code_of(lambda data=data, plain=plain: plain(bytes(data), timeout=10)))
    assert codes - {None} <= REFUSALS


def test_bytes_that_are_not_http_2_do_not_disturb_others(server: GRPCServer) -> None:
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64, b"\0" * 4096):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(garbage)
    with client_of(server) as client:
        assert client.send("hi").text == "worker: hi"


def test_metadata_beyond_the_limit_is_refused(server: GRPCServer) -> None:
    with channel(server) as opened:
        with pytest.raises(grpc.RpcError) as refused:
            opened.unary_unary(path("ListTasks"))(b"", metadata=(("x-large", "x" * 200_000),), timeout=10)
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        opened.unary_unary(path("ListTasks"))(b"", timeout=10)
