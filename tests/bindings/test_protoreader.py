"""The fast reader of messages: it reads what ``MessageToDict`` reads."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="needs the extra grpc, which `make test` installs")

from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from a2a_sync.bindings import protobuf
from a2a_sync.codec import by_version
from a2a_sync.errors import InvalidRequestError
from a2a_sync.operations import OPERATIONS
from tests.strategies import EVENTS, RESULTS


def check(value: Any, kind: Any) -> None:
    message = kind.FromString(protobuf.encode(value, kind))
    assert protobuf.to_json(message) == MessageToDict(message)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@given(event=EVENTS)
def test_events_are_read_as_messagetodict_reads_them(version: str, event: Any) -> None:
    check(by_version(version, "GRPC").dump_event(event), protobuf.methods(version)["SendStreamingMessage"].response)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if not OPERATIONS[name].streaming])
@given(data=st.data())
def test_results_are_read_as_messagetodict_reads_them(name: str, data: st.DataObject) -> None:
    value = by_version("1.0", "GRPC").dump_result(OPERATIONS[name], data.draw(RESULTS[name]))
    check(value, protobuf.methods("1.0")[name].response)


def test_an_enum_value_without_a_name_is_read_as_its_number() -> None:
    kind = protobuf.methods("1.0")["SendMessage"].request
    message = kind.FromString(b"\x12\x02\x20\x63")
    assert protobuf.to_json(message) == MessageToDict(message) == {"message": {"role": 99}}


@given(
    data=st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), st.lists
    )
)
def test_data_is_read_as_messagetodict_reads_it(data: Any) -> None:
    kind = protobuf.methods("1.0")["SendMessage"].request
    check({"metadata": {"list": [data], "value": data, "dict": {"": data}}}, kind)


def test_a_value_of_no_kind_is_read_as_null() -> None:
    kind = protobuf.methods("1.0")["SendMessage"].request
    message = kind(metadata={"list": [1]})
    message.metadata.fields["list"].list_value.values[0].Clear()
    assert protobuf.to_json(message) == MessageToDict(message) == {"metadata": {"list": [None]}}


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    kind = protobuf.methods("1.0")["SendMessage"].request
    with pytest.raises(InvalidRequestError):
        protobuf.to_json(kind(metadata={"data": [float(number)]}))
