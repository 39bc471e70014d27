"""Reading and writing of single values by the ProtoJSON rules that all versions share.

A `Kind` reads and writes values of one type; `records` combines them to kinds of dataclasses. The path of a malformed
member is built only when there is an error.

Reading has two modes. ``strict`` is for requests: required members must be present, and unknown enum names are refused.
In lenient mode (responses, cards) missing members get their defaults and unknown ones are ignored, so that newer or
careless peers can be understood. Both refuse values of the wrong type.
"""

from __future__ import annotations

import binascii
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

Load: TypeAlias = Callable[[Any, bool], Any]
Dump: TypeAlias = Callable[[Any], Any]


class DecodeError(ValueError):
    """A response, event or card of a peer does not conform to the protocol; the message names the member."""


class Invalid(Exception):
    """A value does not fit. ``path`` is collected on the way up, innermost first; only codecs see this class."""

    def __init__(self, description: str, *path: str | int) -> None:
        super().__init__(description)
        self.description = description
        self.path: list[str | int] = list(path)

    def below(self, step: str | int) -> Invalid:
        """This error, with `step` added at the outer end of its path."""
        self.path.append(step)
        return self

    @property
    def where(self) -> str:
        """The path as text, such as ``message.parts[0].text``; empty for the value itself. A peer chooses the names in a map."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{_beginning(step)}" for step in reversed(self.path))
        return "".join(steps).removeprefix(".")


class Kind(Protocol):
    """One type of value. ``empty`` is the default of a missing value; None if there is no default."""

    @property
    def empty(self) -> Any: ...

    def load(self, value: Any, strict: bool) -> Any:
        """The value for a dataclass. None, only in lenient mode, is for a value that this library does not support."""

    @property
    def dump(self) -> Dump | None:
        """Writes a value; None where it is written as it stands. It gives None for what is never written."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kind made of two functions. `plain`: values of exactly this type are read as they stand, so `load` need not be called."""

    load: Load
    dump: Dump | None = None
    empty: Any = None
    plain: type | None = None


@dataclass(frozen=True, slots=True)
class Collection(Scalar):
    """A kind made by `many` or `mapping`, which is ``make``, of the kind ``item``."""

    item: Kind = Scalar(lambda value, strict: value)
    make: Callable[[Kind], Kind] | None = None


_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def unexpected(wanted: str, value: Any) -> Invalid:
    """The refusal of a value of the wrong JSON type."""
    return Invalid(f"expected {wanted}, got {_JSON_NAMES.get(type(value), 'a number')}")


def load_at(step: str, load: Load, value: Any, strict: bool) -> Any:
    """What `load` makes of `value`, which is at `step` of the object that is read."""
    try:
        return load(value, strict)
    except Invalid as invalid:
        raise invalid.below(step) from None


def shown(text: str) -> str:
    """`text`, shortened and escaped for an error message."""
    return repr(_beginning(text))


