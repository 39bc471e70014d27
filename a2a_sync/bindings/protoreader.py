"""Reads protobuf messages as JSON by their descriptors, several times as fast as ``google.protobuf.json_format.MessageToDict``.

A function is made of each message type once. The types of Google other than data and metadata, such as times, are left to
``MessageToDict``. Needs the extra ``grpc``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.json_format import MessageToDict

from a2a_sync.bindings.protowriter import is_map, is_repeated

#: Makes JSON of a value.
Read: TypeAlias = Callable[[Any], Any]

#: Whole numbers beyond it are not exact in the doubles of protobuf.
_MAX_WHOLE = 2.0**53


@cache
def reader(descriptor: Any) -> Read:
    """The function that makes JSON of messages of this type. It raises as ``MessageToDict`` does."""
    if descriptor.full_name.startswith("google."):
        known: Read = _DATA.get(descriptor.full_name, MessageToDict)
        return known
    fields: dict[Any, tuple[str, Read]] = {}

    def read(message: Any) -> dict[str, Any]:
        if not fields:
            # Not before, because types contain themselves.
            fields.update({field: (field.json_name, _field(field)) for field in descriptor.fields})
        written = {}
        for field, value in message.ListFields():
            name, read_value = fields[field]
            written[name] = read_value(value)
        return written

    return read


def _field(field: Any) -> Read:
    if is_map(field):
        member = _value(field.message_type.fields_by_number[2])
        return lambda entries: {key: member(value) for key, value in entries.items()}
    one = _value(field)
    return (lambda items: [one(item) for item in items]) if is_repeated(field) else one


def _value(field: Any) -> Read:
    if field.type == Field.TYPE_MESSAGE:
        return reader(field.message_type)
    if field.type == Field.TYPE_ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    return _SCALARS.get(field.type, lambda value: value)


_SCALARS: dict[int, Read] = {Field.TYPE_BYTES: lambda data: b64encode(data).decode(), Field.TYPE_INT64: str}


def _read_struct(struct: Any) -> dict[str, Any]:
    return {name: _read_data(value) for name, value in struct.fields.items()}


def _read_list(items: Any) -> list[Any]:
    return [_read_data(value) for value in items.values]


def _read_data(value: Any) -> Any:
    """The JSON of a ``google.protobuf.Value``. Raises `ValueError`: a number that JSON does not have."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number: float = value.number_value
        # Data and metadata have only doubles in protobuf: one without a fraction is an integer.
        if number.is_integer() and abs(number) <= _MAX_WHOLE:
            return int(number)
        if not isfinite(number):
            raise ValueError(f"{number} is no number of JSON")
        return number
    if kind == "struct_value":
        return _read_struct(value.struct_value)
    if kind == "list_value":
        return _read_list(value.list_value)
    return None if kind is None or kind == "null_value" else getattr(value, kind)


_DATA: dict[str, Read] = {
    "google.protobuf.Struct": _read_struct,
    "google.protobuf.ListValue": _read_list,
    "google.protobuf.Value": _read_data,
}
