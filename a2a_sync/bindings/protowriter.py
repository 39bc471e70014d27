"""Writes JSON as protobuf messages by their descriptors, several times as fast as ``google.protobuf.json_format.ParseDict``.

A function is made of each message type once. It writes every value that the codecs write, in one pass, and raises for others (another
form of a timestamp, a wrong type, a number that no double holds, too many levels). Needs the extra ``grpc``.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from struct import Struct
from threading import Lock
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor as Field

#: Writes a value, without its tag, given the number of the messages around it; raises one of `UNWRITABLE`.
Write: TypeAlias = Callable[[Any, int], bytes]
#: What is raised for values that do not fit their field.
UNWRITABLE = (TypeError, ValueError, LookupError, AttributeError, OverflowError, RecursionError)

_LENGTH_DELIMITED, _VARINT = 2, 0
#: The messages in one another that readers accept, within the outermost one. A list is two of them, an object three.
_MAX_MESSAGES = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLE = Struct("<d").pack


def varint(number: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    if number < 0x80:
        return _SHORT[number]
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


#: The numbers of one byte.
_SHORT = [bytes((number,)) for number in range(0x80)]


@cache
def writer(descriptor: Any) -> Write:
    """The function that writes JSON objects as messages of this type. Members that the type does not have are left out."""
    with _lock:
        return _message(descriptor)


#: Held while functions are made: until then `_made` has some that lack fields.
_lock = Lock()
_made: dict[Any, Write] = {}


def _message(descriptor: Any) -> Write:
    """Called under the lock."""
    if descriptor in _made:
        return _made[descriptor]
    fields: dict[str, Write] = {}
    nullable: set[str] = set()

    def write(value: Any, depth: int) -> bytes:
        return b"".join(
            [
                fields[name](member, depth + 1)
                for name, member in value.items()
                if name in fields and (member is not None or name in nullable)
            ]
        )

    # Types contain themselves, so the function exists before its fields.
    _made[descriptor] = write
    for field in descriptor.fields:
        names = (field.name, field.json_name)
        fields.update(dict.fromkeys(names, _field(field)))
        if field.message_type is not None and field.message_type.full_name == "google.protobuf.Value":
            nullable.update(names)
    return write


def _field(field: Any) -> Write:
    """Writes one field with its tag."""
    if is_map(field):
        return _map(field)
    write = _kind(field)
    delimited = field.type in (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE)
    tag = varint(field.number << 3 | (_LENGTH_DELIMITED if delimited else _VARINT))
    if is_repeated(field):
        return _repeated(tag, write) if delimited else _refuse
    if not delimited:
        return _scalar(tag, write, field.has_presence)
    return _delimited(tag, write, field.has_presence)


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    """Whether a field is a list."""
    # Newer versions of protobuf lack the second, older ones the first.
    repeated: bool = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return repeated


def _delimited(tag: bytes, write: Write, presence: bool) -> Write:
    short = [tag + size for size in _SHORT]

    def write_field(value: Any, depth: int) -> bytes:
        data = write(value, depth)
        size = len(data)
        if not (size or presence):
            return b""
        return (short[size] if size < 0x80 else tag + varint(size)) + data

    return write_field


def _scalar(tag: bytes, write: Write, presence: bool) -> Write:
    def write_field(value: Any, depth: int) -> bytes:
        data = write(value, depth)
        return tag + data if presence or data != b"\0" else b""

    return write_field


def _repeated(tag: bytes, write: Write) -> Write:
    def write_field(value: Any, depth: int) -> bytes:
        if type(value) is not list:
            raise TypeError("no list")
        written: list[bytes] = []
        for item in value:
            data = write(item, depth)
            written += (tag, varint(len(data)), data)
        return b"".join(written)

    return write_field


def _map(field: Any) -> Write:
    key, value = (field.message_type.fields_by_number[number] for number in (1, 2))
    if key.type != Field.TYPE_STRING or value.type not in (Field.TYPE_STRING, Field.TYPE_MESSAGE):
        return _refuse
    write_key, write_value = _delimited(b"\x0a", _text, True), _delimited(b"\x12", _kind(value), True)

    def write_pair(pair: Any, depth: int) -> bytes:
        return write_key(pair[0], depth + 1) + write_value(pair[1], depth + 1)

    write = _repeated(varint(field.number << 3 | _LENGTH_DELIMITED), write_pair)
    return lambda value, depth: write(list(value.items()), depth)


def _kind(field: Any) -> Write:
    """Writes a value of the type of a field, without its tag."""
    if field.type == Field.TYPE_MESSAGE:
        name = field.message_type.full_name
        if name in _WELL_KNOWN or name.startswith("google.protobuf."):
            return _WELL_KNOWN.get(name, _refuse)
        return _message(field.message_type)
    if field.type == Field.TYPE_ENUM:
        # By name only.
        numbers = {value.name: varint(value.number) for value in field.enum_type.values}
        return lambda value, depth: numbers[value]
    return _SCALARS.get(field.type, _refuse)


def _refuse(value: Any, depth: int) -> bytes:
    raise TypeError("of a type that no codec writes")


def _text(value: Any, depth: int) -> bytes:
    data: bytes = value.encode()
    return data


def _bytes(value: Any, depth: int) -> bytes:
    return binascii.a2b_base64(value, strict_mode=True)


def _bool(value: Any, depth: int) -> bytes:
    if type(value) is not bool:
        raise TypeError("no boolean")
    return b"\1" if value else b"\0"


def _int32(value: Any, depth: int) -> bytes:
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise TypeError("no integer of 32 bits")
    return _signed(value)


def _signed(number: int) -> bytes:
    return varint(number & 0xFFFF_FFFF_FFFF_FFFF)


def _timestamp(value: Any, depth: int) -> bytes:
    if not (20 <= len(value) <= 27 and value[10] == "T" and value[-1] == "Z"):
        raise ValueError("no timestamp")
    since = datetime.fromisoformat(value) - _EPOCH
    seconds, nanos = since.days * 86400 + since.seconds, since.microseconds * 1000
    return (b"\x08" + _signed(seconds) if seconds else b"") + (b"\x10" + varint(nanos) if nanos else b"")


# A list of the pieces of a million small members would take 250 MB.


def _struct(value: Any, depth: int) -> bytes:
    if depth > _MAX_MESSAGES:
        raise ValueError(_TOO_DEEP)
    written = bytearray()
    for name, member in value.items():
        # Its pair is a message too.
        key, data = name.encode(), _value(member, depth + 2)
        pair = b"\x0a%b%b\x12%b%b" % (varint(len(key)), key, varint(len(data)), data)
        written += b"\x0a%b%b" % (varint(len(pair)), pair)
    return bytes(written)


def _list(value: Any, depth: int) -> bytes:
    if depth > _MAX_MESSAGES:
        raise ValueError(_TOO_DEEP)
    written = bytearray()
    for item in value:
        data = _value(item, depth + 1)
        written += b"\x0a%b%b" % (varint(len(data)), data)
    return bytes(written)


def _value(value: Any, depth: int, kind: type | None = None) -> bytes:
    """`kind`: the type as which to write it, if that is not its own."""
    if depth > _MAX_MESSAGES:
        raise ValueError(_TOO_DEEP)
    kind = kind or type(value)
    if kind is str:
        data: bytes = value.encode()
        return b"\x1a" + varint(len(data)) + data
    if kind is int:
        return b"\x11" + _DOUBLE(float(value))
    if kind is dict:
        data = _struct(value, depth + 1)
        return b"\x2a" + varint(len(data)) + data
    if kind is list:
        data = _list(value, depth + 1)
        return b"\x32" + varint(len(data)) + data
    if kind is bool:
        return b"\x20\x01" if value else b"\x20\x00"
    if value is None:
        return b"\x08\x00"
    if kind is float:
        if not isfinite(value):
            raise ValueError(f"{value} is no number of JSON")
        return b"\x11" + _DOUBLE(value)
    for base, plain in _PLAIN.items():
        if isinstance(value, base):
            return _value(value, depth, plain)
    raise TypeError(f"{kind.__name__} is no type of JSON")


_TOO_DEEP = f"nested deeper than {_MAX_MESSAGES} messages"
#: How values are written whose types are derived from these.
_PLAIN: dict[type, type] = {str: str, int: int, float: float, dict: dict, list: list, tuple: list}
_SCALARS: dict[int, Write] = {
    Field.TYPE_STRING: _text,
    Field.TYPE_BYTES: _bytes,
    Field.TYPE_BOOL: _bool,
    Field.TYPE_INT32: _int32,
}
_WELL_KNOWN: dict[str, Write] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": _value,
    "google.protobuf.ListValue": _list,
}
