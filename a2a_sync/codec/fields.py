"""How a type's members are described once and both read and written: the ProtoJSON rules that all versions share.

A `Kind` reads and writes values of one sort. A `Record` is the kind of a dataclass, made of `Member` rows; a `OneOf` is
the kind of a union whose JSON names its member. Reading costs what is present, not what could be, and the path of a bad
member is put together only when there is one. Which members exist is said in the version's module, not here.

Reading has two manners. ``strict`` is for requests: required members must be there, unknown enum names are refused.
Otherwise (answers, cards) what is missing gets its default and what is unknown is passed over, so that a peer that is
newer or careless can still be understood; a value of the wrong type is refused in both.
"""

from __future__ import annotations

import binascii
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

Load: TypeAlias = Callable[[Any, bool], Any]
Dump: TypeAlias = Callable[[Any], Any]


class InvalidAnswer(ValueError):
    """What a peer sent as an answer, an event or a card is not what the protocol says; the message names the member."""


class Invalid(Exception):
    """A value does not fit. ``path`` is collected on the way up, innermost first; only codecs see this class."""

    def __init__(self, description: str, *path: str | int) -> None:
        super().__init__(description)
        self.description = description
        self.path: list[str | int] = list(path)

    def below(self, step: str | int) -> Invalid:
        """The same, seen from one level further out."""
        self.path.append(step)
        return self

    @property
    def where(self) -> str:
        """The path as people write it: ``message.parts[0].text``; empty for the value itself."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.path))
        return "".join(steps).removeprefix(".")


class Kind(Protocol):
    """One sort of value. ``empty`` is what the protocol takes a missing one for; None: it takes it for nothing."""

    @property
    def empty(self) -> Any: ...

    def load(self, value: Any, strict: bool) -> Any:
        """The value for a dataclass. None (never for a strict reader) means that this library has no word for it."""

    @property
    def dump(self) -> Dump | None:
        """Writes a value; None where it is written as it stands. It gives None for what is never written."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kind made of two functions."""

    load: Load
    dump: Dump | None = None
    empty: Any = None


_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def unexpected(wanted: str, value: Any) -> Invalid:
    """The refusal of a value of the wrong JSON type."""
    return Invalid(f"expected {wanted}, got {_JSON_NAMES.get(type(value), 'a number')}")


def shown(text: str) -> str:
    """`text` as it may stand in an error message."""
    return repr(text if len(text) <= 60 else text[:60] + "…")


# -- scalars ------------------------------------------------------------------------------------------------------------


def _load_text(value: Any, strict: bool) -> str:
    if isinstance(value, str):
        return value
    raise unexpected("a string", value)


def _load_flag(value: Any, strict: bool) -> bool:
    if value is True or value is False:
        return value
    raise unexpected("a boolean", value)


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


def _dump_timestamp(value: datetime) -> str:
    # spec 5.6.1: milliseconds and Z. Finer ones are written out only where they would otherwise be lost.
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


def _dump_base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _load_struct(value: Any, strict: bool) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise unexpected("an object", value)


def _dump_struct(value: Mapping[str, Any]) -> dict[str, Any]:
    return value if isinstance(value, dict) else dict(value)


TEXT = Scalar(_load_text, empty="")
FLAG = Scalar(_load_flag, empty=False)
INT32 = Scalar(_load_int32, empty=0)
TIMESTAMP = Scalar(_load_timestamp, _dump_timestamp)
BASE64 = Scalar(_load_base64, _dump_base64, empty=b"")
STRUCT = Scalar(_load_struct, _dump_struct, empty={})


def names(words: Mapping[enum.Enum, str], unspecified: enum.Enum) -> Scalar:
    """An enum, written by name, read by name or number (a member's number is its place in `words`)."""
    by_word: dict[str | int, enum.Enum] = {word: member for member, word in words.items()}
    by_word.update(enumerate(words))
    written = {member: word for member, word in words.items() if member is not unspecified}

    def load(value: Any, strict: bool) -> enum.Enum:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise unexpected("a name", value)
        member = by_word.get(value)
        if member is None:
            if strict:
                known = ", ".join(written.values())
                raise Invalid(f"{shown(value) if isinstance(value, str) else 'this number'} is none of {known}")
            return unspecified
        return member

    return Scalar(load, written.get, empty=unspecified)


