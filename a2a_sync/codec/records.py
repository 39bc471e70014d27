"""How dataclasses and unions are described once and both read and written.

A `Record` is the kind of a dataclass, made of `Member` rows; `OneOf` and `Variants` are kinds of unions: the first names
its member by a key around it, the second by a tag inside it. Reading costs what is present, not what could be. Which
members exist is said in the version's module, not here; how strict a reader is, in `fields`.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from a2a_sync.codec.fields import Invalid, Kind, shown, unexpected


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a dataclass.

    ``json`` is its name on the wire (made from the attribute's where not given; the same in snake case is always read
    too, and so are those in ``also``). ``required``: a request without it is refused. ``always``: it is written even where
    it is empty. ``optional``: the protocol tells absent from default, so every value but None is written.
    """

    attribute: str
    kind: Kind
    json: str = ""
    required: bool = False
    always: bool = False
    optional: bool = False
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name on the wire."""
        return self.json or camel(self.attribute)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are read."""
        return (self.name, snake(self.json) or self.attribute, *self.also)


def required(attribute: str, kind: Kind, json: str = "", *also: str) -> Member:
    """A member without which a request is refused."""
    return Member(attribute, kind, json, required=True, also=also)


def optional(attribute: str, kind: Kind, json: str = "") -> Member:
    """A member that the protocol tells absent from empty."""
    return Member(attribute, kind, json, optional=True)


def camel(attribute: str) -> str:
    """``context_id`` as ``contextId``."""
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)


def snake(name: str) -> str:
    """``contextId`` as ``context_id``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def load_member(value: dict[str, Any], name: str, kind: Kind, strict: bool) -> Any:
    """What a member of an object holds; None where a lenient reader finds nothing."""
    held = value.get(name)
    try:
        if held is None:
            if strict:
                raise Invalid("is required")
            return None
        return kind.load(held, strict)
    except Invalid as invalid:
        raise invalid.below(name) from None


class Record:
    """The kind of one dataclass. Absent, null and empty members are one and the same unless a row says otherwise."""

    empty = None
    #: What every object begins with on the wire.
    _head: dict[str, Any] = {}

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
        # A getter of fewer than two names would give no tuple.
        attributes = [member.attribute for member in members]
        self._attributes = attrgetter(*attributes, *["__class__"] * (2 - len(attributes)))

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
        written = self._head.copy()
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
        self.keys = frozenset(self._by_key)
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


class Tagged(Record):
    """A record whose JSON says what it is: ``{"kind": "task", …}``. Senders that leave the tag out are understood."""

    def __init__(self, tag: str, word: str, cls: type, *members: Member) -> None:
        super().__init__(cls, *members)
        self.word = word
        self._tag = tag
        self._head = {tag: word}

    def load(self, value: Any, strict: bool) -> Any:
        if strict and isinstance(value, dict) and (said := value.get(self._tag)) is not None and said != self.word:
            raise Invalid(f"must be {self.word}", self._tag)
        return super().load(value, strict)


class Variants:
    """The kind of a union whose JSON names its member by a tag.

    `marks` are members that only one of the records has: they tell where the tag is missing, the first one that is there.
    """

    empty = None

    def __init__(self, tag: str, *records: Tagged, marks: dict[str, str] | None = None) -> None:
        self._tag = tag
        self._by_word = {record.word: record for record in records}
        self._by_class = {record.cls: record for record in records}
        self._marks = marks or {}
        self.classes = tuple(self._by_class)

    def load(self, value: Any, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise unexpected("an object", value)
        word = value.get(self._tag)
        if word is None or (word == "" and not strict):
            word = next((word for mark, word in self._marks.items() if mark in value), None)
        record = self._by_word.get(word) if isinstance(word, str) else None
        if record is not None:
            return record.load(value, strict)
        if strict:
            said = "is required" if word is None else f"{shown(str(word))} is none of {', '.join(self._by_word)}"
            raise Invalid(said, self._tag)
        return None

    def dump(self, obj: Any) -> dict[str, Any]:
        return self._by_class[type(obj)].dump(obj)
