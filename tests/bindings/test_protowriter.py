"""The fast writer of messages: it writes what ``ParseDict`` writes, and leaves to it what it does not."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="needs the extra grpc, which `make test` installs")

from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from a2a_sync.bindings import protobuf, protowriter
from a2a_sync.codec import by_version
from a2a_sync.operations import OPERATIONS
from tests.strategies import EVENTS, RESULTS

VERSIONS = ["1.0", "0.3"]
RESPONSE = protobuf.methods("1.0")["SendMessage"].response
REQUEST = protobuf.methods("1.0")["SendMessage"].request


def parsed(value: Any, message: Any) -> Any:
    return ParseDict(value, message(), ignore_unknown_fields=True)


@pytest.mark.parametrize("version", VERSIONS)
@given(event=EVENTS)
def test_events_are_written_as_parsedict_writes_them(version: str, event: Any) -> None:
    message = protobuf.methods(version)["SendStreamingMessage"].response
    value = by_version(version, "GRPC").dump_event(event)
    assert message.FromString(protobuf.encode(value, message)) == parsed(value, message)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if not OPERATIONS[name].streaming])
@given(data=st.data())
def test_results_are_written_as_parsedict_writes_them(name: str, data: st.DataObject) -> None:
    message = protobuf.methods("1.0")[name].response
    value = by_version("1.0", "GRPC").dump_result(OPERATIONS[name], data.draw(RESULTS[name])) or {}
    assert message.FromString(protobuf.encode(value, message)) == parsed(value, message)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.mark.parametrize("value", [{f"{n:x}": 0 for n in range(50_000)}, list(range(50_000))], ids=["keys", "numbers"])
def test_many_small_values_take_little_more_memory_than_their_message(value: Any) -> None:
    """A million keys took 680 MB, for a message of 19 MB."""
    write = protowriter.writer(RESPONSE.DESCRIPTOR)
    task = {"task": {"id": "t", "artifacts": [{"parts": [{"data": value}]}]}}
    size = len(write(task))
    tracemalloc.start()
    write(task)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * size


@given(value=JSON)
def test_every_json_value_is_written_without_parsedict(value: Any) -> None:
    task = {"task": {"id": "t", "artifacts": [{"parts": [{"data": value}], "metadata": {"k": value}}]}}
    assert RESPONSE.FromString(protowriter.writer(RESPONSE.DESCRIPTOR)(task)) == parsed(task, RESPONSE)


@pytest.mark.parametrize(
    "value",
    [
        {"task": {"status": {"timestamp": "2025-11-09T10:30:00.123456789+01:00"}}},
        {"task": {"status": {"timestamp": "1969-12-31T23:59:59Z"}}},
        {"task": {"status": {"state": 3}}},
        {"task": {"artifacts": [{"parts": [{"raw": "_-8"}]}]}},
    ],
)
def test_forms_that_no_codec_writes_are_left_to_parsedict(value: Any) -> None:
    with pytest.raises(protowriter.UNWRITABLE):
        protowriter.writer(RESPONSE.DESCRIPTOR)(value)
    assert RESPONSE.FromString(protobuf.encode(value, RESPONSE)) == parsed(value, RESPONSE)


def test_values_of_a_wrong_type_are_refused() -> None:
    for value in (
        {"task": {"id": 5}},
        {"task": ["id"]},
        {"task": {"artifacts": {}}},
        {"task": {"artifacts": [{"append": "yes", "parts": "x"}]}},
        {"message": {"parts": [{"text": "\ud800"}]}},
    ):
        with pytest.raises(ValueError, match=r"\w"):
            protobuf.encode(value, RESPONSE)


def test_values_that_are_nested_deeper_than_readers_accept_are_refused() -> None:
    value: Any = "x"
    for _ in range(60):
        value = [value]
    with pytest.raises(ValueError, match=r"\w"):
        protobuf.encode({"message": {"parts": [{"data": value}]}}, RESPONSE)


def test_threads_that_need_a_writer_at_once_get_a_whole_one() -> None:
    value = {"message": {"messageId": "m", "parts": [{"text": "hi"}], "metadata": {"a": [1]}}}
    expected = protobuf.encode(value, REQUEST)
    protowriter.writer.cache_clear()
    protowriter._made.clear()
    ready = threading.Barrier(8)
    written: list[bytes] = []

    def write() -> None:
        ready.wait(30)
        written.append(protobuf.encode(value, REQUEST))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert written == [expected] * 8