def _beginning(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


# -- scalars ------------------------------------------------------------------------------------------------------------


def _load_as(kind: type, wanted: str) -> Load:
    """A function that accepts the values of one JSON type."""

    def load(value: Any, strict: bool) -> Any:
        if isinstance(value, kind):
            return value
        raise unexpected(wanted, value)

    return load


_INTEGER = re.compile(r"-?[0-9]{1,10}")


def _load_int32(value: Any, strict: bool) -> int:
    number = value
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise Invalid(f"expected an integer, got {shown(value)}")
        number = int(value)
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise unexpected("an integer", value)
    if not isinstance(number, int):
        raise Invalid("expected an integer, got a fraction")
    if not -(2**31) <= number < 2**31:
        raise Invalid("does not fit into 32 bits")
    return number


_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}(?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


def _load_timestamp(value: Any, strict: bool) -> datetime:
    if not isinstance(value, str):
        raise unexpected("a timestamp", value)
    if not _TIMESTAMP.fullmatch(value):
        raise Invalid(f"{shown(value)} is not a timestamp like 2025-11-09T10:30:00.000Z")
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(f"{shown(value)} is not a date") from None


def _load_moment(value: Any, strict: bool) -> datetime | None:
    if strict:
        return _load_timestamp(value, strict)
    try:
        return _load_timestamp(value, strict)
    except Invalid:
        # In 0.3 it is any string, and some servers of 1.0 omit the offset: an unreadable time must not make the whole
        # response unreadable.
        return None


def _dump_timestamp(value: datetime) -> str:
    # spec 5.6.1: milliseconds and Z. More digits are written only if they would be lost otherwise.
    if value.tzinfo is not UTC:
        if value.tzinfo is None:
            raise ValueError(f"a timestamp needs a time zone: {value.isoformat()}")
        value = value.astimezone(UTC)
    precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
    return value.isoformat(timespec=precision)[:-6] + "Z"


_URL_SAFE = str.maketrans("-_", "+/")


def _load_base64(value: Any, strict: bool) -> bytes:
    if not isinstance(value, str):
        raise unexpected("a base64 string", value)
    if "-" in value or "_" in value:
        value = value.translate(_URL_SAFE)
    if len(value) % 4:
        value += "=" * (-len(value) % 4)
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise Invalid("is not base64") from None


def _dump_struct(value: Mapping[str, Any]) -> dict[str, Any]:
    return value if isinstance(value, dict) else dict(value)


TEXT = Scalar(_load_as(str, "a string"), empty="", plain=str)
FLAG = Scalar(_load_as(bool, "a boolean"), empty=False, plain=bool)
INT32 = Scalar(_load_int32, empty=0)
TIMESTAMP = Scalar(_load_timestamp, _dump_timestamp)
#: A timestamp that a lenient reader ignores if it is malformed.
MOMENT = Scalar(_load_moment, _dump_timestamp)
BASE64 = Scalar(_load_base64, lambda value: binascii.b2a_base64(value, newline=False).decode("ascii"), empty=b"")
STRUCT = Scalar(_load_as(dict, "an object"), _dump_struct, empty={}, plain=dict)


def names(
    words: Mapping[enum.Enum, str],
    unspecified: enum.Enum,
    *,
    numbered: bool = True,
    unspecified_name: str | None = None,
    aliases: Mapping[str, enum.Enum] | None = None,
) -> Scalar:
    """An enum, read and written by name.

    Parameters:
        words: the names of the members.
        unspecified: the member for unknown names in lenient mode.
        numbered: whether numbers are read, too; the number of a member is its index in `words`.
        unspecified_name: the name with which `unspecified` is written; None: it is not written.
        aliases: further names that are read.
    """
    by_word: dict[str | int, enum.Enum] = {word: member for member, word in words.items()}
    by_word.update(aliases or {})
    if numbered:
        by_word.update(enumerate(words))
    written = {member: word for member, word in words.items() if member is not unspecified}
    known = ", ".join(written.values())
    if unspecified_name is not None:
        written[unspecified] = unspecified_name

    def load(value: Any, strict: bool) -> enum.Enum:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise unexpected("a name", value)
        member = by_word.get(value)
        if member is None:
            if strict:
                raise Invalid(f"{shown(value) if isinstance(value, str) else 'this number'} is none of {known}")
            return unspecified
        return member

    return Scalar(load, written.get, empty=unspecified)


# -- collections --------------------------------------------------------------------------------------------------------


def many(kind: Kind) -> Collection:
    """A list, held as a tuple."""
    load_item, dump_item = kind.load, kind.dump

    def load(value: Any, strict: bool) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise unexpected("an array", value)
        items = []
        for index, item in enumerate(value):
            try:
                loaded = load_item(item, strict)
            except Invalid as invalid:
                raise invalid.below(index) from None
            if loaded is not None:
                items.append(loaded)
        return tuple(items)

    def dump(value: Iterable[Any]) -> list[Any]:
        return list(value) if dump_item is None else list(map(dump_item, value))

    return Collection(load, dump, (), item=kind, make=many)


def mapping(kind: Kind) -> Collection:
    """A map from names to values of one kind."""
    load_item, dump_item = kind.load, kind.dump

    def load(value: Any, strict: bool) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise unexpected("an object", value)
        items = {}
        for key, item in value.items():
            try:
                loaded = load_item(item, strict)
            except Invalid as invalid:
                raise invalid.below(key) from None
            if loaded is not None:
                items[key] = loaded
        return items

    def dump(value: Mapping[str, Any]) -> dict[str, Any]:
        return dict(value) if dump_item is None else {key: dump_item(item) for key, item in value.items()}

    return Collection(load, dump, {}, item=kind, make=mapping)