# -- collections --------------------------------------------------------------------------------------------------------


def many(kind: Kind) -> Scalar:
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
        return list(value) if dump_item is None else [dump_item(item) for item in value]

    return Scalar(load, dump, empty=())


def mapping(kind: Kind) -> Scalar:
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

    return Scalar(load, dump, empty={})


# -- dataclasses --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a dataclass.

    ``json`` is its name on the wire (made from the attribute's where not given; the proto's own snake case name is
    always read too). ``required``: a request without it is refused. ``always``: it is written even where it is empty.
    ``optional``: the protocol tells absent from default, so every value but None is written.
    """

    attribute: str
    kind: Kind
    json: str = ""
    required: bool = False
    always: bool = False
    optional: bool = False

    @property
    def name(self) -> str:
        """The name on the wire."""
        return self.json or camel(self.attribute)

    @property
    def names(self) -> tuple[str, str]:
        """The names that are read: the one on the wire and the proto's own."""
        return (self.name, self.json or self.attribute)


def camel(attribute: str) -> str:
    """``context_id`` as ``contextId``."""
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)


class Record:
    """The kind of one dataclass. Absent, null and empty members are one and the same unless a row says otherwise."""

    empty = None

    def __init__(self, cls: type, *members: Member) -> None:
        self.cls = cls
        self.members = members
        self._by_key = {
            key: (member.attribute, member.kind.load, member.name) for member in members for key in member.names
        }
        self._required = tuple(member for member in members if member.required)
        self._written = tuple(
            (member.name, member.kind.dump, member.required or member.always or member.optional) for member in members
        )
        # The class stands at the end so that the getter gives a tuple for a single member too.
        self._attributes = attrgetter(*(member.attribute for member in members), "__class__")

    def load(self, value: Any, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise unexpected("an object", value)
        found = self.found(value, strict)
        for member in self._required:
            if found.get(member.attribute, member.kind.empty) == member.kind.empty:
                if strict:
                    raise Invalid(_missing(member), member.name)
                if member.attribute not in found:
                    found[member.attribute] = self._stand_in(member)
                    if found[member.attribute] is None:
                        return None
        return self.cls(**found)

    def found(self, value: dict[str, Any], strict: bool) -> dict[str, Any]:
        """The members that are there, by attribute."""
        found = {}
        by_key = self._by_key
        for key, item in value.items():
            if item is not None and key in by_key:
                attribute, load, name = by_key[key]
                try:
                    loaded = load(item, strict)
                except Invalid as invalid:
                    raise invalid.below(name) from None
                if loaded is not None:
                    found[attribute] = loaded
        return found

    def _stand_in(self, member: Member) -> Any:
        kind = member.kind
        return kind.load({}, False) if isinstance(kind, Record) else kind.empty

    def dump(self, obj: Any) -> dict[str, Any]:
        written = {}
        for (name, dump, keep), value in zip(self._written, self._attributes(obj), strict=False):
            if value or (keep and value is not None):
                if dump is not None:
                    value = dump(value)
                    if value is None:
                        continue
                written[name] = value
        return written


def _missing(member: Member) -> str:
    if member.kind.empty == ():
        return "at least one is required"
    return "is required"


class OneOf:
    """The kind of a union: an object with exactly one of several keys, each the name of one dataclass."""

    empty = None

    def __init__(self, **records: Record) -> None:
        self._records = {camel(attribute): record for attribute, record in records.items()}
        self._by_key = {key: name for attribute in records for name in [camel(attribute)] for key in (attribute, name)}
        self._names = {record.cls: (name, record.dump) for name, record in self._records.items()}
        self.classes = tuple(self._names)

    def load(self, value: Any, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise unexpected("an object", value)
        chosen = ""
        content = None
        for key, item in value.items():
            name = self._by_key.get(key)
            if name is not None and item is not None:
                if chosen and chosen != name:
                    raise Invalid(f"has both {chosen} and {name}")
                chosen, content = name, item
        if not chosen:
            if strict:
                raise Invalid(f"needs one of {', '.join(self._records)}")
            return None
        try:
            return self._records[chosen].load(content, strict)
        except Invalid as invalid:
            raise invalid.below(chosen) from None

    def dump(self, obj: Any) -> dict[str, Any]:
        name, dump = self._names[type(obj)]
        return {name: dump(obj)}
