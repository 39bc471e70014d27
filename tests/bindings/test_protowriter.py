"""The fast writer of messages: it writes what ``ParseDict`` writes of all that codecs write, and refuses the rest."""

from __future__ import annotations

import threading
import tracemalloc
from collections import OrderedDict
from contextlib import suppress
from enum import IntEnum, StrEnum
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
QUERY = protobuf.methods("1.0")["ListTasks"].request


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
    task = {"task": {"id": "t", "artifacts": [{"parts": [{"data": value}]}]}}
    size = len(protobuf.encode(task, RESPONSE))
    tracemalloc.start()
    protobuf.encode(task, RESPONSE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * size


@given(value=JSON)
def test_every_json_value_is_written_as_parsedict_writes_it(value: Any) -> None:
    task = {"task": {"id": "t", "artifacts": [{"parts": [{"data": value}], "metadata": {"k": value}}]}}
    assert RESPONSE.FromString(protobuf.encode(task, RESPONSE)) == parsed(task, RESPONSE)


def test_values_of_derived_types_are_written_as_those_that_they_are() -> None:
    class Word(StrEnum):
        ONE = "one"

    class Number(IntEnum):
        TWO = 2

    class Half(float):
        pass

    derived = {"message": {"metadata": OrderedDict(a=(Word.ONE, Number.TWO, Half(0.5), [OrderedDict(b=())]))}}
    plain = {"message": {"metadata": {"a": ["one", 2, 0.5, [{"b": []}]]}}}
    assert protobuf.encode(derived, RESPONSE) == protobuf.encode(plain, RESPONSE)


@pytest.mark.parametrize(
    "time",
    [
        "1969-12-31T23:59:59Z",
        "1969-12-31T23:59:59.999999Z",
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:00.001Z",
        "0001-01-01T00:00:00.000Z",
        "9999-12-31T23:59:59.999999Z",
    ],
)
def test_times_of_every_year_are_written(time: str) -> None:
    value = {"task": {"status": {"timestamp": time}}}
    assert RESPONSE.FromString(protobuf.encode(value, RESPONSE)) == parsed(value, RESPONSE)


@pytest.mark.parametrize("number", [0, 1, 2**31 - 1, -1, -(2**31)])
def test_integers_of_32_bits_are_written(number: int) -> None:
    value = {"pageSize": number, "historyLength": number}
    assert QUERY.FromString(protobuf.encode(value, QUERY)) == parsed(value, QUERY)


@pytest.mark.parametrize(
    "value",
    [
        {"task": {"status": {"timestamp": "2025-11-09T10:30:00.123456789+01:00"}}},
        {"task": {"status": {"state": 3}}},
        {"task": {"status": {"state": "TASK_STATE_OF_LATER"}}},
        {"task": {"artifacts": [{"parts": [{"raw": "_-8"}]}]}},
        {"task": {"metadata": {"a": float("nan")}}},
        {"task": {"metadata": {"a": float("-inf")}}},
        {"task": {"metadata": {"a": {1}}}},
        {"task": {"metadata": {1: 1}}},
        {"task": {"metadata": [1]}},
    ],
)
def test_forms_that_no_codec_writes_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not a valid SendMessageResponse: "):
        protobuf.encode(value, RESPONSE)


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


def nested(levels: int, *, within: type, value: Any = "x") -> Any:
    for _ in range(levels):
        value = [value] if within is list else {"a": value}
    return value


#: Data in several places, and how many lists and objects readers accept in one another there.
PLACES: dict[str, tuple[Any, int, int]] = {
    "a message": (lambda value: {"message": {"parts": [{"data": value}]}}, 48, 32),
    "an artifact": (lambda value: {"task": {"artifacts": [{"parts": [{"data": value}]}]}}, 48, 32),
    "metadata of a message": (lambda value: {"message": {"metadata": {"a": value}}}, 48, 32),
    "metadata of an artifact": (lambda value: {"task": {"artifacts": [{"metadata": {"a": value}}]}}, 47, 31),
}


@pytest.mark.parametrize("within", [list, dict])
@pytest.mark.parametrize("place", PLACES)
def test_values_are_written_as_deep_as_readers_accept_and_refused_beyond(place: str, within: type) -> None:
    make, lists, objects = PLACES[place]
    most = lists if within is list else objects
    value = make(nested(most, within=within))
    written = protobuf.encode(value, RESPONSE)
    assert protobuf.to_json(protobuf.parse(written, RESPONSE)) == value
    for levels in (most + 1, 1000):
        with pytest.raises(ValueError, match="nested deeper than 100 messages"):
            protobuf.encode(make(nested(levels, within=within)), RESPONSE)


@pytest.mark.parametrize("empty", [[], {}])
def test_an_empty_value_is_written_at_the_last_level_that_readers_accept(empty: Any) -> None:
    value = {"message": {"parts": [{"data": nested(48, within=list, value=empty)}]}}
    assert protobuf.to_json(protobuf.parse(protobuf.encode(value, RESPONSE), RESPONSE)) == value
    value = {"message": {"metadata": nested(33, within=dict, value=empty)}}
    with pytest.raises(ValueError, match="nested deeper"):
        protobuf.encode(value, RESPONSE)


@pytest.mark.parametrize(
    "last",
    [nested(41, within=list), nested(60, within=list), nested(40, within=dict), 10**400, -(10**400)],
    ids=["41 lists", "60 lists", "40 objects", "a large number", "a small number"],
)
def test_nothing_that_a_caller_can_choose_is_written_twice(last: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One list of 41 levels made an answer take five to thirteen times as long: it was written again by ``ParseDict``."""
    again: list[Any] = []
    monkeypatch.setattr(protobuf, "ParseDict", lambda *values, **options: again.append(values) or RESPONSE())
    with suppress(ValueError):
        protobuf.encode({"message": {"parts": [{"data": [0, last]}]}}, RESPONSE)
    assert not again


def test_an_integer_that_no_double_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="int too large to convert to float"):
        protobuf.encode({"message": {"parts": [{"data": [10**400]}]}}, RESPONSE)


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
